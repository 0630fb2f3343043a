#!/usr/bin/env python3
"""Attention of one query token, and of 512, by PyTorch on a CPU, beside `rota bench attend` of the same shapes.

    python3 -m venv peers && peers/bin/pip install torch numpy
    peers/bin/python bench/peers/torch_attend.py --rota build/release/tools/rota/rota

Grouped heads are folded into query rows, which is the fastest way to ask torch for them; none is masked, while a token
of Rota's does not see those after it: a sixteenth of the products. Keys and values go round through
more memory than caches hold; medians, and the distance between the quarters of the samples."""

import argparse
import json
import statistics
import subprocess
import time

import torch
import torch.nn.functional as functional


def torch_times(keys, group, rows, threads, seconds, dtype, kv_heads=8, dim=128, rotate=512 << 20):
    torch.set_num_threads(threads)
    bytes_each = 2 * kv_heads * keys * dim * torch.finfo(dtype).bits // 8
    pools = [
        [torch.randn(1, kv_heads, keys, dim, dtype=torch.float32).to(dtype) for _ in range(2)]
        for _ in range(max(2, -(-rotate // bytes_each)))
    ]
    query = torch.randn(1, kv_heads, group * rows, dim, dtype=torch.float32).to(dtype)
    times = []
    end = time.perf_counter() + seconds
    turn = 0
    with torch.inference_mode():
        while time.perf_counter() < end or len(times) < 9:
            k, v = pools[turn % len(pools)]
            turn += 1
            begin = time.perf_counter()
            functional.scaled_dot_product_attention(query, k, v)
            times.append(1e3 * (time.perf_counter() - begin))
    return times[len(pools) :] or times


def rota_rows(tool, keys, group, rows, threads, seconds):
    codecs = "f16,turbo8,turbo4"
    said = subprocess.run(
        [tool, "bench", "attend", "-ctk", codecs, "-ctv", codecs, "-c", str(keys), "-t", str(threads), "--group", str(group),
         "--rows", str(rows), "--seconds", str(seconds), "-o", "json"],
        check=True, capture_output=True, text=True)
    return {row["k"]: row for row in json.loads(said.stdout)["rows"]}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rota", required=True, help="the tool")
    parser.add_argument("--seconds", type=float, default=8)
    asked = parser.parse_args()
    print(f"torch {torch.__version__}, D 128, 8 KV heads, ms of one call")
    print("| keys | group | query tokens | threads | torch f16 | torch bf16 | spread | rota f16 | rota turbo8 | rota turbo4 | turbo4 is faster by |")
    print("|" + "---:|" * 11)
    for keys, group, rows, threads in [(16384, 1, 1, 1), (16384, 4, 1, 1), (16384, 8, 1, 1), (16384, 4, 1, 2), (65536, 4, 1, 2),
                                       (4096, 4, 512, 2)]:
        medians, spreads = [], []
        for dtype in torch.float16, torch.bfloat16:
            low, median, high = statistics.quantiles(torch_times(keys, group, rows, threads, asked.seconds, dtype), n=4)
            medians.append(median)
            spreads.append(100 * (high - low) / median)
        rota = rota_rows(asked.rota, keys, group, rows, threads, asked.seconds)
        ms = {name: row["median_ms"] for name, row in rota.items()}
        print(f"| {keys} | {group} | {rows} | {threads} | {medians[0]:.2f} | {medians[1]:.2f} | {max(spreads):.0f} % | {ms['f16']:.2f} "
              f"| {ms['turbo8']:.2f} | {ms['turbo4']:.2f} | {min(medians) / ms['turbo4']:.1f} |", flush=True)


if __name__ == "__main__":
    main()
