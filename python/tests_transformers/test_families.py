"""Which families of transformers are served, and that the others are refused by name before they generate."""

import pytest
import torch
import transformers
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from rota._families import class_refusal
from rota.transformers import enable


def causal_models():
    for kind in sorted(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES):
        name = MODEL_FOR_CAUSAL_LM_MAPPING_NAMES[kind]
        model = getattr(transformers, name if isinstance(name, str) else name[0], None)
        if model is not None and model.__module__ != "transformers.utils.dummy_pt_objects":
            yield kind, model


def verdicts():
    """What the code of each family's attention says."""
    found = {}
    for kind, model in causal_models():
        module = __import__(model.__module__, fromlist=["*"])
        classes = [c for c in vars(module).values() if isinstance(c, type) and issubclass(c, torch.nn.Module)]
        found[kind] = {why for why in map(class_refusal, classes) if why is not None}
    return found


def test_most_families_are_served():
    served = {kind for kind, whys in verdicts().items() if whys == {""}}
    print(f"{len(served)} of {len(verdicts())} families: {', '.join(sorted(served))}")
    assert {"llama", "qwen2", "qwen3", "mistral", "mixtral", "gemma", "gemma2", "gemma3_text", "phi3", "glm4", "gpt_oss",
            "granite", "olmo2", "smollm3", "starcoder2", "cohere", "qwen3_moe"} <= served  # fmt: skip
    assert len(served) > 60


@pytest.mark.parametrize(
    "config, why",
    [
        ("DeepseekV3Config", "changes keys or values after"),
        ("MambaConfig", "layers of type"),
        ("Llama4TextConfig", "chunked_attention"),
        ("BartConfig", "bart has no attention"),
        ("BloomConfig", "Bloom"),
    ],
)
def test_others_are_refused_by_name(config, why):
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(getattr(transformers, config)())
    with pytest.raises(NotImplementedError, match=why):
        enable(model)
    assert model.config._attn_implementation != "rota"


def test_encoders_with_decoders_are_refused_by_name():
    with torch.device("meta"):
        model = transformers.T5ForConditionalGeneration(transformers.T5Config())
    with pytest.raises(NotImplementedError, match="t5 is an encoder and a decoder"):
        enable(model)
