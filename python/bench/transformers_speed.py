"""Time per token of a model with SmolLM2's shape: Rota's cache beside transformers' own with sdpa, by turns.

    python transformers_speed.py [--tokens 300,2048,6000] [--codec turbo4] [--turns 30] [--threads 2]

Weights are random: they do not change the time. Prints medians and quartiles, and exits with 1 where the promise of
docs/python.md does not hold.
"""

import argparse
import statistics
import sys
import time

import torch
import transformers

import rota
import rota.transformers

# How much faster a token has to come, by the length of its context.
PROMISED = {300: 1 / 1.05, 6000: 1.5}


def make_model():
    config = transformers.LlamaConfig(vocab_size=49152, hidden_size=576, intermediate_size=1536, num_hidden_layers=30,
                                      num_attention_heads=9, num_key_value_heads=3, head_dim=64,
                                      max_position_embeddings=8192)  # fmt: skip
    torch.manual_seed(0)
    return transformers.LlamaForCausalLM(config).eval()


def forward(model, implementation, cache, ids):
    model.set_attn_implementation(implementation)
    begin = time.perf_counter()
    model(input_ids=ids, past_key_values=cache, use_cache=True, logits_to_keep=1)
    return time.perf_counter() - begin


def measure(model, tokens, codec, turns):
    caches = {
        "sdpa": transformers.DynamicCache(config=model.config),
        "rota": rota.transformers.RotaCache(model.config, k=codec, v=codec),
    }
    for begin in range(0, tokens, 512):
        ids = torch.randint(0, 49152, (1, min(512, tokens - begin)))
        for name, cache in caches.items():
            forward(model, name, cache, ids)
    times = {name: [] for name in caches}
    for _ in range(turns):
        for name, cache in caches.items():
            times[name].append(forward(model, name, cache, torch.randint(0, 49152, (1, 1))))
    return times


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", default="300,2048,6000")
    parser.add_argument("--codec", default="turbo4")
    parser.add_argument("--turns", type=int, default=30)
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    model, held = make_model(), True
    print(f"{rota.default_device().name}, {arguments.threads} threads, torch {torch.__version__}, "
          f"transformers {transformers.__version__}, {arguments.codec}")  # fmt: skip
    with torch.no_grad():
        for tokens in map(int, arguments.tokens.split(",")):
            times = measure(model, tokens, arguments.codec, arguments.turns)
            text = ", ".join(
                f"{name} {statistics.median(t) * 1e3:.1f} ms ({statistics.quantiles(t)[0] * 1e3:.1f} to "
                f"{statistics.quantiles(t)[2] * 1e3:.1f})"
                for name, t in times.items()
            )
            ratio = statistics.median(times["sdpa"]) / statistics.median(times["rota"])
            wanted = PROMISED.get(tokens, 0)
            held &= ratio >= wanted
            print(f"{tokens:5} tokens: {text}; {ratio:.2f} times as fast" + (f", wanted {wanted:.2f}" if wanted else ""))
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
