"""The caches that are compared: the model's own, Rota's, and simulations of ggml's formats."""

import dataclasses

from transformers.cache_utils import DynamicCache

from . import ggml
from .refused import Refused

ROTATION = "+rot"


@dataclasses.dataclass(frozen=True)
class Codec:
    """How keys and values are kept. `name` is what the user wrote."""

    name: str
    k: str
    v: str
    simulated: bool

    @property
    def rotated(self):
        return self.simulated and self.k.endswith(ROTATION) and self.v.endswith(ROTATION)


def _is_simulated(name):
    return name.removesuffix(ROTATION) in ggml.BITS


def parse_codec(text, rota_codecs):
    """"turbo4", or "turbo8/turbo4" for keys and values; ggml's formats with ROTATION behind them or without."""
    names = text.split("/")
    known = [*rota_codecs, *ggml.BITS, *(name + ROTATION for name in ggml.BITS)]
    if len(names) > 2 or any(name not in known for name in names):
        raise Refused(f"--codecs: {text!r} is no codec; wanted one of {', '.join(known)}, or K/V")
    k, v = names[0], names[-1]
    if _is_simulated(k) != _is_simulated(v):
        raise Refused(f"--codecs: {text!r} is half simulated; wanted two of Rota's codecs, or two of ggml's")
    return Codec(text, k, v, _is_simulated(k))


class SimulatedCache(DynamicCache):
    """Keeps all keys and values as they are read back from ggml's formats, the newest ones as well."""

    def __init__(self, config, codec):
        super().__init__(config=config)
        self._codec = codec

    def update(self, key_states, value_states, layer_idx, *args, **kwargs):
        return super().update(
            _restored(key_states, self._codec.k), _restored(value_states, self._codec.v), layer_idx, *args, **kwargs
        )


def _restored(x, name):
    return ggml.restored(x, name.removesuffix(ROTATION), rotate=name.endswith(ROTATION))


@dataclasses.dataclass(frozen=True)
class Shape:
    """Layers that keep keys and values alike."""

    layers: int
    kv_heads: int
    head_dim: int
    value_dim: int
    window: int | None


def shapes_of(cache):
    """Of the layers that store something in a DynamicCache which has seen tokens."""
    counts = {}
    for layer in cache.layers:
        if not layer.is_initialized:  # it reads another layer's keys and values
            continue
        window = layer.sliding_window if getattr(layer, "is_sliding", False) else None
        shape = (layer.keys.shape[1], layer.keys.shape[-1], layer.values.shape[-1], window)
        counts[shape] = counts.get(shape, 0) + 1
    return [Shape(count, *shape) for shape, count in counts.items()]


def plain_bytes(shapes, context, key_bits, value_bits):
    """Of a cache that keeps each value alike; of a window, the window."""
    bits = 0
    for shape in shapes:
        tokens = context if shape.window is None else min(context, shape.window)
        bits += tokens * shape.layers * shape.kv_heads * (shape.head_dim * key_bits + shape.value_dim * value_bits)
    return bits / 8


def mean_bits(shapes, key_bits, value_bits):
    """Bits of a value, over keys and values of all layers. The two are functions of a head's size."""
    bits = values = 0
    for shape in shapes:
        heads = shape.layers * shape.kv_heads
        bits += heads * (shape.head_dim * key_bits(shape.head_dim) + shape.value_dim * value_bits(shape.value_dim))
        values += heads * (shape.head_dim + shape.value_dim)
    return bits / values


# What RotaCache does unless told otherwise; the table says it.
PAGE, TAIL, SINKS = 128, 128, 4


def rota_cache(model, codec):
    """A RotaCache, or the sentence in which rota.transformers refuses this model."""
    import rota
    from rota.transformers import RotaCache, refusal

    why = refusal(model)
    if why is not None:
        raise Refused(f"{codec.name}: {why}", code=4)
    try:
        return RotaCache(model.config, k=codec.k, v=codec.v, page=PAGE, tail=TAIL, sinks=SINKS)
    except (rota.Error, NotImplementedError) as error:
        raise Refused(f"{codec.name}: {error}", code=4) from error


def _format_bits(codec, side):
    import rota

    dense = {"f32": 32, "f16": 16, "bf16": 16}
    if codec in dense:
        return lambda dim: dense[codec]
    return lambda dim: rota.PageFormat(codec, side, dim, page=PAGE).bits_per_value


def stored_bits(shapes, codec):
    """Bits of a value in what is stored for good: of Rota's caches, in sealed pages."""
    if codec.simulated:
        k, v = (ggml.BITS[name.removesuffix(ROTATION)] for name in (codec.k, codec.v))
        return mean_bits(shapes, lambda dim: k, lambda dim: v)
    return mean_bits(shapes, _format_bits(codec.k, "keys"), _format_bits(codec.v, "values"))


def cache_bytes(shapes, codec, context):
    """Of one sequence of that many tokens; of Rota's caches all that they allocate, as `rota estimate` says it."""
    if codec.simulated:
        k, v = (ggml.BITS[name.removesuffix(ROTATION)] for name in (codec.k, codec.v))
        return plain_bytes(shapes, context, k, v)
    import rota

    groups, first = [], 0
    for shape in shapes:
        layers = list(range(first, first + shape.layers))
        first += shape.layers
        groups.append(
            rota.KvGroup(layers, shape.kv_heads, shape.head_dim, value_dim=shape.value_dim, k=codec.k, v=codec.v,
                         page=PAGE, tail=TAIL, sinks=SINKS, window=shape.window)
        )
    return rota.estimate(groups, max_tokens=context)["bytes"]


def sealed_share(shapes, tokens, chunk):
    """Of all keys that all queries saw, the part that was sealed. A page is, once all of it is older than the tail."""
    sealed = seen = 0
    for shape in shapes:
        heads = shape.layers * shape.kv_heads
        for position in range(tokens):
            begin = position - position % chunk  # sealing is done when a step begins
            end = max(0, begin - TAIL) // PAGE * PAGE
            first = 0 if shape.window is None else max(0, position + 1 - shape.window)
            sealed += heads * max(0, end - max(first, SINKS))
            seen += heads * (position + 1 - first)
    return sealed / seen
