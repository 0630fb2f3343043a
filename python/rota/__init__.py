"""Rota keeps a language model's KV cache at 2 to 8 bits per value, and attends to it as it is stored."""

from rota._rota import (
    CODECS,
    Device,
    DeviceInfo,
    Error,
    KvCache,
    KvGroup,
    PageFormat,
    PageStore,
    PrefixStore,
    Sequence,
    Step,
    Turbo,
    __version__,
    attend,
    backends,
    default_device,
    estimate,
    rope,
    seal,
    unseal,
)

__all__ = [
    "CODECS", "Device", "DeviceInfo", "Error", "KvCache", "KvGroup", "PageFormat", "PageStore", "PrefixStore",
    "Sequence", "Step", "Turbo", "__version__", "attend", "backends", "capture", "default_device", "estimate", "rope",
    "seal", "unseal",
]


def capture(model, text, path="captures", **options):
    """Writes a model's queries, keys and values for `rota distort`: docs/eval.md. Needs transformers."""
    from rota._capture import capture as run

    return run(model, text, path, **options)
