"""`rota.capture`: queries, keys and values of a real model, in files that `rota distort` reads. docs/eval.md."""

import json
import pathlib
import warnings

import numpy
import torch
from transformers import AttentionInterface, AttentionMaskInterface, AutoTokenizer, DynamicCache
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS

from ._eval.attention import attention_function, implementation_kept, own_attention, set_implementation

IMPLEMENTATION = "rota_capture"
_FEWEST_TOKENS = 257  # rota distort looks at queries from position 256 on
_TYPES = {"f16": numpy.float16, "f32": numpy.float32}


def capture(model, text, path="captures", *, tokenizer=None, layers=None, heads=None, tokens=512, dtype="f16"):
    """Writes what the attention of `model` sees while it reads a text into the folder `path`, and returns that path.

    text: a str, or token ids. layers: numbers; None takes four, the first and the last of those without a window
    among them. heads: numbers of KV heads; None takes all. tokens: how many, from the text's beginning. For each
    layer and KV head there are LXX_gY_q.npy [tokens, query heads, dim] and LXX_gY_k.npy and LXX_gY_v.npy
    [tokens, dim], Q and K after RoPE, Q not yet scaled; index.json has the softmax scale and the token ids.
    """
    if dtype not in _TYPES:
        raise ValueError(f"dtype is {dtype!r}; wanted 'f16' or 'f32'")
    if tokens < _FEWEST_TOKENS:
        raise ValueError(f"tokens is {tokens}; wanted {_FEWEST_TOKENS} or more, as rota distort does")
    ids = _ids(model, text, tokenizer, tokens)
    path = pathlib.Path(path)
    if path.is_dir() and any(path.iterdir()):
        raise FileExistsError(f"{path}: holds files already; wanted an empty or a new folder")
    windows = _windows(model)
    layers = _default_layers(windows) if layers is None else sorted(set(layers))
    _check_layers(layers, windows, tokens)
    seen = _record(model, ids, layers)
    _check_seen(seen)
    written = {}
    for layer in layers:
        written.update(_arrays(layer, seen[layer], heads, _TYPES[dtype]))
    path.mkdir(parents=True, exist_ok=True)
    for name, array in written.items():
        numpy.save(path / f"{name}.npy", array)
    first = seen[layers[0]]
    index = {"model": model.name_or_path, "layers": layers, "positions": [0, tokens - 1],
             "head_dim": first["q"].shape[-1], "softmax_scale": first["scale"], "tokens": ids.tolist()}
    (path / "index.json").write_text(json.dumps(index, indent=1) + "\n", encoding="utf-8")
    return path


def _ids(model, text, tokenizer, tokens):
    if isinstance(text, str):
        if tokenizer is None:
            try:
                tokenizer = AutoTokenizer.from_pretrained(model.name_or_path)
            except (OSError, ValueError) as error:
                raise ValueError(f"{model.name_or_path!r} has no tokenizer; wanted tokenizer=, or token ids") from error
        text = tokenizer(text, verbose=False).input_ids
    ids = torch.as_tensor(text).reshape(-1)
    if len(ids) < tokens:
        raise ValueError(f"the text has {len(ids)} tokens; wanted {tokens}, or tokens={len(ids)}")
    return ids[:tokens].to(model.device)


def _windows(model):
    """Of each layer; None where it sees all."""
    return [layer.sliding_window if getattr(layer, "is_sliding", False) else None
            for layer in DynamicCache(config=model.config).layers]


def _default_layers(windows):
    whole = [layer for layer, window in enumerate(windows) if window is None] or list(range(len(windows)))
    last = len(whole) - 1
    return sorted({whole[round(part * last / 3)] for part in range(4)})


def _check_layers(layers, windows, tokens):
    for layer in layers:
        if not 0 <= layer < len(windows):
            raise ValueError(f"layer {layer} is not there; wanted 0 to {len(windows) - 1}")
        if windows[layer] is not None and windows[layer] < tokens:
            raise ValueError(f"layer {layer} sees {windows[layer]} tokens, and rota distort lets queries see all; "
                             f"wanted tokens={windows[layer]} or less, or other layers")


@torch.inference_mode()
def _record(model, ids, layers):
    """{layer: {"q", "k", "v", "scale"}}: [heads, tokens, dim] in f32."""
    own = own_attention(model)
    seen = {}

    def attention(module, query, key, value, attention_mask, **options):
        if module.layer_idx in layers:
            scale = options.get("scaling")
            seen[module.layer_idx] = {
                **{name: array[0].float().cpu() for name, array in (("q", query), ("k", key), ("v", value))},
                "scale": query.shape[-1] ** -0.5 if scale is None else float(scale),
            }
            unseen = [name for name in ("softcap", "s_aux") if options.get(name) is not None]
            if unseen:
                warnings.warn(f"layer {module.layer_idx} has {', '.join(unseen)}, which rota distort leaves out",
                              stacklevel=2)
        return attention_function(own, module)(module, query, key, value, attention_mask, **options)

    AttentionInterface.register(IMPLEMENTATION, attention)
    AttentionMaskInterface.register(IMPLEMENTATION, ALL_MASK_ATTENTION_FUNCTIONS[own])
    with implementation_kept(model):
        set_implementation(model, IMPLEMENTATION)
        # A cache of its own: rota.transformers.enable() would give it one that wants another attention.
        model(input_ids=ids[None], past_key_values=DynamicCache(config=model.config), logits_to_keep=1)
    missing = sorted(set(layers) - set(seen))
    if missing:
        raise ValueError(f"layers {missing} of {type(model).__name__} do not call transformers' attention interface")
    return seen


def _check_seen(seen):
    """rota distort takes heads of one size, with one softmax scale."""
    shapes = {layer: (tuple(one["k"].shape[-2:]), one["scale"]) for layer, one in seen.items()}
    for layer, one in seen.items():
        if one["v"].shape != one["k"].shape or one["q"].shape[-1] != one["k"].shape[-1]:
            raise ValueError(f"layer {layer} has heads of {one['k'].shape[-1]} for keys and {one['v'].shape[-1]} for "
                             "values, which rota distort does not take; wanted other layers")
    if len(set(shapes.values())) > 1:
        text = ", ".join(f"{layer}: {shape[0][1]} dims, scale {shape[1]:g}" for layer, shape in shapes.items())
        raise ValueError(f"layers differ ({text}); wanted layers= of one kind")


def _arrays(layer, seen, heads, dtype):
    """{name: array} of one layer."""
    kv_heads = seen["k"].shape[0]
    group = seen["q"].shape[0] // kv_heads
    made = {}
    for head in range(kv_heads) if heads is None else heads:
        if not 0 <= head < kv_heads:
            raise ValueError(f"KV head {head} is not there; wanted 0 to {kv_heads - 1}")
        parts = {"q": seen["q"][head * group : (head + 1) * group].transpose(0, 1),
                 "k": seen["k"][head], "v": seen["v"][head]}
        for name, values in parts.items():
            with numpy.errstate(over="ignore"):
                array = numpy.ascontiguousarray(values.numpy().astype(dtype))
            if not numpy.isfinite(array).all():
                raise ValueError(f"layer {layer} has numbers that f16 does not hold; wanted dtype='f32'")
            made[f"L{layer:02}_g{head}_{name}"] = array
    return made
