#!/usr/bin/env python3
"""Makes the test vectors of `rope` with the models' own code, as transformers ships it.

    python3.11 -m venv venv && venv/bin/pip install torch==2.15.0 transformers==5.22.2 numpy==2.4.6
    venv/bin/python scripts/make_rope_vectors.py src/ops/rope/vectors

Each file holds one case: what is asked for in Rota's words ("rotary", "norm"), the positions, the input, and what the
model's code makes of it in f32. Only the llama3 factors are computed here, in f64 by the rule in Meta's reference code,
because GGUF files carry them so.
"""

import importlib
import json
import math
import pathlib
import sys

import torch
import transformers
from transformers import (
    Gemma3TextConfig, Gemma4TextConfig, Gemma4VisionConfig, Glm4Config, GptOssConfig, GPTNeoXConfig, LlamaConfig,
    Phi3Config, Qwen2VLTextConfig, Qwen2VLVisionConfig, Qwen3Config, Qwen3VLTextConfig,
)
from transformers.models.glm4v.configuration_glm4v import Glm4vTextConfig
from transformers.models.qwen3_5.configuration_qwen3_5 import Qwen3_5TextConfig

TOKENS = 4
WITHIN_CONTEXT = [0, 1, 77, 4095]
BEYOND_CONTEXT = [3, 4096, 30000, 131071]
TIME_HEIGHT_WIDTH = [[5, 5, 9, 40], [5, 17, 2, 300], [5, 3, 31, 7]]
HEIGHT_WIDTH = [[0, 3, 17, 40], [0, 29, 5, 63]]

CASES = {}


def case(function):
    CASES[function.__name__] = function
    return function


def model(name):
    return importlib.import_module(f"transformers.models.{name}.modeling_{name}")


def made_input(dim):
    """[token][dim], multiples of 1/16 from -4 to 4: exact in f32 and f16, and short as text."""
    index = torch.arange(TOKENS * dim, dtype=torch.int64)
    return ((index * 7919 + index * index * 31) % 129 - 64).to(torch.float32).reshape(TOKENS, dim) / 16


def position_ids(positions):
    """Text models take [batch][token], multimodal ones [axis][batch][token]."""
    return torch.tensor(positions) if len(positions) == 1 else torch.tensor(positions)[:, None, :]


def rotate(module, embedding, x, positions):
    cos, sin = embedding(x[None], position_ids(positions))
    return module.apply_rotary_pos_emb(x[None, None], x[None, None], cos, sin)[0][0, 0]


def rotated_by(embedding, config, rotary, positions):
    """The usual case: an embedding "module.Class" of a config with one head."""
    name, kind = embedding.split(".")
    module = model(name)
    x = made_input(getattr(config, "head_dim", None) or config.hidden_size)
    y = rotate(module, getattr(module, kind)(config), x, positions)
    return result(f"{kind}, {config.rope_parameters}", rotary, positions, x, y)


def result(source, rotary, positions, x, y, norm=None):
    return dict(source=source, rotary=rotary, positions=positions, x=x, y=y, norm=norm)


def contiguous(pairs, frequencies="shared"):
    return dict(pairs=pairs, order="contiguous", frequencies=frequencies)


def taking_turns(pairs):
    return dict(pairs=pairs, order="interleaved", frequencies="shared")


def llama_with(dim, positions, rope_parameters, rotary, **config):
    config = LlamaConfig(hidden_size=dim, num_attention_heads=1, rope_parameters=rope_parameters, **config)
    return rotated_by("llama.LlamaRotaryEmbedding", config, dict(pairing="halves", **rotary), positions)


@case
def llama():
    return llama_with(64, [WITHIN_CONTEXT], dict(rope_type="default", rope_theta=1e4), dict(theta=1e4))


@case
def linear():
    return llama_with(64, [WITHIN_CONTEXT], dict(rope_type="linear", rope_theta=1e4, factor=4.0),
                      dict(theta=1e4, interpolation=4))


@case
def llama3():
    dim, theta, factor, low, high, context = 128, 5e5, 8.0, 1.0, 4.0, 8192
    factors = []
    for i in range(dim // 2):
        wavelength = 2 * math.pi * theta ** (2 * i / dim)
        smooth = min(max((context / wavelength - low) / (high - low), 0), 1)
        factors.append(1 / ((1 - smooth) / factor + smooth))
    return llama_with(dim, [BEYOND_CONTEXT],
                      dict(rope_type="llama3", rope_theta=theta, factor=factor, low_freq_factor=low,
                           high_freq_factor=high, original_max_position_embeddings=context),
                      dict(theta=theta, factors=factors), max_position_embeddings=131072)


@case
def yarn():
    """As in Qwen2.5."""
    return llama_with(128, [BEYOND_CONTEXT],
                      dict(rope_type="yarn", rope_theta=1e6, factor=4.0, original_max_position_embeddings=32768),
                      dict(theta=1e6, yarn=dict(factor=4, original_context=32768)), max_position_embeddings=131072)


@case
def yarn_deepseek():
    """DeepSeek's numbers, where mscale and mscale_all_dim cancel, with other betas than usual."""
    return llama_with(64, [BEYOND_CONTEXT],
                      dict(rope_type="yarn", rope_theta=1e4, factor=40.0, original_max_position_embeddings=4096,
                           beta_fast=24, beta_slow=2, mscale=1.0, mscale_all_dim=1.0),
                      dict(theta=1e4, magnitude=1,
                           yarn=dict(factor=40, original_context=4096, beta_fast=24, beta_slow=2)),
                      max_position_embeddings=163840)


@case
def gpt_oss():
    """YaRN whose ramp is not rounded to pairs."""
    config = GptOssConfig(head_dim=64, max_position_embeddings=131072, rope_parameters=dict(
        rope_type="yarn", rope_theta=150000.0, factor=32.0, beta_fast=32.0, beta_slow=1.0, truncate=False,
        original_max_position_embeddings=4096))
    rotary = dict(pairing="halves", theta=150000.0, yarn=dict(factor=32, original_context=4096, ramp="exact"))
    return rotated_by("gpt_oss.GptOssRotaryEmbedding", config, rotary, [BEYOND_CONTEXT])


def phi3_with(positions, factors):
    module = model("phi3")
    config = Phi3Config(hidden_size=64, num_attention_heads=1, max_position_embeddings=131072,
                        original_max_position_embeddings=4096, rope_parameters=dict(
                            rope_type="longrope", rope_theta=1e4, partial_rotary_factor=0.75, factor=32.0,
                            short_factor=[1.0 + 0.05 * i for i in range(24)],
                            long_factor=[1.0 + 2.5 * i for i in range(24)], original_max_position_embeddings=4096))
    x = made_input(64)
    embedding = module.Phi3RotaryEmbedding(config)
    y = rotate(module, embedding, x, [positions])
    return result("Phi3RotaryEmbedding, longrope",
                  dict(pairing="halves", theta=1e4, rope_dim=48, factors=config.rope_parameters[factors],
                       magnitude=embedding.attention_scaling), [positions], x, y)


@case
def phi3_short():
    return phi3_with(WITHIN_CONTEXT, "short_factor")


@case
def phi3_long():
    return phi3_with(BEYOND_CONTEXT, "long_factor")


@case
def gpt_neox():
    """A quarter of the head."""
    config = GPTNeoXConfig(hidden_size=96, num_attention_heads=1, rope_parameters=dict(
        rope_type="default", rope_theta=1e4, partial_rotary_factor=0.25))
    rotary = dict(pairing="halves", theta=1e4, rope_dim=24)
    return rotated_by("gpt_neox.GPTNeoXRotaryEmbedding", config, rotary, [WITHIN_CONTEXT])


@case
def gptj():
    """16 of 40 coordinates, side by side."""
    module = model("gptj")
    x = made_input(40)
    table = module.create_sinusoidal_positions(4096, 16)[torch.tensor(WITHIN_CONTEXT)]
    sin, cos = torch.split(table[None], 8, dim=-1)
    turned = module.apply_rotary_pos_emb(x[None, :, None, :16], sin, cos)
    y = torch.cat([turned[0, :, 0], x[:, 16:]], dim=-1)
    return result("gptj apply_rotary_pos_emb", dict(pairing="interleaved", theta=1e4, rope_dim=16), [WITHIN_CONTEXT], x, y)


@case
def glm4():
    """Half of the head, side by side."""
    config = Glm4Config(hidden_size=64, num_attention_heads=1, head_dim=64, rope_parameters=dict(
        rope_type="default", rope_theta=1e4, partial_rotary_factor=0.5))
    rotary = dict(pairing="interleaved", theta=1e4, rope_dim=32)
    return rotated_by("glm4.Glm4RotaryEmbedding", config, rotary, [WITHIN_CONTEXT])


@case
def glm4v():
    """mrope over coordinates side by side."""
    config = Glm4vTextConfig(hidden_size=64, num_attention_heads=1, rope_parameters=dict(
        rope_type="default", rope_theta=1e4, partial_rotary_factor=0.5, mrope_section=[4, 6, 6]))
    rotary = dict(pairing="interleaved", theta=1e4, rope_dim=32, sections=contiguous([4, 6, 6]))
    return rotated_by("glm4v.Glm4vTextRotaryEmbedding", config, rotary, TIME_HEIGHT_WIDTH)


@case
def qwen2_vl():
    config = Qwen2VLTextConfig(hidden_size=128, num_attention_heads=1, rope_parameters=dict(
        rope_type="default", rope_theta=1e6, mrope_section=[16, 24, 24]))
    rotary = dict(pairing="halves", theta=1e6, sections=contiguous([16, 24, 24]))
    return rotated_by("qwen2_vl.Qwen2VLRotaryEmbedding", config, rotary, TIME_HEIGHT_WIDTH)


@case
def qwen3_vl():
    config = Qwen3VLTextConfig(hidden_size=128, num_attention_heads=1, head_dim=128, rope_parameters=dict(
        rope_type="default", rope_theta=5e6, mrope_section=[24, 20, 20]))
    rotary = dict(pairing="halves", theta=5e6, sections=taking_turns([24, 20, 20]))
    return rotated_by("qwen3_vl.Qwen3VLTextRotaryEmbedding", config, rotary, TIME_HEIGHT_WIDTH)


@case
def qwen3_5():
    """A quarter of the head."""
    config = Qwen3_5TextConfig(hidden_size=256, num_attention_heads=1, head_dim=256, rope_parameters=dict(
        rope_type="default", rope_theta=1e7, partial_rotary_factor=0.25, mrope_section=[11, 11, 10]))
    rotary = dict(pairing="halves", theta=1e7, rope_dim=64, sections=taking_turns([11, 11, 10]))
    return rotated_by("qwen3_5.Qwen3_5TextRotaryEmbedding", config, rotary, TIME_HEIGHT_WIDTH)


@case
def qwen2_vl_vision():
    module = model("qwen2_vl")
    x = made_input(80)
    cos, sin = module.Qwen2VLVisionRotaryEmbedding(Qwen2VLVisionConfig(embed_dim=80, num_heads=1))(
        x, torch.tensor(HEIGHT_WIDTH).T)
    y = module.apply_rotary_pos_emb_vision(x[:, None], x[:, None], cos, sin)[0][:, 0]
    return result("Qwen2VLVisionRotaryEmbedding",
                  dict(pairing="halves", theta=1e4, sections=contiguous([20, 20], "own")), HEIGHT_WIDTH, x, y)


@case
def gemma4_vision():
    module = model("gemma4")
    config = Gemma4VisionConfig(hidden_size=64, num_attention_heads=1, head_dim=64, rope_parameters=dict(
        rope_type="axial", rope_theta=100.0))
    x = made_input(64)
    ids = torch.tensor(HEIGHT_WIDTH).T[None]
    cos, sin = module.Gemma4VisionRotaryEmbedding(config)(x[None], ids)
    y = module.apply_multidimensional_rope(x[None, :, None], cos, sin, ids)[0, :, 0]
    return result("Gemma4VisionRotaryEmbedding, apply_multidimensional_rope",
                  dict(pairing="section_halves", theta=100.0, sections=contiguous([16, 16], "own")), HEIGHT_WIDTH, x, y)


@case
def gemma4_proportional():
    module = model("gemma4")
    config = Gemma4TextConfig(
        hidden_size=64, num_attention_heads=1, head_dim=64, global_head_dim=128, num_hidden_layers=2,
        layer_types=["sliding_attention", "full_attention"], rope_parameters=dict(
            sliding_attention=dict(rope_type="default", rope_theta=1e4),
            full_attention=dict(rope_type="proportional", rope_theta=1e6, partial_rotary_factor=0.25)))
    x = made_input(128)
    cos, sin = module.Gemma4TextRotaryEmbedding(config)(x[None], position_ids([WITHIN_CONTEXT]), "full_attention")
    y = module.apply_rotary_pos_emb(x[None, None], cos, sin)[0, 0]
    return result("Gemma4TextRotaryEmbedding, full_attention", dict(pairing="halves", theta=1e6, turning_pairs=16),
                  [WITHIN_CONTEXT], x, y)


def normed(norm, weight, x):
    norm.weight.copy_(weight)
    return norm(x)


@case
def qwen3_norm():
    module = model("qwen3")
    config = Qwen3Config(hidden_size=64, num_attention_heads=1, head_dim=64,
                         rope_parameters=dict(rope_type="default", rope_theta=1e6))
    x = made_input(64)
    weight = x[1] / 4
    heads = normed(module.Qwen3RMSNorm(64, eps=1e-6), weight, x)
    y = rotate(module, module.Qwen3RotaryEmbedding(config), heads, [WITHIN_CONTEXT])
    return result("Qwen3RMSNorm, Qwen3RotaryEmbedding", dict(pairing="halves", theta=1e6), [WITHIN_CONTEXT], x, y,
                  norm=dict(epsilon=1e-6, weight=weight.tolist()))


@case
def gemma3_norm():
    module = model("gemma3")
    config = Gemma3TextConfig(
        hidden_size=64, num_attention_heads=1, head_dim=64, num_hidden_layers=1, layer_types=["full_attention"],
        rope_parameters=dict(full_attention=dict(rope_type="linear", rope_theta=1e6, factor=8.0)))
    x = made_input(64)
    weight = x[1] / 4
    heads = normed(module.Gemma3RMSNorm(64, eps=1e-6), weight, x)
    cos, sin = module.Gemma3RotaryEmbedding(config)(x[None], position_ids([WITHIN_CONTEXT]), "full_attention")
    y = module.apply_rotary_pos_emb(heads[None, None], heads[None, None], cos, sin)[0][0, 0]
    return result("Gemma3RMSNorm, Gemma3RotaryEmbedding", dict(pairing="halves", theta=1e6, interpolation=8),
                  [WITHIN_CONTEXT], x, y, norm=dict(epsilon=1e-6, weight=weight.tolist(), weight_offset=1))


def write(path, made):
    assert made["y"].shape == made["x"].shape and made["y"].dtype == torch.float32
    document = dict(made_by=f"scripts/make_rope_vectors.py, transformers {transformers.__version__}, "
                            f"torch {torch.__version__.split('+')[0]}", **made)
    document["x"] = made["x"].tolist()
    document["y"] = [[float(f"{value:.9g}") for value in row] for row in made["y"].tolist()]
    if document["norm"] is None:
        del document["norm"]
    path.write_text(json.dumps(document).replace("], [", "],\n[").replace(', "', ',\n"') + "\n")


def main():
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    with torch.no_grad():
        for name, make in CASES.items():
            write(folder / f"{name}.json", make())
            print(name)


if __name__ == "__main__":
    main()
