"""Which models of transformers can run on Rota's cache, found in their own code and configuration."""

import ast
import dataclasses
import functools
import inspect
import textwrap

import torch
from transformers.cache_utils import get_layer_types_and_kwargs

_CACHES = ("past_key_values", "past_key_value", "layer_past")
_WINDOWS = ("sliding_attention",)
_SERVED = ("full_attention", *_WINDOWS)
_WITHOUT = "dummy"  # layers that see the cache of another, or none
_DTYPES = (torch.float32, torch.float16, torch.bfloat16)
# What an attention implementation may be given by keyword; None is **kwargs.
_KNOWN = {"dropout", "scaling", "sliding_window", "softcap", "s_aux", "is_causal", "position_ids", "output_attentions", None}


@dataclasses.dataclass(frozen=True)
class LayerShape:
    kv_heads: int
    head_dim: int
    window: int | None


def layers_of(config):
    """The shape of each layer, None for one without a cache of its own. An error names what is not served."""
    types, options = get_layer_types_and_kwargs(config)
    refused = sorted(set(types) - {*_SERVED, _WITHOUT})
    if refused:
        raise NotImplementedError(f"rota: {config.model_type} has layers of type {', '.join(refused)}")
    # Before 5.17 transformers had one configuration for all layers.
    options = [options] * len(types) if isinstance(options, dict) else options
    configs = getattr(config, "per_layer_config", None) or [config] * len(types)
    return [_shape(*layer) for layer in zip(configs, types, options)]


def _shape(config, kind, options):
    if kind == _WITHOUT:
        return None
    return LayerShape(*_heads(config, kind), options.get("sliding_window") if kind in _WINDOWS else None)


def _heads(config, kind):
    heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    if kind == "full_attention" and getattr(config, "global_head_dim", None):  # Gemma 4
        dim = config.global_head_dim
        if getattr(config, "attention_k_eq_v", False):
            heads = getattr(config, "num_global_key_value_heads", None) or heads
    return heads, dim


def refusal(model):
    """Why the model cannot run on Rota's cache, or None if it can."""
    name = model.config.model_type
    if getattr(model.config, "is_encoder_decoder", False):
        return f"{name} is an encoder and a decoder; Rota serves decoders"
    try:
        layers_of(model.config.get_text_config(decoder=True))
    except NotImplementedError as error:
        return str(error).removeprefix("rota: ")
    except (AttributeError, TypeError) as error:
        return f"{name} has a configuration that does not tell its heads ({error})"
    if model.dtype not in _DTYPES:
        return f"{name} computes in {model.dtype}; Rota takes float32, float16 and bfloat16"
    return _attention_refusal(model, name)


def _attention_refusal(model, name):
    found = set()
    for module in model.modules():
        why = class_refusal(type(module))
        if why is None:
            continue
        if why == "" and getattr(module, "is_causal", True) is False:
            why = f"{type(module).__name__} is not causal"
        if why:
            return f"{name}: {why}"
        found.add(getattr(module, "layer_idx", None))
    if not found:
        return f"{name} has no attention that takes a cache and an attention implementation"
    shapes = layers_of(model.config.get_text_config(decoder=True))
    missing = {index for index, shape in enumerate(shapes) if shape is not None} - found
    return f"{name} lacks layers {sorted(missing)} that its configuration has" if missing else None


def set_implementation(model, name):
    """Of the attention of a model's text, not of its images."""
    text = model.config.get_text_config(decoder=True)
    if text is model.config:
        model.set_attn_implementation(name)
        return
    key = next(key for key in model.config.sub_configs if getattr(model.config, key, None) is text)
    model.set_attn_implementation({key: name})


@functools.cache
def class_refusal(kind):
    """Why a class of attention cannot be served; "" if it can; None if it is no attention with a cache."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(kind.forward)))
    except (OSError, TypeError, SyntaxError):
        return None
    forward = tree.body[0]
    updates = [node for node in ast.walk(forward) if _is_update(node)]
    if not updates:
        return None
    if any(argument.arg in ("encoder_hidden_states", "cross_attention_states") for argument in forward.args.args):
        return f"{kind.__name__} attends to another sequence"
    calls = [node for node in ast.walk(forward) if _is_attention(node)]
    if not calls:
        return f"{kind.__name__} computes attention itself"
    unknown = {keyword.arg for call in calls for keyword in call.keywords} - _KNOWN
    if unknown:
        return f"{kind.__name__} gives attention {', '.join(sorted(unknown))}"
    names = {name.id for node in updates for target in node.targets for name in ast.walk(target)
             if isinstance(name, ast.Name)}  # fmt: skip
    last = max(node.end_lineno for node in updates)
    if any(_touches(node, names, last) for node in ast.walk(forward)):
        return f"{kind.__name__} changes keys or values after the cache has returned them"
    return ""


def _is_update(node):
    """key_states, value_states = past_key_values.update(...)"""
    if not (isinstance(node, ast.Assign) and isinstance(node.value, ast.Call)):
        return False
    function = node.value.func
    return (isinstance(function, ast.Attribute) and function.attr == "update" and isinstance(function.value, ast.Name)
            and function.value.id in _CACHES)  # fmt: skip


def _is_attention(node):
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "attention_interface"


def _touches(node, names, last):
    """Whether a node behind the update assigns to keys or values, or does more with them than to pass or keep them."""
    if getattr(node, "lineno", 0) <= last:
        return False
    if isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        return any(isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store) and part.id in names
                   for target in targets for part in ast.walk(target))  # fmt: skip
    if isinstance(node, ast.Attribute | ast.Subscript):
        return isinstance(node.value, ast.Name) and node.value.id in names and not _is_size(node)
    if isinstance(node, ast.Call) and not _is_attention(node):
        given = [*node.args, *(keyword.value for keyword in node.keywords)]
        return any(isinstance(part, ast.Name) and part.id in names for part in given)
    return isinstance(node, ast.BinOp) and any(
        isinstance(part, ast.Name) and part.id in names for part in (node.left, node.right)
    )


def _is_size(node):
    return isinstance(node, ast.Attribute) and node.attr in ("shape", "dtype", "device")
