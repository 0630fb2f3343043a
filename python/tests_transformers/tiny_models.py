"""Random models of ten families, small enough to generate in a second."""

import torch
import transformers

_BASE = dict(vocab_size=128, hidden_size=64, intermediate_size=96, num_hidden_layers=4, num_attention_heads=4,
             num_key_value_heads=2, head_dim=16, max_position_embeddings=512, pad_token_id=0, bos_token_id=1,
             eos_token_id=None, initializer_range=0.2)  # fmt: skip

FAMILIES = {
    "llama": ("Llama", {}),
    "qwen2, windows in half of the layers": ("Qwen2", dict(use_sliding_window=True, sliding_window=8, max_window_layers=2)),
    "qwen3": ("Qwen3", {}),
    "mistral, window": ("Mistral", dict(sliding_window=8)),
    "gemma2, window, soft cap": ("Gemma2", dict(sliding_window=8, query_pre_attn_scalar=16, attn_logit_softcapping=2.0)),
    "gemma3, window": (
        "Gemma3",
        dict(sliding_window=8, query_pre_attn_scalar=16, layer_types=["sliding_attention", "full_attention"] * 2),
    ),
    "gpt-oss, window, sink logits": ("GptOss", dict(sliding_window=8, num_local_experts=4, num_experts_per_tok=2)),
    "phi3": ("Phi3", {}),
    "glm4": ("Glm4", dict(partial_rotary_factor=0.5)),
    "gemma4, window, shared layers": (
        "Gemma4",
        dict(sliding_window=8, num_kv_shared_layers=2, num_hidden_layers=6, vocab_size_per_layer_input=128,
             hidden_size_per_layer_input=16, global_head_dim=32,
             layer_types=["sliding_attention", "full_attention"] * 3),
    ),
}  # fmt: skip


def tiny(family, seed=0, **changes):
    """`changes` are of the configuration, where the family has such a setting."""
    name, extra = FAMILIES[family]
    extra = extra | {setting: value for setting, value in changes.items() if setting in extra}
    torch.manual_seed(seed)
    config_class = getattr(transformers, name + "TextConfig", None) or getattr(transformers, name + "Config")
    model = getattr(transformers, name + "ForCausalLM")(config_class(**{**_BASE, **extra})).eval()
    model.generation_config.pad_token_id = 0
    return model


def random_ids(rows, columns, seed=1):
    return torch.randint(2, 128, (rows, columns), generator=torch.Generator().manual_seed(seed))


def one_row(columns=30):
    ids = random_ids(1, columns)
    return dict(input_ids=ids, attention_mask=torch.ones_like(ids))


def left_padded(columns=30, padding=(0, 19, 5)):
    ids = random_ids(len(padding), columns)
    mask = torch.ones_like(ids)
    for row, count in enumerate(padding):
        ids[row, :count], mask[row, :count] = 0, 0
    return dict(input_ids=ids, attention_mask=mask)
