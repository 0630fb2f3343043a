#!/usr/bin/env python3
"""Decode attention by PyTorch on a CPU, beside `rota bench attend` of the same shapes.

    python3 -m venv peers && peers/bin/pip install torch numpy
    peers/bin/python bench/peers/torch_attend.py --rota build/release/tools/rota/rota

Grouped heads are folded into query rows, which is the fastest way to ask torch for them. Keys and values go round through
more memory than caches hold; medians, and the distance between the quarters of the samples."""

import argparse
import json
import statistics
import subprocess
import time

import torch
import torch.nn.functional as functional


def torch_times(keys, group, threads, seconds, dtype, kv_heads=8, dim=128, rotate=512 << 20):
    torch.set_num_threads(threads)
    bytes_each = 2 * kv_heads * keys * dim * torch.finfo(dtype).bits // 8
    pools = [
        [torch.randn(1, kv_heads, keys, dim, dtype=torch.float32).to(dtype) for _ in range(2)]
        for _ in range(max(2, -(-rotate // bytes_each)))
    ]
    query = torch.randn(1, kv_heads, group, dim, dtype=torch.float32).to(dtype)
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


def rota_rows(tool, keys, group, threads, seconds):
    codecs = "f16,turbo8,turbo4"
    said = subprocess.run(
        [tool, "bench", "attend", "-ctk", codecs, "-ctv", codecs, "-c", str(keys), "-t", str(threads), "--group", str(group),
         "--seconds", str(seconds), "-o", "json"],
        check=True, capture_output=True, text=True)
    return {row["k"]: row for row in json.loads(said.stdout)["rows"]}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rota", required=True, help="the tool")
    parser.add_argument("--seconds", type=float, default=8)
    asked = parser.parse_args()
    print(f"torch {torch.__version__}, D 128, 8 KV heads, ms of one call")
    print("| keys | group | threads | torch f16 | spread | rota f16 | rota turbo8 | rota turbo4 | turbo4 is faster by |")
    print("|---:|---:|---:|---:|---:|---:|---:|---:|---:|")
    for keys, group, threads in [(16384, 1, 1), (16384, 4, 1), (16384, 8, 1), (16384, 4, 2), (65536, 4, 2)]:
        times = torch_times(keys, group, threads, asked.seconds, torch.float16)
        low, median, high = statistics.quantiles(times, n=4)
        rota = rota_rows(asked.rota, keys, group, threads, asked.seconds)
        ms = {name: row["median_ms"] for name, row in rota.items()}
        print(f"| {keys} | {group} | {threads} | {median:.2f} | {100 * (high - low) / median:.0f} % | {ms['f16']:.2f} | {ms['turbo8']:.2f} "
              f"| {ms['turbo4']:.2f} | {median / ms['turbo4']:.1f} |", flush=True)


if __name__ == "__main__":
    main()
