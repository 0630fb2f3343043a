"""The rows of a RotaCache in a page store: which tokens they are made of, and what becomes of their pages."""

import hashlib
import json
import threading
import warnings
import weakref

import numpy

import rota

_SAMPLE = 4096  # bytes, of each tensor's beginning, middle and end
_AT_THE_END = 30.0  # seconds that pages may take to be stored when their cache is gone

# Of a configuration, what changes no key and no value.
_WITHOUT_EFFECT = ("_name_or_path", "transformers_version", "use_cache", "output_attentions", "output_hidden_states",
                   "return_dict", "architectures", "experts_implementation", "attn_implementation")  # fmt: skip


def weights_of(model):
    """A name for a model's weights, by which its pages are found: a digest of names, types, shapes and samples."""
    if getattr(model, "_hf_peft_config_loaded", False) or hasattr(model, "peft_config"):
        raise NotImplementedError("rota: a model with adapters, whose weights may change: name them by weights=")
    digest = hashlib.sha256()
    for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        for sample in _samples(name, tensor.detach()):
            digest.update(sample)
    return f"{model.config.model_type} {digest.hexdigest()}"


def _samples(name, tensor):
    import torch

    if tensor.is_meta or type(tensor) not in (torch.Tensor, torch.nn.Parameter):
        raise NotImplementedError(f"rota: the weights of {name} cannot be read here: name the model's by weights=")
    flat = tensor.reshape(-1)
    count = max(_SAMPLE // max(flat.element_size(), 1), 1)
    last = max(flat.numel() - count, 0)
    for begin in sorted({0, last // 2, last}) if flat.numel() else ():
        yield flat[begin : begin + count].contiguous().view(torch.uint8).cpu().numpy().tobytes()


def rope_of(config):
    """What else keys and values depend on."""
    settings = {name: value for name, value in config.to_dict().items() if name not in _WITHOUT_EFFECT}
    return json.dumps(settings, sort_keys=True, default=str) + arithmetic()


def arithmetic():
    """How this thread computes now, where that is not as ever."""
    import torch

    autocast = f" autocast {torch.get_autocast_dtype('cpu')}" if torch.is_autocast_enabled("cpu") else ""
    precision = torch.get_float32_matmul_precision()
    return autocast + ("" if precision == "highest" else f" float32 products {precision}")


def rope_that_follows_length(settings):
    """The name of a rope whose angles depend on how long the whole text is, in a configuration's dictionary, or None."""
    for name, value in settings.items():
        if name in ("rope_type", "type") and isinstance(value, str) and ("dynamic" in value or value == "longrope"):
            return value
        found = rope_that_follows_length(value) if isinstance(value, dict) else None
        if found:
            return found
    return None


class _Tokens:
    """int32, for appending often."""

    def __init__(self, tokens=()):
        self._room = numpy.array(tokens, numpy.int32)
        self._count = len(self._room)

    def __len__(self):
        return self._count

    def append(self, tokens):
        wanted = self._count + len(tokens)
        if wanted > len(self._room):
            self._room = numpy.concatenate([self._room[: self._count], numpy.empty(wanted, numpy.int32)])
        self._room[self._count : wanted] = tokens
        self._count = wanted

    def cut(self, count):
        self._count = min(count, self._count)

    def all(self):
        return self._room[: self._count]


class StoredRows:
    """The tokens of a cache's rows, and the store of their pages. A row whose tokens are not known, as of images or
    with positions of the caller's own, is not stored."""

    def __init__(self, store, tokens):
        self.store = store
        self._tokens = tokens  # of each row; None: not known
        self._warned = False
        weakref.finalize(self, _drain, store)

    @classmethod
    def empty(cls, store, rows):
        return cls(store, [_Tokens() for _ in range(rows)])

    def copy(self):
        return StoredRows(self.store, [None if one is None else _Tokens(one.all()) for one in self._tokens])

    def select(self, indices):
        self._tokens = [None if self._tokens[i] is None else _Tokens(self._tokens[i].all()) for i in indices]

    def cut(self, lengths):
        for tokens, length in zip(self._tokens, lengths):
            if tokens is not None:
                tokens.cut(length)

    def restore(self, ids):
        """Of rows without padding, [batch, columns]: their sequences with the longest stored prefix that all have, or
        None."""
        ids = numpy.ascontiguousarray(ids, numpy.int32)
        self._tokens = [_Tokens() for _ in ids]
        first_alike = [next(j for j in range(i + 1) if numpy.array_equal(ids[j], ids[i])) for i in range(len(ids))]
        length = min(self.store.match(ids[i, :-1]) for i in set(first_alike))
        self._warn()
        if length == 0:
            return None
        rows = []
        for i, first in enumerate(first_alike):
            row, tokens = (rows[first].fork(), length) if first < i else self.store.load(ids[i, :length])
            rows.append(row)
            if tokens < length:
                for one in rows:
                    one.close()
                self._warn()
                return None
        self._tokens = [_Tokens(row[:length]) for row in ids]
        return rows

    def extend(self, rows, ids, positions, mask):
        """A forward's tokens. `ids` and `positions`: [batch, columns]; ids may be None. `mask`: which are tokens."""
        for i, (row, tokens) in enumerate(zip(rows, self._tokens)):
            if tokens is None:
                continue
            if ids is not None:
                chosen = slice(None) if mask is None else mask[i]
                new, at, length = ids[i][chosen], positions[i % len(positions)][chosen], len(tokens)
                if length + len(new) == row.length and numpy.array_equal(at, numpy.arange(length, row.length)):
                    tokens.append(new)
                    self.store.put(row, tokens.all())
                    continue
            self._tokens[i] = None
        self._warn()

    def _warn(self):
        if self._warned:
            return
        counters = self.store.counters
        if counters["failed_calls"]:
            self._warned = True
            warnings.warn(f"rota: the page store failed, and what it would have given is computed: {counters['last_error']}",
                          stacklevel=4)  # fmt: skip


def _drain(store):
    """What was put is stored although its cache is gone; behind the caller, where that is possible."""
    if store.counters["queued_puts"] == 0:
        return

    def wait():
        try:
            store.flush(_AT_THE_END)
        except rota.Error as error:
            warnings.warn(f"rota: pages are not stored: {error}", stacklevel=2)

    if threading.main_thread().is_alive():
        threading.Thread(target=wait, name="rota-store").start()
    else:  # the interpreter ends, and waits for no thread that begins now
        wait()
