#!/usr/bin/env python3
"""Makes the test vectors of `rope` with the models' own code, as transformers ships it.

    python3 -m venv venv && venv/bin/pip install torch==2.15.0 transformers==5.22.2
    venv/bin/python scripts/make_rope_vectors.py src/ops/rope/vectors

Each file holds one case: what was asked for in Rota's words ("rotary", "norm"), the positions, the input, and what the
model's code made of it in f32. The llama3 factors are computed here from the rule in Meta's reference code, in f64, as
GGUF files carry them; everything else that is expected comes from transformers.
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
from transformers.models.qwen3_5.configuration_qwen3_5 import Qwen3_5TextConfig

TOKENS = 4


def model(name):
    return importlib.import_module(f"transformers.models.{name}.modeling_{name}")


def made_input(dim):
    """[token][dim], multiples of 1/16 from -4 to 4: exact in f32 and f16, and short as text."""
    index = torch.arange(TOKENS * dim, dtype=torch.int64)
    return ((index * 7919 + index * index * 31) % 129 - 64).to(torch.float32).reshape(TOKENS, dim) / 16


def halves(module, embedding, x, position_ids):
    cos, sin = embedding(x[None], position_ids)
    q, _ = module.apply_rotary_pos_emb(x[None, None], x[None, None], cos, sin)
    return q[0, 0]


def text(positions):
    return torch.tensor([positions])


def grid(positions):
    """[axis][token] as the multimodal models take it: [axis][batch][token]."""
    return torch.tensor(positions)[:, None, :]


def llama3_factors(dim, theta, factor, low, high, context):
    factors = []
    for i in range(dim // 2):
        wavelength = 2 * math.pi * theta ** (2 * i / dim)
        if wavelength < context / high:
            factors.append(1.0)
        elif wavelength > context / low:
            factors.append(factor)
        else:
            smooth = (context / wavelength - low) / (high - low)
            factors.append(1 / ((1 - smooth) / factor + smooth))
    return factors


SHORT = [0, 1, 77, 4095]
LONG = [3, 4096, 30000, 131071]
GRID3 = [[5, 5, 9, 40], [5, 17, 2, 300], [5, 3, 31, 7]]
GRID2 = [[0, 3, 17, 40], [0, 29, 5, 63]]


def cases():
    m = model("llama")
    config = LlamaConfig(hidden_size=64, num_attention_heads=1, rope_parameters={"rope_type": "default", "rope_theta": 1e4})
    yield dict(name="llama", source="LlamaRotaryEmbedding", dim=64, positions=[SHORT],
               rotary=dict(pairing="halves", theta=1e4),
               run=lambda x: halves(m, m.LlamaRotaryEmbedding(config), x, text(SHORT)))

    scaling = dict(rope_type="llama3", rope_theta=5e5, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                   original_max_position_embeddings=8192)
    llama3 = LlamaConfig(hidden_size=128, num_attention_heads=1, max_position_embeddings=131072, rope_parameters=scaling)
    yield dict(name="llama3", source="LlamaRotaryEmbedding, llama3", dim=128, positions=[LONG],
               rotary=dict(pairing="halves", theta=5e5, factors=llama3_factors(128, 5e5, 8, 1, 4, 8192)),
               run=lambda x: halves(m, m.LlamaRotaryEmbedding(llama3), x, text(LONG)))

    linear = LlamaConfig(hidden_size=64, num_attention_heads=1,
                         rope_parameters=dict(rope_type="linear", rope_theta=1e4, factor=4.0))
    yield dict(name="linear", source="LlamaRotaryEmbedding, linear", dim=64, positions=[SHORT],
               rotary=dict(pairing="halves", theta=1e4, interpolation=4),
               run=lambda x: halves(m, m.LlamaRotaryEmbedding(linear), x, text(SHORT)))

    yarn = LlamaConfig(hidden_size=128, num_attention_heads=1, max_position_embeddings=131072, rope_parameters=dict(
        rope_type="yarn", rope_theta=1e6, factor=4.0, original_max_position_embeddings=32768))
    yield dict(name="yarn", source="LlamaRotaryEmbedding, yarn as in Qwen2.5", dim=128, positions=[LONG],
               rotary=dict(pairing="halves", theta=1e6, interpolation=4, yarn=dict(original_context=32768)),
               run=lambda x: halves(m, m.LlamaRotaryEmbedding(yarn), x, text(LONG)))

    o = model("gpt_oss")
    oss = GptOssConfig(head_dim=64, max_position_embeddings=131072, rope_parameters=dict(
        rope_type="yarn", rope_theta=150000.0, factor=32.0, beta_fast=32.0, beta_slow=1.0, truncate=False,
        original_max_position_embeddings=4096))
    def run_oss(x):
        cos, sin = o.GptOssRotaryEmbedding(oss)(x[None], text(LONG))
        return o.apply_rotary_pos_emb(x[None, None], x[None, None], cos, sin)[0][0, 0]
    yield dict(name="gpt_oss", source="GptOssRotaryEmbedding, yarn without rounding", dim=64, positions=[LONG],
               rotary=dict(pairing="halves", theta=150000.0, interpolation=32,
                           yarn=dict(original_context=4096, ramp="exact")), run=run_oss)

    n = model("gpt_neox")
    neox = GPTNeoXConfig(hidden_size=96, num_attention_heads=1, rope_parameters=dict(
        rope_type="default", rope_theta=1e4, partial_rotary_factor=0.25))
    yield dict(name="gpt_neox", source="GPTNeoXRotaryEmbedding, a quarter of the head", dim=96, positions=[SHORT],
               rotary=dict(pairing="halves", theta=1e4, rope_dim=24),
               run=lambda x: halves(n, n.GPTNeoXRotaryEmbedding(neox), x, text(SHORT)))

    j = model("gptj")
    def run_gptj(x):
        table = j.create_sinusoidal_positions(4096, 16)[torch.tensor(SHORT)]
        sin, cos = torch.split(table[None], 8, dim=-1)
        turned = j.apply_rotary_pos_emb(x[None, :, None, :16], sin, cos)
        return torch.cat([turned[0, :, 0], x[:, 16:]], dim=-1)
    yield dict(name="gptj", source="gptj apply_rotary_pos_emb, rotary_dim 16", dim=40, positions=[SHORT],
               rotary=dict(pairing="interleaved", theta=1e4, rope_dim=16), run=run_gptj)

    g = model("glm4")
    glm = Glm4Config(hidden_size=64, num_attention_heads=1, head_dim=64, rope_parameters=dict(
        rope_type="default", rope_theta=1e4, partial_rotary_factor=0.5))
    yield dict(name="glm4", source="Glm4RotaryEmbedding, half of the head", dim=64, positions=[SHORT],
               rotary=dict(pairing="interleaved", theta=1e4, rope_dim=32),
               run=lambda x: halves(g, g.Glm4RotaryEmbedding(glm), x, text(SHORT)))

    p = model("phi3")
    short_factor = [1.0 + 0.05 * i for i in range(24)]
    phi = Phi3Config(hidden_size=64, num_attention_heads=1, max_position_embeddings=131072,
                     original_max_position_embeddings=4096, rope_parameters=dict(
                         rope_type="longrope", rope_theta=1e4, partial_rotary_factor=0.75, short_factor=short_factor,
                         long_factor=[1.0 + 2.5 * i for i in range(24)], original_max_position_embeddings=4096))
    def run_phi(x):
        embedding = p.Phi3RotaryEmbedding(phi)
        cos, sin = embedding(x[None], text(SHORT))
        return p.apply_rotary_pos_emb(x[None, None], x[None, None], cos, sin)[0][0, 0]
    yield dict(name="phi3", source="Phi3RotaryEmbedding, longrope within the original context", dim=64, positions=[SHORT],
               rotary=dict(pairing="halves", theta=1e4, rope_dim=48, factors=short_factor,
                           magnitude=math.sqrt(1 + math.log(32) / math.log(4096))), run=run_phi)

    v = model("qwen2_vl")
    mrope = Qwen2VLTextConfig(hidden_size=128, num_attention_heads=1, rope_parameters=dict(
        rope_type="default", rope_theta=1e6, mrope_section=[16, 24, 24]))
    yield dict(name="qwen2_vl", source="Qwen2VLRotaryEmbedding, mrope", dim=128, positions=GRID3,
               rotary=dict(pairing="halves", theta=1e6, sections=dict(pairs=[16, 24, 24])),
               run=lambda x: halves(v, v.Qwen2VLRotaryEmbedding(mrope), x, grid(GRID3)))

    w = model("qwen3_vl")
    imrope = Qwen3VLTextConfig(hidden_size=128, num_attention_heads=1, head_dim=128, rope_parameters=dict(
        rope_type="default", rope_theta=5e6, mrope_section=[24, 20, 20]))
    yield dict(name="qwen3_vl", source="Qwen3VLTextRotaryEmbedding, interleaved mrope", dim=128, positions=GRID3,
               rotary=dict(pairing="halves", theta=5e6, sections=dict(pairs=[24, 20, 20], order="interleaved")),
               run=lambda x: halves(w, w.Qwen3VLTextRotaryEmbedding(imrope), x, grid(GRID3)))

    f = model("qwen3_5")
    partial = Qwen3_5TextConfig(hidden_size=256, num_attention_heads=1, head_dim=256, rope_parameters=dict(
        rope_type="default", rope_theta=1e7, partial_rotary_factor=0.25, mrope_section=[11, 11, 10]))
    yield dict(name="qwen3_5", source="Qwen3_5TextRotaryEmbedding, a quarter of the head, interleaved mrope", dim=256,
               positions=GRID3, rotary=dict(pairing="halves", theta=1e7, rope_dim=64,
                                            sections=dict(pairs=[11, 11, 10], order="interleaved")),
               run=lambda x: halves(f, f.Qwen3_5TextRotaryEmbedding(partial), x, grid(GRID3)))

    vision = Qwen2VLVisionConfig(embed_dim=80, num_heads=1)
    def run_vision(x):
        embedding = v.Qwen2VLVisionRotaryEmbedding(vision)
        cos, sin = embedding(x, torch.tensor(GRID2).T)
        return v.apply_rotary_pos_emb_vision(x[:, None], x[:, None], cos, sin)[0][:, 0]
    yield dict(name="qwen2_vl_vision", source="Qwen2VLVisionRotaryEmbedding", dim=80, positions=GRID2,
               rotary=dict(pairing="halves", theta=1e4, sections=dict(pairs=[20, 20], frequencies="own")),
               run=run_vision)

    a = model("gemma4")
    gemma_vision = Gemma4VisionConfig(hidden_size=64, num_attention_heads=1, head_dim=64, rope_parameters=dict(
        rope_type="axial", rope_theta=100.0))
    def run_gemma_vision(x):
        ids = torch.tensor(GRID2).T[None]
        cos, sin = a.Gemma4VisionRotaryEmbedding(gemma_vision)(x[None], ids)
        return a.apply_multidimensional_rope(x[None, :, None], cos, sin, ids)[0, :, 0]
    yield dict(name="gemma4_vision", source="Gemma4VisionRotaryEmbedding, apply_multidimensional_rope", dim=64,
               positions=GRID2, rotary=dict(pairing="section_halves", theta=100.0,
                                            sections=dict(pairs=[16, 16], frequencies="own")), run=run_gemma_vision)

    gemma_text = Gemma4TextConfig(hidden_size=64, num_attention_heads=1, head_dim=64, global_head_dim=128,
                                  layer_types=["sliding_attention", "full_attention"], num_hidden_layers=2,
                                  rope_parameters=dict(
                                      sliding_attention=dict(rope_type="default", rope_theta=1e4),
                                      full_attention=dict(rope_type="proportional", rope_theta=1e6,
                                                          partial_rotary_factor=0.25)))
    def run_gemma_text(x):
        cos, sin = a.Gemma4TextRotaryEmbedding(gemma_text)(x[None], text(SHORT), "full_attention")
        return a.apply_rotary_pos_emb(x[None, None], cos, sin)[0, 0]
    yield dict(name="gemma4_proportional", source="Gemma4TextRotaryEmbedding, full_attention", dim=128, positions=[SHORT],
               rotary=dict(pairing="halves", theta=1e6, turning_pairs=16), run=run_gemma_text)

    q = model("qwen3")
    qwen = Qwen3Config(hidden_size=64, num_attention_heads=1, head_dim=64,
                       rope_parameters=dict(rope_type="default", rope_theta=1e6))
    weight = made_input(64)[1] / 4
    def run_qwen3(x):
        norm = q.Qwen3RMSNorm(64, eps=1e-6)
        with torch.no_grad():
            norm.weight.copy_(weight)
            return halves(q, q.Qwen3RotaryEmbedding(qwen), norm(x), text(SHORT))
    yield dict(name="qwen3_norm", source="Qwen3RMSNorm, Qwen3RotaryEmbedding", dim=64, positions=[SHORT],
               rotary=dict(pairing="halves", theta=1e6), norm=dict(epsilon=1e-6, weight=weight.tolist()), run=run_qwen3)

    e = model("gemma3")
    gemma3 = Gemma3TextConfig(hidden_size=64, num_attention_heads=1, head_dim=64, num_hidden_layers=1,
                              layer_types=["full_attention"],
                              rope_parameters=dict(full_attention=dict(rope_type="linear", rope_theta=1e6, factor=8.0)))
    def run_gemma3(x):
        norm = e.Gemma3RMSNorm(64, eps=1e-6)
        with torch.no_grad():
            norm.weight.copy_(weight)
            cos, sin = e.Gemma3RotaryEmbedding(gemma3)(x[None], text(SHORT), "full_attention")
            return e.apply_rotary_pos_emb(norm(x)[None, None], norm(x)[None, None], cos, sin)[0][0, 0]
    yield dict(name="gemma3_norm", source="Gemma3RMSNorm, Gemma3RotaryEmbedding", dim=64, positions=[SHORT],
               rotary=dict(pairing="halves", theta=1e6, interpolation=8),
               norm=dict(epsilon=1e-6, weight=weight.tolist(), weight_offset=1), run=run_gemma3)


def main():
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for case in cases():
        x = made_input(case["dim"])
        with torch.no_grad():
            y = case["run"](x.clone())
        assert y.shape == x.shape and y.dtype == torch.float32
        document = dict(
            made_by=f"scripts/make_rope_vectors.py with transformers {transformers.__version__}, torch "
                    f"{torch.__version__.split('+')[0]}",
            source=case["source"], rotary=case["rotary"], positions=case["positions"], x=x.tolist(),
            y=[[float(f"{value:.9g}") for value in row] for row in y.tolist()])
        if "norm" in case:
            document["norm"] = case["norm"]
        lines = json.dumps(document, indent=None).replace('], [', '],\n[').replace(', "', ',\n"')
        (folder / f"{case['name']}.json").write_text(lines + "\n")
        print(case["name"])


if __name__ == "__main__":
    main()
