"""Which attention a model computes by itself, and a look at what goes into and comes out of it."""

import contextlib
import sys

from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from rota._families import set_implementation


def own_attention(model):
    """What computes this model's attention exactly. sdpa knows no soft cap, and no logits of sinks."""
    config = model.config.get_text_config(decoder=True)
    capped = getattr(config, "attn_logit_softcapping", None) is not None
    return "sdpa" if model._supports_sdpa and not capped else "eager"


def attention_function(implementation, module):
    """The function that transformers would call for this module: eager ones stand beside it, unregistered."""
    if implementation == "eager" and implementation not in ALL_ATTENTION_FUNCTIONS:
        return sys.modules[type(module).__module__].eager_attention_forward
    return ALL_ATTENTION_FUNCTIONS[implementation]


@contextlib.contextmanager
def watched(implementation, see):
    """Inside it, each call of that attention also calls see(module, query, key, value, output, options)."""
    registered = ALL_ATTENTION_FUNCTIONS.get(implementation)

    def attention(module, query, key, value, attention_mask, **options):
        function = registered or sys.modules[type(module).__module__].eager_attention_forward
        output, weights = function(module, query, key, value, attention_mask, **options)
        see(module, query, key, value, output, options)
        return output, weights

    ALL_ATTENTION_FUNCTIONS[implementation] = attention
    try:
        yield
    finally:
        del ALL_ATTENTION_FUNCTIONS[implementation]
        if registered is not None and ALL_ATTENTION_FUNCTIONS.get(implementation) is not registered:
            ALL_ATTENTION_FUNCTIONS[implementation] = registered


@contextlib.contextmanager
def implementation_kept(model):
    """After it, the model has the attention that it had before."""
    before = model.config.get_text_config(decoder=True)._attn_implementation
    try:
        yield
    finally:
        set_implementation(model, before)
