"""The bytes of a chunk, and what is refused: the serde alone, with memory of LMCache's own allocator."""

import dataclasses
import struct
import threading

import numpy
import pytest
import torch
from lmcache.v1.distributed.api import MemoryLayoutDesc
from lmcache.v1.distributed.serde import SerdeConfig, create_serde_processor
from lmcache.v1.memory_allocators.tensor_memory_allocator import TensorMemoryAllocator
from lmcache.v1.memory_management import MemoryFormat
from stores import captured, new_keys

import rota
from rota.lmcache import ChunkError, Chunks, Options, RotaDeserializer, RotaSerializer

CODECS = [name for name in rota.CODECS if name.startswith("turbo")]
# The squared error of a normal variable at that many bits: docs/page-format.md.
NORMAL_ERROR = {2: 0.11748, 3: 0.03456, 4: 0.00952, 5: 0.00252, 6: 0.000663, 8: 0.0000883}
ALLOCATOR = TensorMemoryAllocator(torch.empty(256 << 20, dtype=torch.uint8))
(KEY,) = new_keys(1)


def allocate(shapes, dtypes):
    return ALLOCATOR.allocate(shapes, dtypes, MemoryFormat.KV_2LTD)


class Pair:
    """A serializer, a deserializer and memory for the stored bytes."""

    def __init__(self, **options):
        chunks = Chunks(Options.read({"head_dim": 64, **options}))
        self.serializer, self.deserializer = RotaSerializer(chunks), RotaDeserializer(chunks)

    def stored(self, *tensors, key=KEY):
        shapes, dtypes = [x.shape for x in tensors], [x.dtype for x in tensors]
        size = self.serializer.estimate_serialized_size(MemoryLayoutDesc(shapes=shapes, dtypes=dtypes))
        chunk, memory = allocate(shapes, dtypes), allocate([torch.Size([size])], [torch.uint8])
        for index, x in enumerate(tensors):
            chunk.get_tensor(index).copy_(x)
        memory.tensor.fill_(0xA5)
        assert self.serializer.serialize(chunk, memory, key) == size
        chunk.ref_count_down()
        return memory

    def restored(self, memory, *like, key=KEY):
        chunk = allocate([x.shape for x in like], [x.dtype for x in like])
        for index in range(len(like)):
            chunk.get_tensor(index).fill_(7)
        try:
            self.deserializer.deserialize(memory, chunk, key)
        except ChunkError:
            assert all(bool((chunk.get_tensor(index) == 7).all()) for index in range(len(like)))
            raise
        finally:
            found = [chunk.get_tensor(index).clone() for index in range(len(like))]
            chunk.ref_count_down()
        return found


def normal(shape, dtype=torch.float32):
    return torch.randn(shape, generator=torch.Generator().manual_seed(3)).to(dtype)


def sealed(x, format):
    """Pages of one head of one layer after the other, from f32: how seal() sees [layers, tokens, heads * dim]."""
    layers = [[rota.seal(numpy.ascontiguousarray(head[:, None].float().numpy()), format)[:, 0]
               for head in layer.unflatten(-1, (-1, format.head_dim)).unbind(1)] for layer in x]  # fmt: skip
    return numpy.array(layers).transpose(0, 2, 1, 3).tobytes()  # [layers, pages, heads, bytes]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("tokens", [256, 300, 128, 100])
def test_the_bytes_are_a_header_pages_and_a_dense_tail(dtype, tokens):
    x = normal((2, 3, tokens, 128), dtype)
    memory = Pair(codec="turbo4", v="turbo3").stored(x)
    data, whole = memory.tensor.numpy().tobytes(), tokens // 128 * 128
    formats = [rota.PageFormat("turbo4", "keys", 64), rota.PageFormat("turbo3", "values", 64)]
    pages = b"".join(sealed(x[side, :, :whole], format) for side, format in enumerate(formats))
    tails = b"".join(x[side, :, whole:].contiguous().view(torch.uint8).numpy().tobytes() for side in (0, 1))
    rest = pages + tails
    name = {torch.float32: b"f32", torch.float16: b"f16", torch.bfloat16: b"bf16"}[dtype]
    header = struct.pack("<8sHHIII4sI", b"ROTA-LMC", 1, 128, 3, tokens, 2, name, 0)
    header += formats[0].describe() + formats[1].describe() + struct.pack("<QQ", len(rest), 0)
    assert data[:112] == header
    assert data[128:] == rest
    memory.ref_count_down()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("tokens", [256, 300, 100, 1])
def test_pages_are_restored_and_a_tail_is_exact(dtype, tokens):
    x, whole = normal((2, 3, tokens, 128), dtype), tokens // 128 * 128
    pair = Pair(codec="turbo8")
    memory = pair.stored(x)
    (found,) = pair.restored(memory, x)
    assert torch.equal(found[:, :, whole:], x[:, :, whole:])
    if whole:
        error = ((found - x)[:, :, :whole].double() ** 2).mean()
        assert 0 < error < 1e-4
    memory.ref_count_down()


@pytest.mark.parametrize("scale", ["rms", "least_squares", "search"])
@pytest.mark.parametrize("codec", CODECS)
def test_errors_are_those_of_the_codec(codec, scale):
    x, bits = normal((2, 2, 512, 256)), int(codec.removeprefix("turbo"))
    x[0] += 5 * normal((256,))  # a mean of the keys, which their error does not feel
    pair = Pair(codec=codec, scale=scale)
    memory = pair.stored(x)
    (found,) = pair.restored(memory, x)
    errors = ((found - x).double() ** 2).mean((1, 2, 3)) / NORMAL_ERROR[bits]
    assert errors.max() < 1.06 and errors.min() > 0.3, errors
    memory.ref_count_down()


def test_one_side_may_be_dense():
    (x, _) = captured(torch.float16)
    pair = Pair(k="dense", v="turbo4")
    memory = pair.stored(x)
    (found,) = pair.restored(memory, x)
    assert torch.equal(found[0], x[0])
    assert not torch.equal(found[1], x[1])
    assert memory.get_size() == 128 + x[0].numel() * 2 + 4 * 2 * 2 * 4352
    memory.ref_count_down()


def test_a_chunk_of_several_tensors_has_a_part_for_each():
    full, window = normal((2, 3, 256, 128), torch.bfloat16), normal((2, 5, 130, 64), torch.float16)
    pair = Pair(codec="turbo6")
    memory = pair.stored(full, window)
    for found, wanted in zip(pair.restored(memory, full, window), (full, window), strict=True):
        assert ((found - wanted).double() ** 2).mean() < 7e-4
    memory.tensor[-1] ^= 1  # the second part: nothing of the first is written either
    with pytest.raises(ChunkError, match="digest"):
        pair.restored(memory, full, window)
    memory.ref_count_down()


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ({"codec": "turbo8"}, "keys: the chunk has turbo4 .* heads of 64, pages of 128 tokens, .* wanted turbo8"),
        ({"v": "turbo3"}, "values: the chunk has turbo4, .* wanted turbo3"),
        ({"k": "dense"}, "keys: the chunk has turbo4 .* wanted dense"),
        ({"head_dim": 32}, "heads: the chunk has 2, wanted 4"),
        ({"page": 64}, "pages of 128 tokens, .* wanted turbo4 .* pages of 64 tokens"),
        ({"seed": 1}, "wanted .* seed 0x1$"),
        ({"key_mean": False}, "has turbo4 without their mean, .* wanted turbo4, heads"),
    ],
    ids=str,
)
def test_other_options_are_refused_by_name(other, message):
    (x, _) = captured()
    memory = Pair().stored(x)
    larger = allocate([torch.Size([2 * x.numel() * 2])], [torch.uint8])  # as a store may give it: room behind
    larger.tensor[: memory.get_size()] = memory.tensor
    with pytest.raises(ChunkError, match=message):
        Pair(**other).restored(larger, x)
    Pair(scale="rms").restored(larger, x)  # how scales were found does not matter
    for one in (memory, larger):
        one.ref_count_down()


def test_other_chunks_are_refused_by_name():
    (x, _) = captured()
    pair, memory = Pair(), Pair().stored(x)
    for like, message in [
        (x.half(), "element type: the chunk has bf16, wanted f16"),
        (x[:, :3], "layers: the chunk has 4, wanted 3"),
        (x[:, :, :200], "tokens: the chunk has 256, wanted 200"),
        (x[..., :64], "heads: the chunk has 2, wanted 1"),
    ]:
        with pytest.raises(ChunkError, match=message):
            room = allocate([torch.Size([1 << 20])], [torch.uint8])
            room.tensor[: memory.get_size()] = memory.tensor
            try:
                pair.restored(room, like)
            finally:
                room.ref_count_down()
    for other in ({"chunk_hash": bytes(31) + b"x"}, {"model_name": "another"}, {"kv_rank": 1}, {"object_group_id": 1},
                  {"cache_salt": "another"}):  # fmt: skip
        with pytest.raises(ChunkError, match="not those that were stored for this key"):
            pair.restored(memory, x, key=dataclasses.replace(KEY, **other))
    with pytest.raises(ChunkError, match="wanted 2[0-9]+ bytes of a stored chunk, found"):
        pair.restored(memory, torch.cat([x, x], dim=2))
    memory.ref_count_down()


def test_each_changed_byte_is_refused():
    x = normal((2, 1, 130, 64), torch.float16)
    pair = Pair(codec="turbo2")
    memory = pair.stored(x)
    size = memory.get_size()
    for at in [*range(128), *range(128, size, 7), size - 1]:
        memory.tensor[at] ^= 0x10
        # Rules of the scales are no part of what must be equal, but of the digest.
        with pytest.raises(ChunkError):
            pair.restored(memory, x)
        memory.tensor[at] ^= 0x10
    pair.restored(memory, x)
    memory.ref_count_down()


@pytest.mark.parametrize(
    ("shape", "dtype", "message"),
    [
        ((1, 4, 256, 576), torch.bfloat16, "MLA"),
        ((4, 256, 576), torch.bfloat16, "MLA"),
        ((2, 256, 128), torch.bfloat16, "wanted keys and values"),
        ((2, 4, 256, 100), torch.bfloat16, "head_dim is 64, which does not divide the 100 numbers"),
        ((2, 4, 256, 128), torch.float8_e4m3fn, "found torch.float8_e4m3fn"),
        ((2, 4, 256, 128), torch.uint8, "found torch.uint8"),
    ],
    ids=str,
)
def test_layouts_are_refused_by_name(shape, dtype, message):
    with pytest.raises(ChunkError, match=message):
        Pair().serializer.estimate_serialized_size(MemoryLayoutDesc(shapes=[torch.Size(shape)], dtypes=[dtype]))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "option 'head_dim'.* is missing"),
        ({"head_dim": 64, "bits": 4}, "unknown option 'bits'; there are head_dim, codec"),
        ({"head_dim": "64"}, "option 'head_dim': wanted int, found '64'"),
        ({"head_dim": 64, "key_mean": 1}, "option 'key_mean': wanted bool, found 1"),
        ({"head_dim": 64, "codec": "rota4"}, "unknown codec 'rota4'; there are dense, turbo2"),
        ({"head_dim": 64, "k": "f16"}, "unknown codec 'f16'"),
        ({"head_dim": 64, "codec": "dense"}, "both dense: leave the serde out"),
        ({"head_dim": 64, "page": 100}, "100"),
        ({"head_dim": 63}, "63"),
        ({"head_dim": 64, "scale": "best"}, "best"),
    ],
    ids=str,
)
def test_bad_options_are_an_error_when_lmcache_starts(options, message):
    with pytest.raises((ValueError, rota.Error), match=message):
        create_serde_processor(SerdeConfig(type="rota", kwargs=options))


def test_numbers_that_no_page_holds_are_an_error():
    (x, _) = captured()
    for bad in (float("nan"), float("inf"), 1e6):
        x[0, 1, 2, 3] = bad
        with pytest.raises(rota.Error, match="1 values are NaN or beyond the range of float16"):
            Pair().stored(x)


def test_threads_do_not_disturb_each_other():
    chunks, keys, failures = captured() * 4, new_keys(8), []
    pair = Pair()

    def run(x, key):
        try:
            for _ in range(10):
                memory = pair.stored(x, key=key)
                (found,) = pair.restored(memory, x, key=key)
                assert ((found - x).double() ** 2).sum() < 0.01 * (x.double() ** 2).sum()
                memory.ref_count_down()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=pair_of) for pair_of in zip(chunks, keys)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert not failures
