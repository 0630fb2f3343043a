"""How fast rota.lmcache stores and restores chunks, beside torch's own copy of the same chunk.

python python/bench/lmcache_speed.py [--repeats N] [--codecs turbo4,turbo8] [--scales search,least_squares,rms]

GB/s of the chunk's dense bytes, f16, over rounds in which all cases take turns: the median round, the best one, and the
median of GB per second of CPU time of all threads, which other programs on the machine disturb less.
"""

import argparse
import statistics
import time

import torch
from lmcache.v1.distributed.api import MemoryLayoutDesc, ObjectKey
from lmcache.v1.memory_allocators.tensor_memory_allocator import TensorMemoryAllocator

import rota
from rota.lmcache import Chunks, Options, RotaDeserializer, RotaSerializer

SHAPES = {  # layers, tokens, heads, dim
    "Llama 8B": (32, 256, 8, 128),
    "SmolLM2 135M": (30, 256, 3, 64),
}
KEY = ObjectKey(chunk_hash=bytes(32), model_name="model", kv_rank=0)
# Chunks in turn: more bytes than caches hold.
WORKING_SET_BYTES = 400 << 20


def clocks():
    return time.perf_counter(), time.process_time()


class Case:
    """One way to store chunks of one shape, and the chunks."""

    def __init__(self, name, chunks, options):
        self.name, self.chunks, self.times = name, chunks, []
        plan = Chunks(Options.read(options))
        self.serializer, self.deserializer = RotaSerializer(plan), RotaDeserializer(plan)
        layout = MemoryLayoutDesc(shapes=chunks.objects[0].get_shapes(), dtypes=chunks.objects[0].get_dtypes())
        self.bytes = self.serializer.estimate_serialized_size(layout)
        self.stored = chunks.allocate([self.bytes], torch.uint8)
        self.run(chunks.objects[0], chunks.objects[1])

    def run(self, source, target):
        began = clocks()
        self.serializer.serialize(source, self.stored, KEY)
        between = clocks()
        self.deserializer.deserialize(self.stored, target, KEY)
        ended = clocks()
        return [two - one for one, two in (*zip(began, between), *zip(between, ended))]


class Copy:
    """torch's copy, the limit of what touches each number once."""

    bytes = None

    def __init__(self, chunks):
        self.name, self.chunks, self.times = "torch copy", chunks, []

    def run(self, source, target):
        began = clocks()
        target.tensor.copy_(source.tensor)
        return 2 * [two - one for one, two in zip(began, clocks())]


class SharedChunks:
    def __init__(self, shape):
        layers, tokens, heads, dim = shape
        chunk_bytes = 2 * layers * tokens * heads * dim * 2
        self.count = max(4, WORKING_SET_BYTES // chunk_bytes)
        room = torch.zeros((self.count + 16) * (chunk_bytes + 8192), dtype=torch.uint8)
        self.allocator = TensorMemoryAllocator(room)
        self.objects = [self.allocate([2, layers, tokens, heads * dim], torch.float16) for _ in range(self.count)]
        self.dense_bytes = chunk_bytes
        numbers = torch.randn(2, layers, tokens, heads * dim, generator=torch.Generator().manual_seed(0)).half()
        for one in self.objects:
            one.tensor.copy_(numbers)

    def allocate(self, shape, dtype):
        return self.allocator.allocate([torch.Size(shape)], [dtype])

    def free(self, more):
        for one in (*self.objects, *more):
            one.ref_count_down()


def measure(cases, repeats):
    for round in range(repeats):
        for case in cases:
            objects = case.chunks.objects
            # Sources and targets move through the working set; a target is never read as a source.
            half = len(objects) // 2
            case.times.append(case.run(objects[round % half], objects[half + round % half]))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=30)
    parser.add_argument("--codecs", default="turbo4,turbo8")
    parser.add_argument("--scales", default="search,least_squares,rms")
    parser.add_argument("--shapes", default=",".join(SHAPES))
    parser.add_argument("--threads", type=int, default=0)
    arguments = parser.parse_args()
    threads = arguments.threads or rota.default_device().threads
    torch.set_num_threads(threads)
    for shape_name in arguments.shapes.split(","):
        shape = SHAPES[shape_name]
        chunks = SharedChunks(shape)
        cases = [Copy(chunks)]
        for codec in arguments.codecs.split(","):
            for scale in arguments.scales.split(","):
                options = {"codec": codec, "scale": scale, "head_dim": shape[3], "threads": arguments.threads}
                cases.append(Case(f"{codec} {scale}", chunks, options))
        measure(cases, arguments.repeats)
        layers, tokens, heads, dim = shape
        shape_text = f"[2, {layers}, {tokens}, {heads * dim}]"
        print(f"{shape_name}: {shape_text} f16, {chunks.dense_bytes} bytes, {threads} threads")
        head = "".join(f"{side}{'best':>8}{'per CPU':>8}" for side in ("   store", " restore"))
        print(f"  {'':22}{'share':>6}{head}")
        for case in cases:
            columns = list(zip(*case.times))  # seconds and CPU seconds to store, the same to restore
            speeds = [f"{chunks.dense_bytes / seconds / 1e9:8.2f}" for at in (0, 2) for seconds in (
                statistics.median(columns[at]), min(columns[at]), statistics.median(columns[at + 1]))]  # fmt: skip
            share = f"{case.bytes / chunks.dense_bytes:.3f}" if case.bytes else "-"
            print(f"  {case.name:22}{share:>6}{''.join(speeds)}")
        chunks.free(case.stored for case in cases[1:])


if __name__ == "__main__":
    main()
