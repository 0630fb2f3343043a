"""LMCache's StorageManager as its server uses it: chunks go to L1, from there to a store, and come back."""

import itertools
import json
import time

import numpy
import torch
from lmcache.v1.distributed.api import GroupedObjectKeys, MemoryLayoutDesc, ObjectKey, PrefetchTaskSpec
from lmcache.v1.distributed.config import parse_args
from lmcache.v1.distributed.storage_manager import StorageManager

import conftest
import rota.lmcache  # noqa: F401

ROTA4 = {"type": "rota", "codec": "turbo4", "head_dim": 64}
CAPTURES = conftest.SOURCE / "tests/captures"


def manager(port, serde, l1_gb=1.0):
    adapter = {"type": "resp", "host": "127.0.0.1", "port": port, "num_workers": 2}
    if serde:
        adapter["serde"] = serde
    config = parse_args(["--l1-size-gb", str(l1_gb), "--no-l1-use-lazy", "--eviction-policy", "LRU", "--l2-adapter",
                         json.dumps(adapter)])  # fmt: skip
    # Shared memory is named after the process: a writer and a reader in one would have the same.
    config.l1_manager_config.memory_config.shm_name = ""
    return StorageManager(config)


def new_keys(count, numbers=itertools.count()):
    """Keys that no test has had before."""
    return [ObjectKey(chunk_hash=next(numbers).to_bytes(32, "big"), model_name="model", kv_rank=0)
            for _ in range(count)]  # fmt: skip


def layout_of(chunk):
    return MemoryLayoutDesc(shapes=[chunk.shape], dtypes=[chunk.dtype])


def wait_for(condition, seconds=60):
    """Whether it came true in time."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.005)
    return True


def store(writer, keys, chunks):
    """Chunks into L1; LMCache stores them in the background."""
    objects = writer.reserve_write(keys, layout_of(chunks[0]))
    for key, chunk in zip(keys, chunks, strict=True):
        objects[key].tensor.copy_(chunk)
    writer.finish_write(keys)


def stored(server, writer, keys, chunks):
    """The same, and waits until the server has all of them. Returns the server's names."""
    before = set(server.keys())
    store(writer, keys, chunks)
    assert wait_for(lambda: server.dbsize() == len(before) + len(keys))
    return set(server.keys()) - before


def load(reader, keys, layout):
    """How many chunks came from the store, and the chunks, or None where one of them did not."""
    groups = [GroupedObjectKeys(keys=keys, layout_desc=layout, object_group_id=0)]
    handle = reader.submit_prefetch_task(PrefetchTaskSpec(key_groups=groups))
    reader.wait_prefetch_status(handle, 60)
    hits = reader.query_prefetch_status(handle).l2_hit_count
    if hits < len(keys):
        return hits, None
    with reader.read_prefetched_results(keys) as objects:
        chunks = None if objects is None else [one.tensor.clone() for one in objects]
    reader.finish_read_prefetched(keys)
    return hits, chunks


def captured(dtype=torch.bfloat16):
    """Recorded keys and values of a model, two chunks of [2, 4 layers, 256 tokens, 2 heads * 64]."""
    layers = [[[numpy.load(CAPTURES / f"L{layer:02}_g{head}_{side}.npy") for head in (0, 2)]
               for layer in (0, 10, 20, 29)] for side in "kv"]  # fmt: skip
    x = torch.from_numpy(numpy.array(layers)).permute(0, 1, 3, 2, 4).flatten(-2).to(dtype)
    return [chunk.contiguous() for chunk in x.split(256, dim=2)]


def captured_in_full(dtype=torch.bfloat16):
    """The same layers and heads again and again, in chunks of the model's shape: 30 layers, 3 heads of 64."""
    return [x.unflatten(-1, (2, 64))[:, torch.arange(30) % 4][..., torch.arange(3) % 2, :].flatten(-2)
            for x in captured(dtype)]  # fmt: skip


def relative_errors(found, wanted):
    """Squared errors of the keys and of the values, over the squares of what they should be."""
    found, wanted = torch.stack(found).double(), torch.stack(wanted).double()
    sides = (0, 2, 3, 4)
    return (((found - wanted) ** 2).sum(sides) / (wanted**2).sum(sides)).tolist()
