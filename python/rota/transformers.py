"""Hugging Face models on Rota's cache.

    import rota.transformers

    rota.transformers.enable(model, k="turbo4", v="turbo4")
    model.generate(**inputs)            # as ever

One forward of a model calls, in this order:

    AttentionMaskInterface["rota"]      once or twice: which of the new columns are tokens, and which are padding
    RotaCache.update(k, v, layer)       in each layer: knows no mask yet, so it returns k with a note, and stores nothing
    AttentionInterface["rota"]          in each layer: finds the note, stores what are tokens, and attends

Rows of a batch are sequences of the library, without padding. Nothing may touch k between the second and the third, so
models that do are refused.
"""

import copy
import dataclasses
import inspect
import types
import warnings
import weakref

import torch
from transformers import AttentionInterface, AttentionMaskInterface, DynamicCache
from transformers.cache_utils import Cache, CacheLayerMixin

import rota
from rota._families import layers_of, refusal, set_implementation
from rota._prefixes import StoredRows, arithmetic, rope_of, rope_that_follows_length, weights_of

__all__ = ["RotaCache", "disable", "enable", "refusal", "weights_of"]

NAME = "rota"

# What models pass on to every attention, besides what to output, and what does not change its result.
_WITHOUT_EFFECT = {"cache_position", "is_causal", "layer_type", "logits_to_keep", "num_items_in_batch",
                   "past_key_values", "position_embeddings", "position_ids", "return_dict", "use_cache"}  # fmt: skip


class _Layer(CacheLayerMixin):
    """What masks and generate() ask of a layer. Its lengths count columns: padding, too."""

    is_croppable = True
    supports_early_init = False

    def __init__(self, cache, index, window):
        super().__init__()
        self._cache, self.index, self.window = weakref.ref(cache), index, window
        self.is_sliding = window is not None
        self.record_past = False

    def lazy_initialization(self, key_states, value_states):
        pass

    def update(self, key_states, value_states, *args, **kwargs):
        return self._cache().update(key_states, value_states, self.index)

    # All columns, of a window as well: our mask wants the new ones only.
    def get_mask_sizes(self, query_length):
        return self.get_seq_length() + query_length, 0

    def get_seq_length(self):
        return self._cache().columns

    def get_max_length(self):
        return self.window if self.is_sliding else -1

    get_max_cache_shape = get_max_length

    def activate_past_recording(self):
        self.record_past = True


@dataclasses.dataclass(eq=False)
class _Step:
    """One forward: its layers come one after the other."""

    columns: int  # new ones
    lengths: list  # of the rows before it
    ids: object = None  # [batch, columns], and their positions; None: not known
    positions: object = None
    tokens: torch.Tensor | None = None  # [batch, columns]: which columns are tokens; None: all
    mask: torch.Tensor | None = None  # the same of all columns so far
    native: rota.Step | None = None  # once the first layer attends
    noted: set = dataclasses.field(default_factory=set)  # layers that update() has seen
    stored: set = dataclasses.field(default_factory=set)

    def newest(self, batch, columns):
        """Of each row that has tokens in the step: how many of them are in its newest columns."""
        if self.tokens is None:
            return [columns] * batch
        return [newest for whole, newest in zip(self.tokens.sum(1).tolist(), self.tokens[:, -columns:].sum(1).tolist())
                if whole]  # fmt: skip


@dataclasses.dataclass(eq=False, frozen=True)
class _Note:
    """What update() leaves on k for the attention function."""

    cache: "RotaCache"
    layer: int
    step: _Step


class RotaCache(Cache):
    """A transformers cache in Rota's memory, for models with attn_implementation="rota".

    `k` and `v` are codecs. `dense` is the type of the newest `tail` tokens and the first `sinks`. A device that cannot
    grow its memory wants `max_tokens`, of all rows together. `max_rows` are rows, beams included, that may come to be.
    `store` is a rota.PageStore, or its URL, of pages that other caches may load: `weights` names the model's weights,
    as weights_of(model) does, and only caches with the same `salt` share.
    """

    def __init__(self, config, k="turbo4", v="turbo4", *, dense="f16", tail=128, sinks=4, page=128, device=None,
                 max_tokens=None, max_bytes=None, max_rows=16, max_step_tokens=None, seal_within=None, store=None,
                 weights=None, salt=b""):  # fmt: skip
        self.config = config.get_text_config(decoder=True)
        shapes = layers_of(self.config)
        self._options = dict(k=k, v=v, dense=dense, tail=tail, sinks=sinks, page=page, max_tokens=max_tokens,
                             max_bytes=max_bytes, max_rows=max_rows, max_step_tokens=max_step_tokens,
                             seal_within=seal_within, store=open_store(store), weights=weights, salt=salt)  # fmt: skip
        if store is not None and not weights:
            raise ValueError("rota: a cache with a store wants weights=, such as rota.transformers.weights_of(model)")
        rope = None if store is None else rope_that_follows_length(config.to_dict())
        if rope is not None:
            raise NotImplementedError(f"rota: a store of prefixes with rope {rope!r}: a key would depend on all that follows it")
        self._device = rota.Device(device) if isinstance(device, str) else device or rota.default_device()
        self._shapes = shapes
        self._groups = self._make_groups()
        self.kv = None  # rota.KvCache; made when the number of rows is known
        self.rows = None  # sequences
        self.columns = 0  # of forwards that had all layers, padding included
        self._tokens = None  # [batch, columns]: which of them are tokens; None: all
        self._step = None
        self._given = None  # the forward's tokens and positions, while it runs
        self._arithmetic = None  # of what is in the store
        self._stored = None  # StoredRows, with a store
        self._unstored = None  # the forward that ended last, and the columns before it
        self._warned = False
        self._stored_layers = sum(shape is not None for shape in shapes)
        super().__init__(layers=[_Layer(self, i, shape.window if shape else None) for i, shape in enumerate(shapes)])

    def _make_groups(self):
        alike = {}
        for index, shape in enumerate(self._shapes):
            if shape is not None:
                alike.setdefault(shape, []).append(index)
        names = ("k", "v", "dense", "tail", "sinks", "page")
        options = {name: self._options[name] for name in names}
        return [rota.KvGroup(layers, shape.kv_heads, shape.head_dim, window=shape.window, **options)
                for shape, layers in alike.items()]  # fmt: skip

    def _open(self, batch):
        o = self._options
        grows = self._device.info.max_sparse_bytes > 0
        most = o["max_step_tokens"] or (65536 if grows else min(o["max_tokens"] or 4096, 4096))
        # Twice the rows: beams are forked before those that they replace are closed.
        self.kv = rota.KvCache(self._groups, device=self._device, max_tokens=o["max_tokens"], max_bytes=o["max_bytes"],
                               max_sequences=2 * max(batch, o["max_rows"]), max_step_tokens=most,
                               seal_within=o["seal_within"])  # fmt: skip
        self.rows = [self.kv.open_sequence() for _ in range(batch)]
        if o["store"] is not None:
            self._arithmetic = arithmetic()
            self._stored = StoredRows.empty(rota.PrefixStore(o["store"], self.kv, weights=o["weights"], salt=o["salt"],
                                                             rope=rope_of(self.config)), batch)  # fmt: skip

    def restore(self, input_ids):
        """Loads the longest stored prefix of these tokens, [batch, columns] without padding, into an empty cache.

        Returns how many columns the cache has now; the model wants the rest, and at least one. 0 without a store.
        """
        if self._options["store"] is None:
            return 0
        if self.columns:
            raise ValueError(f"rota: restore() wants an empty cache, found {self.columns} columns")
        self._give_up()
        if self.rows is None:
            self._open(len(input_ids))
        rows = self._stored.restore(input_ids.cpu().numpy())
        if rows is not None:
            for row in self.rows:
                row.close()
            self.rows, self.columns = rows, rows[0].length
        return self.columns

    def chunked(self, generation_config):
        """The same with a prompt in chunks, if only so the pages of a window can be stored before they leave it."""
        windows = [shape.window for shape in self._shapes if shape is not None and shape.window is not None]
        most = min(windows, default=0) - self._options["page"]
        if self._options["store"] is None or generation_config.prefill_chunk_size is not None or most <= 0:
            return generation_config
        changed = copy.copy(generation_config)
        changed.prefill_chunk_size = most
        return changed

    def update(self, key_states, value_states, layer_idx, *args, **kwargs):
        shape = self._shapes[layer_idx]
        batch, kv_heads, new, head_dim = key_states.shape
        if (kv_heads, head_dim) != (shape.kv_heads, shape.head_dim) or value_states.shape[-1] != head_dim:
            raise NotImplementedError(
                f"rota: layer {layer_idx} of {self.config.model_type} has keys of {kv_heads} x {head_dim} and values of "
                f"{value_states.shape[-1]}, where its configuration says {shape.kv_heads} x {shape.head_dim}"
            )
        if self.rows is None:
            self._open(batch)
        if len(self.rows) != batch:
            raise ValueError(f"rota: the cache holds {len(self.rows)} rows, found a batch of {batch}")
        if self._step is None or layer_idx in self._step.noted or self._step.columns != new:
            self._begin(new)
        self._step.noted.add(layer_idx)
        # A tensor of our own, so that the note is on nobody else's.
        key_states = key_states.view_as(key_states)
        key_states.rota = _Note(self, layer_idx, self._step)
        return key_states, value_states

    def _begin(self, new):
        found = self.config._attn_implementation
        if found != NAME:
            raise RuntimeError(f'RotaCache wants attn_implementation="rota", found {found!r}: call rota.transformers.enable()')
        if self._step is not None and self._step.stored:
            warnings.warn(f"rota: a forward ended after {len(self._step.stored)} of {self._stored_layers} layers, as by an "
                          "error, and is taken back", stacklevel=2)  # fmt: skip
        self._give_up()
        self._store()
        self._step = _Step(new, [row.length for row in self.rows])
        given, self._given = self._given, None
        if self._stored is not None and self._arithmetic != arithmetic():
            given = None
        if given is not None and given[0].shape == (len(self.rows), new):
            self._step.ids, self._step.positions = given

    def _give_up(self):
        """Takes back a forward that ended between its layers."""
        step, self._step = self._step, None
        if step is not None and step.native is not None:
            for row, length in zip(self.rows, step.lengths):
                row.truncate(length)

    def _extend(self, step, mask):
        """The first layer attends: now the padding is known. `mask`: [batch, all columns], or None without padding."""
        before = self._tokens
        if mask is not None:
            if mask.shape[1] != self.columns + step.columns:
                raise ValueError(f"rota: an attention mask of {mask.shape[1]} columns, wanted {self.columns + step.columns}")
            past = mask[:, : self.columns]
            if not torch.equal(past, torch.ones_like(past) if before is None else before):
                raise NotImplementedError("rota: an attention mask that says otherwise of earlier columns than before")
        elif before is not None:
            raise NotImplementedError("rota: no attention mask, where earlier columns have padding")
        tokens = None if mask is None else mask[:, self.columns :]
        tokens = None if tokens is None or bool(tokens.all()) else tokens
        self._refuse_padding_behind(step, tokens)
        step.tokens, step.mask = tokens, mask
        counts = [step.columns] * len(self.rows) if tokens is None else tokens.sum(1).tolist()
        step.native = self.kv.extend([(row, count) for row, count in zip(self.rows, counts) if count])

    def _refuse_padding_behind(self, step, tokens):
        """A window counts columns in transformers, and tokens here: the same if padding comes first."""
        if tokens is None or not any(layer.is_sliding for layer in self.layers):
            return
        follows = tokens[:, :-1] & ~tokens[:, 1:]
        if bool(follows.any()) or any(n and not t for n, t in zip(step.lengths, tokens[:, 0].tolist())):
            raise NotImplementedError("rota: padding behind tokens, in a model with windows; pad on the left")

    def _finish(self, step, layer):
        step.stored.add(layer)
        if len(step.stored) == self._stored_layers and self._step is step:
            self._step = None
            if self._stored is not None:
                self._unstored = step, self.columns  # layers that share the cache of others may still attend
            self.columns += step.columns
            self._tokens = step.mask
            self._warn_of_lost_values()

    def _store(self):
        """What a forward computed, at its end."""
        if self._unstored is None:
            return
        (step, begin), self._unstored = self._unstored, None
        if step.columns >= self._options["page"]:
            self.kv.settle()  # now, so that others find the prompt; else by the next step
        ids = positions = None
        if step.ids is not None:
            ids, positions = step.ids.cpu().numpy(), step.positions
            if positions is None:
                positions = torch.arange(begin, begin + step.columns)[None]
            positions = positions.cpu().numpy()
        self._stored.extend(self.rows, ids, positions, None if step.tokens is None else step.tokens.numpy())

    def _warn_of_lost_values(self):
        if self._warned:
            return
        lost = self.kv.non_finite
        if lost["appended"] or lost["sealed"]:
            self._warned = True
            warnings.warn(f"rota: {lost['appended']} numbers of keys and values are infinite or NaN as they were stored, "
                          f"{lost['sealed']} were beyond the range of f16 as they were sealed", stacklevel=2)  # fmt: skip

    def reorder_cache(self, beam_idx):
        wanted, old, taken = beam_idx.tolist(), self.rows, set()
        rows = []
        for index in wanted:
            rows.append(old[index].fork() if index in taken else old[index])
            taken.add(index)
        self.rows = rows
        self._tokens = None if self._tokens is None else self._tokens[beam_idx]
        if self._stored is not None:
            self._stored.select(wanted)
        for index, row in enumerate(old):
            if index not in taken:
                row.close()

    batch_select_indices = reorder_cache

    def batch_repeat_interleave(self, repeats):
        self.reorder_cache(torch.arange(len(self.rows)).repeat_interleave(repeats))

    def crop(self, tokens_to_remove):
        if tokens_to_remove > 0:
            raise ValueError(f"rota: crop() takes the negative number of tokens to remove, found {tokens_to_remove}")
        self._give_up()
        if tokens_to_remove == 0 or self.rows is None:
            return
        columns = self.columns + tokens_to_remove
        if columns < 0:
            raise ValueError(f"rota: crop({tokens_to_remove}) of a cache with {self.columns} columns")
        removed = [-tokens_to_remove] * len(self.rows)
        if self._tokens is not None:
            removed = self._tokens[:, columns:].sum(1).tolist()
            self._tokens = None if bool(self._tokens[:, :columns].all()) else self._tokens[:, :columns]
        for row, count in zip(self.rows, removed):
            row.truncate(row.length - count)
        self.columns = columns
        if self._stored is not None:
            self._stored.cut([row.length for row in self.rows])

    def reset(self):
        for row in self.rows or []:
            row.close()
        self.kv, self.rows, self.columns, self._tokens, self._step = None, None, 0, None, None
        self._stored, self._unstored = None, None

    def __deepcopy__(self, memo):
        """A second cache over the same pages, as for a prompt that several texts share."""
        other = RotaCache(self.config, device=self._device, **self._options)
        other.kv, other.columns, other._tokens = self.kv, self.columns, self._tokens
        other.rows = None if self.rows is None else [row.fork() for row in self.rows]
        other._stored = None if self._stored is None else self._stored.copy()
        other._arithmetic = self._arithmetic
        return other

    def __copy__(self):
        return self.__deepcopy__({})

    @property
    def is_initialized(self):
        return self.rows is not None

    @property
    def batch_size(self):
        return -1 if self.rows is None else len(self.rows)

    def get_max_cache_shape(self, layer_idx=0):
        return self.layers[layer_idx].get_max_length()


def _mask(batch_size, q_length, kv_length, q_offset=0, kv_offset=0, mask_function=None, attention_mask=None,
          allow_is_causal_skip=True, use_vmap=False, **kwargs):  # fmt: skip
    """Which of the new columns are tokens, [batch, 1, columns, 1]; None: no column is padding.

    Four dimensions, because models that need the newest queries only cut masks of [batch, head, query, key].
    """
    if use_vmap or not allow_is_causal_skip or "allow_is_bidirectional_skip" in kwargs:
        raise NotImplementedError("rota: a mask that is neither causal nor a window, such as of images or packed texts")
    if attention_mask is None or bool(attention_mask.all()):
        return None
    columns = attention_mask.bool()
    mask = columns[:, None, -q_length:, None]
    mask.rota = columns  # all of them; and tells it from a mask of the caller's own
    return mask


def _refuse(module, tensors, dropout, kwargs):
    """Whatever attention would have to do and does not is an error. Called by every layer, so it looks at little."""
    for name, value in kwargs.items():
        if name not in _WITHOUT_EFFECT and value is not None and not name.startswith("output_"):
            raise NotImplementedError(f"rota: attention of {type(module).__name__} is given {name}")
    if kwargs.get("output_attentions"):
        raise NotImplementedError("rota: attention weights; they are never in memory")
    if kwargs.get("is_causal") is False or getattr(module, "is_causal", True) is False:
        raise NotImplementedError(f"rota: {type(module).__name__} is not causal")
    if dropout:
        raise NotImplementedError("rota: dropout; call model.eval()")
    for x in tensors:
        if x.requires_grad:
            raise NotImplementedError("rota: gradients; call the model inside of torch.no_grad()")
        if not x.is_cpu:
            raise NotImplementedError(f"rota: tensors on {x.device}; models run on the CPU, Rota's cache on any device")


def _refuse_packed(position_ids, attention_mask):
    """Several texts in one row, which transformers tells apart by their positions where there is no cache."""
    if position_ids is not None and position_ids.ndim == 2 and attention_mask is None and (position_ids.diff() != 1).any():
        raise NotImplementedError("rota: packed texts; give each a row of its own")


# A tensor as NumPy's array, where NumPy has its type, is the same memory, and is taken in a quarter of the time.
_OF_NUMPY = (torch.float32, torch.float16)


def _pack(x, tokens):
    """[batch, heads, new, dim] as [tokens, heads, dim], one row after the other, without padding."""
    if x.shape[0] == 1 and tokens is None:
        return x.numpy()[0].swapaxes(0, 1) if x.dtype in _OF_NUMPY else x[0].transpose(0, 1)
    x = x.transpose(1, 2)
    return x.reshape(-1, *x.shape[2:]) if tokens is None else x[tokens]


def _attention(module, query, key, value, attention_mask, scaling=None, dropout=0.0, sliding_window=None, softcap=None,
               s_aux=None, **kwargs):  # fmt: skip
    note = getattr(key, "rota", None)
    if note is None:
        raise RuntimeError(
            f"rota: the keys of {type(module).__name__} do not come from a RotaCache. Leave out past_key_values and "
            "cache_implementation, or call rota.transformers.disable(model); models may share a configuration"
        )
    _refuse(module, (query, key, value), dropout, kwargs)
    cache, step = note.cache, note.step
    window = cache.layers[note.layer].window
    if sliding_window != window:
        raise NotImplementedError(f"rota: {type(module).__name__} has a window of {sliding_window}, its cache one of {window}")
    if attention_mask is not None and (attention_mask.shape[-1] != 1 or attention_mask.dtype != torch.bool):
        raise NotImplementedError("rota: an attention mask of the caller's own")
    if step.native is None:
        cache._extend(step, None if attention_mask is None else attention_mask.rota)
    batch, heads, new, dim = query.shape
    tokens = None if step.tokens is None else step.tokens[:, -new:]
    q = _pack(query, tokens)
    out = torch.empty(q.shape[0], heads, value.shape[-1], dtype=query.dtype)
    options = dict(scale=dim**-0.5 if scaling is None else scaling,
                   out=out.numpy() if out.dtype in _OF_NUMPY else out, soft_cap=softcap,
                   sink_logits=None if s_aux is None else s_aux.detach().flatten())  # fmt: skip
    if note.layer in step.stored:  # a layer that shares the cache of another
        step.native.attend(note.layer, q, query_tokens=step.newest(batch, new), **options)
    else:
        step.native.update(note.layer, q, _pack(key, tokens), _pack(value, tokens), **options)
        cache._finish(step, note.layer)
    if tokens is None:
        return out.view(batch, new, heads, -1), None
    padded = out.new_zeros(batch, new, heads, out.shape[-1])
    padded[tokens] = out
    return padded, None


def open_store(store):
    """A page store by its URL, or as it is."""
    return rota.PageStore(store) if isinstance(store, str) else store


# Of what a forward is given, what tokens and their positions say as well.
_OF_TOKENS = {"input_ids", "attention_mask", "position_ids", "cache_position", "labels", "logits_to_keep"}


def _tokens_given(kwargs):
    """(input_ids, position_ids or None), or None if keys and values may depend on more than these."""
    ids, positions = kwargs.get("input_ids"), kwargs.get("position_ids")
    for name, x in kwargs.items():
        known = name in _OF_TOKENS or (name.endswith("token_type_ids") and isinstance(x, torch.Tensor) and not x.any())
        if isinstance(x, (torch.Tensor, list, dict)) and not known:
            return None
    if ids is None or (positions is not None and positions.ndim != 2):
        return None
    return ids, positions


def _begins_at_zero(positions):
    return positions is None or bool((positions == torch.arange(positions.shape[-1])).all())


AttentionInterface.register(NAME, _attention)
AttentionMaskInterface.register(NAME, _mask)


def enable(model, k="turbo4", v="turbo4", **options):
    """Makes a model's generate() and forward() keep keys and values in a RotaCache. Returns the model.

    Options are those of RotaCache. A model whose attention Rota does not compute is refused with a sentence, here and
    not while it generates. With `store`, a rota.PageStore or its URL, generate() loads the prefix of a prompt that this
    model, here or in another process, has seen before, and stores what it computes; `weights` then has a default.
    """
    why = refusal(model)
    if why is not None:
        raise NotImplementedError(f"rota: {why}")
    options = dict(options, k=k, v=v, store=open_store(options.get("store")))

    def new_cache(config):
        given = {"weights": weights_of(model)} if options["store"] is not None and not options.get("weights") else {}
        return RotaCache(config, **{**options, **given})

    # An error in the options is one here, and a device is opened once.
    options["device"] = new_cache(model.config)._device
    disable(model)
    # Where they are not given, such models add to positions what an image before has left.
    has_deltas = any(hasattr(module, "rope_deltas") for module in model.modules())
    prepare, prefill = model._prepare_cache_for_generation, model._prefill

    def prepare_cache(self, generation_config, model_kwargs, *args, **kwargs):
        prepare(generation_config, model_kwargs, *args, **kwargs)
        given = model_kwargs.get("past_key_values")
        if type(given) is DynamicCache and not getattr(given, "_is_user_defined", False):
            model_kwargs["past_key_values"] = new_cache(self.config)

    def restored_prefill(self, input_ids, generation_config, model_kwargs, *args, **kwargs):
        cache, mask = model_kwargs.get("past_key_values"), model_kwargs.get("attention_mask")
        if isinstance(cache, RotaCache) and cache.columns == 0 and input_ids.numel() and (mask is None or bool(mask.all())):
            given = _tokens_given({**model_kwargs, "input_ids": input_ids})
            if given is not None and _begins_at_zero(given[1]):
                cache.restore(input_ids)
            generation_config = cache.chunked(generation_config)
        return prefill(input_ids, generation_config, model_kwargs, *args, **kwargs)

    def before_forward(module, args, kwargs):
        kwargs.update(zip(inspect.signature(module.forward).parameters, args))
        if kwargs.get("past_key_values") is None:
            _refuse_packed(kwargs.get("position_ids"), kwargs.get("attention_mask"))
            kwargs["past_key_values"] = new_cache(module.config)
        if isinstance(kwargs["past_key_values"], RotaCache):
            given = _tokens_given(kwargs)
            is_known = given is not None and not (has_deltas and given[1] is None)
            kwargs["past_key_values"]._given = given if is_known else None
        return (), kwargs

    def after_forward(module, args, kwargs, output):
        cache = kwargs["past_key_values"]
        if isinstance(cache, RotaCache) and cache._step is not None:
            found, wanted = len(cache._step.stored), cache._stored_layers
            cache._give_up()
            raise NotImplementedError(f"rota: a forward with {found} of {wanted} layers")
        if isinstance(cache, RotaCache):
            cache._store()

    before = model.config.get_text_config(decoder=True)._attn_implementation
    hooks = (model.register_forward_pre_hook(before_forward, with_kwargs=True),
             model.register_forward_hook(after_forward, with_kwargs=True))  # fmt: skip
    model._prepare_cache_for_generation = types.MethodType(prepare_cache, model)
    model._prefill = types.MethodType(restored_prefill, model)
    model._rota = (before, hooks)
    set_implementation(model, NAME)
    return model


def disable(model):
    """Takes enable() back. Returns the model."""
    if not hasattr(model, "_rota"):
        return model
    before, hooks = model._rota
    for hook in hooks:
        hook.remove()
    del model._prepare_cache_for_generation, model._prefill, model._rota
    set_implementation(model, before)
    return model
