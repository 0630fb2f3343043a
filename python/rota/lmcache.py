"""A serde for LMCache: chunks of the KV cache lie in its stores as sealed pages of 2 to 8 bits per value.

Importing this module registers the serde "rota" with LMCache. An L2 adapter then takes it by its JSON:

    {"type": "resp", "host": "127.0.0.1", "port": 6379, "serde": {"type": "rota", "codec": "turbo4", "head_dim": 128}}

LMCache's server imports no serdes. `python -m rota.lmcache server ...` is `lmcache server ...` with this one, and the
L2 adapter StoreWithRota makes the unchanged command import it. docs/lmcache.md has both, and what the bytes are.
"""

from __future__ import annotations

import dataclasses
import functools
import struct
from collections.abc import Sequence

import blake3
import torch
from lmcache.logging import init_logger
from lmcache.v1.distributed.api import ObjectKey
from lmcache.v1.distributed.l2_adapters import L2AdapterInterface, create_l2_adapter
from lmcache.v1.distributed.l2_adapters.config import get_l2_adapter_config_class
from lmcache.v1.distributed.serde import (
    AsyncSerdeProcessor,
    Deserializer,
    Serializer,
    get_registered_serde_types,
    register_serde_factory,
)

import rota

logger = init_logger(__name__)

DENSE = "dense"  # the codec of a side that is stored as it is
TURBO = "turbo"
SEALED_CODECS = [name for name in rota.CODECS if name.startswith(TURBO)]
KINDS = {torch.float32: "f32", torch.float16: "f16", torch.bfloat16: "bf16"}

MAGIC = b"ROTA-LMC"
VERSION = 1
# magic, version, bytes of the header, layers, tokens, heads, element type, descriptions of keys and values, bytes that
# follow the header. Behind them is a digest of the chunk's key, of the fields and of the bytes that follow.
FIELDS = struct.Struct("<8sHHIII4s4x32s32sQ8x")
DESCRIPTIONS_AT = (32, 64)
SCALE_RULE_AT = 9  # in a description
DIGEST_BYTES = 16
HEADER_BYTES = FIELDS.size + DIGEST_BYTES


class ChunkError(ValueError):
    """A chunk that this serde does not store or restore. LMCache logs it; to its caller the chunk is a miss."""


@dataclasses.dataclass(frozen=True)
class Options:
    """What an adapter's JSON says under "serde". Sides with codec "dense" are stored as they are."""

    head_dim: int
    codec: str = "turbo4"
    k: str | None = None  # codec of the keys, else `codec`
    v: str | None = None
    page: int = 128  # tokens
    scale: str = "search"
    key_mean: bool = True
    seed: int = 0x726F7461
    threads: int = 0  # of the CPU; 0: all, shared with the rest of the process
    max_workers: int = 2  # tasks of LMCache at once: a load need not wait for a store

    @classmethod
    def read(cls, given: dict) -> Options:
        wanted = {field.name: field for field in dataclasses.fields(cls)}
        for name, value in given.items():
            if name not in wanted:
                raise ValueError(f"rota serde: unknown option {name!r}; there are {', '.join(wanted)}")
            kind = wanted[name].type.split(" ")[0]
            if type(value).__name__ != kind:
                raise ValueError(f"rota serde: option {name!r}: wanted {kind}, found {value!r}")
        if "head_dim" not in given:
            raise ValueError("rota serde: option 'head_dim', the size of the model's heads, is missing")
        return cls(**given)

    def format(self, side: str) -> rota.PageFormat | None:
        codec = (self.k if side == "keys" else self.v) or self.codec
        if codec == DENSE:
            return None
        if codec not in SEALED_CODECS:
            raise ValueError(f"rota serde: unknown codec {codec!r}; there are {DENSE}, {', '.join(SEALED_CODECS)}")
        turbo = rota.Turbo(int(codec.removeprefix(TURBO)), scale=self.scale, key_mean=self.key_mean, seed=self.seed)
        return rota.PageFormat(turbo, side, self.head_dim, page=self.page)


class Side:
    """The keys or the values of all layers of a tensor: sealed pages, and dense tokens behind the last whole page."""

    def __init__(self, format: rota.PageFormat | None, page: int, shape: Sequence[int]):
        self.format = format
        self.layers, self.tokens, self.heads, self.dim = shape
        self.whole = self.tokens // page * page if format else 0
        self.pages = (self.layers, self.whole // page, self.heads, format.page_bytes if format else 0)
        self.sealed_bytes = self.pages[0] * self.pages[1] * self.pages[2] * self.pages[3]
        self.dense_shape = (self.layers, self.tokens - self.whole, self.heads, self.dim)

    def dense_bytes(self, dtype: torch.dtype) -> int:
        return self.layers * (self.tokens - self.whole) * self.heads * self.dim * dtype.itemsize


class Part:
    """One tensor of a chunk, [2, layers, tokens, heads * dim], and where its bytes are: a header, pages of the keys,
    pages of the values, dense keys, dense values."""

    def __init__(self, options: Options, shape: torch.Size, dtype: torch.dtype):
        if len(shape) != 4 or shape[0] != 2:
            raise ChunkError(
                f"rota serde: wanted keys and values, [2, layers, tokens, heads * head_dim], found {list(shape)}; "
                "MLA, layouts that pack keys and values together, and recurrent states are not supported"
            )
        if dtype not in KINDS:
            raise ChunkError(f"rota serde: wanted a KV cache of float32, float16 or bfloat16, found {dtype}")
        _, layers, tokens, hidden = shape
        if hidden % options.head_dim:
            raise ChunkError(
                f"rota serde: head_dim is {options.head_dim}, which does not divide the {hidden} numbers of a token"
            )
        self.shape, self.dtype, self.dim = shape, dtype, options.head_dim
        self.heads = hidden // options.head_dim
        formats = (options.format("keys"), options.format("values"))
        self.sides = [Side(f, options.page, (layers, tokens, self.heads, self.dim)) for f in formats]
        if any(formats) and tokens < options.page:
            logger.warning("rota serde: chunks of %d tokens have no page of %d: stored dense", tokens, options.page)
        # A multiple of 64, as pages are: heads have 16 n dims, and dense tokens of both sides are an even number.
        self.payload_bytes = sum(side.sealed_bytes + side.dense_bytes(dtype) for side in self.sides)
        self.bytes = HEADER_BYTES + self.payload_bytes
        descriptions = [f.describe() if f else bytes(32) for f in formats]
        self.fields = FIELDS.pack(
            MAGIC, VERSION, HEADER_BYTES, layers, tokens, self.heads, KINDS[dtype].encode(), *descriptions,
            self.payload_bytes,
        )  # fmt: skip

    def sections(self, data: torch.Tensor) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
        """Pages and dense tokens of the keys and of the values, as views of the part's bytes."""
        sealed = [side.sealed_bytes for side in self.sides]
        dense = [side.dense_bytes(self.dtype) for side in self.sides]
        pieces = data[HEADER_BYTES:].split([*sealed, *dense])
        pages = [piece.view(side.pages) for piece, side in zip(pieces[:2], self.sides)]
        tokens = [piece.view(self.dtype).view(side.dense_shape) for piece, side in zip(pieces[2:], self.sides)]
        return pages, tokens

    def digest(self, data: torch.Tensor, key: ObjectKey) -> bytes:
        hasher = blake3.blake3(identity(key))
        hasher.update(data[: FIELDS.size].numpy()).update(data[HEADER_BYTES:].numpy())
        return hasher.digest(DIGEST_BYTES)

    def seal(self, x: torch.Tensor, data: torch.Tensor, device: rota.Device | None) -> None:
        heads = x.unflatten(-1, (self.heads, self.dim))
        for side, values, pages, tokens in zip(self.sides, heads, *self.sections(data)):
            if side.sealed_bytes:
                rota.seal(values[:, : side.whole], side.format, out=pages, device=device)
            tokens.copy_(values[:, side.whole :])

    def sign(self, data: torch.Tensor, key: ObjectKey) -> None:
        """Writes the header."""
        data[: FIELDS.size] = torch.frombuffer(bytearray(self.fields), dtype=torch.uint8)
        data[FIELDS.size : HEADER_BYTES] = torch.frombuffer(bytearray(self.digest(data, key)), dtype=torch.uint8)

    def check(self, data: torch.Tensor, key: ObjectKey) -> None:
        """Raises an error unless the bytes are what was stored for this key, with the same options."""
        found = data[: FIELDS.size].numpy().tobytes()
        if restored_alike(found) != restored_alike(self.fields):
            raise ChunkError(f"rota serde: {difference(found, self.fields)}")
        if data[FIELDS.size : HEADER_BYTES].numpy().tobytes() != self.digest(data, key):
            raise ChunkError("rota serde: the bytes are not those that were stored for this key: their digest differs")

    def unseal(self, data: torch.Tensor, out: torch.Tensor, device: rota.Device | None) -> None:
        heads = out.unflatten(-1, (self.heads, self.dim))
        for side, values, pages, tokens in zip(self.sides, heads, *self.sections(data)):
            if side.sealed_bytes:
                rota.unseal(pages, side.format, out=values[:, : side.whole], device=device)
            values[:, side.whole :].copy_(tokens)


part_of = functools.lru_cache(maxsize=256)(Part)


def identity(key: ObjectKey) -> bytes:
    """The key as bytes, different for different keys."""
    fields = (key.chunk_hash, key.model_name.encode(), key.cache_salt.encode())
    numbers = struct.pack("<QQ3I", key.kv_rank, key.object_group_id, *map(len, fields))
    return numbers + b"".join(fields)


def restored_alike(fields: bytes) -> bytes:
    """The fields without the rules by which scales were found: pages are restored alike whichever it was."""
    rules = [at + SCALE_RULE_AT for at in DESCRIPTIONS_AT]
    return bytes(byte for at, byte in enumerate(fields) if at not in rules)


def difference(found: bytes, wanted: bytes) -> str:
    """What a chunk is, where it is not what the options want."""
    if found[: len(MAGIC)] != MAGIC:
        return "the store's bytes are no chunk of this serde"
    names = ("", "version", "bytes of the header", "layers", "tokens", "heads", "element type", "keys", "values",
             "bytes of the chunk")  # fmt: skip
    for name, one, other in zip(names, FIELDS.unpack(found), FIELDS.unpack(wanted)):
        if one != other:
            return f"{name}: the chunk has {shown(one)}, wanted {shown(other)}"
    return "the chunk's header has bytes that are not zero where this version has no field"


def shown(field: int | bytes) -> str:
    if isinstance(field, int):
        return str(field)
    if len(field) == 4:
        return field.rstrip(b"\0").decode(errors="replace")
    if not any(field):
        return DENSE
    try:
        format = rota.PageFormat.read(field)
    except rota.Error as error:
        return f"a format that this version does not read ({error})"
    codec = format.codec if isinstance(format.codec, rota.Turbo) else rota.Turbo(int(format.codec.removeprefix(TURBO)))
    mean = " without their mean" if codec.key_mean and format.side == "keys" else ""
    seed = f", seed {codec.seed:#x}"
    return f"{TURBO}{codec.bits}{mean}, heads of {format.head_dim}, pages of {format.page} tokens{seed}"


class Chunks:
    """Plans of chunks for one adapter's options. Has no state that changes: calls may come from several threads."""

    def __init__(self, options: Options):
        self.options = options
        formats = [options.format(side) for side in ("keys", "values")]  # bad options are an error here, not later
        if not any(formats):
            raise ValueError("rota serde: keys and values are both dense: leave the serde out")
        self.device = rota.Device("cpu", threads=options.threads) if options.threads else None

    def plan(self, shapes: list[torch.Size], dtypes: list[torch.dtype]) -> list[Part]:
        return [part_of(self.options, shape, dtype) for shape, dtype in zip(shapes, dtypes, strict=True)]

    def parts(self, chunk, stored) -> list[tuple[Part, torch.Tensor, torch.Tensor]]:
        """Each tensor of a chunk in LMCache's memory, with its bytes as they are stored."""
        plan = self.plan(chunk.get_shapes(), chunk.get_dtypes())
        tensors = [chunk.get_tensor(index) for index in range(len(plan))]
        data = stored.tensor
        if data is None or any(tensor is None or tensor.device.type != "cpu" for tensor in (data, *tensors)):
            raise ChunkError("rota serde: wanted chunks in the CPU's memory: an L1 of another kind is not supported")
        data, bytes_wanted = data.flatten().view(torch.uint8), sum(part.bytes for part in plan)
        if data.numel() < bytes_wanted:
            raise ChunkError(f"rota serde: wanted {bytes_wanted} bytes of a stored chunk, found {data.numel()}")
        pieces = data[:bytes_wanted].split([part.bytes for part in plan])
        return list(zip(plan, tensors, pieces))


class RotaSerializer(Serializer):
    """What LMCache calls to store a chunk, from its own threads."""

    def __init__(self, chunks: Chunks):
        self.chunks = chunks

    def estimate_serialized_size(self, layout_desc) -> int:
        return sum(part.bytes for part in self.chunks.plan(layout_desc.shapes, layout_desc.dtypes))

    def serialize(self, src, dst, key: ObjectKey) -> int:
        parts = self.chunks.parts(src, dst)
        for part, tensor, data in parts:
            part.seal(tensor, data, self.chunks.device)
            part.sign(data, key)
        return sum(part.bytes for part, _, _ in parts)


class RotaDeserializer(Deserializer):
    """What LMCache calls to restore a chunk. Nothing is written before all of it is checked."""

    def __init__(self, chunks: Chunks):
        self.chunks = chunks

    def deserialize(self, src, dst, key: ObjectKey) -> None:
        parts = self.chunks.parts(dst, src)
        for part, _, data in parts:
            part.check(data, key)
        for part, tensor, data in parts:
            part.unseal(data, tensor, self.chunks.device)


def create(given: dict) -> AsyncSerdeProcessor:
    """LMCache's factory of the serde, from what an adapter's JSON says under "serde"."""
    options = Options.read(given)
    chunks = Chunks(options)
    return AsyncSerdeProcessor(RotaSerializer(chunks), RotaDeserializer(chunks), max_workers=options.max_workers)


class StoreWithRota(L2AdapterInterface):
    """An L2 adapter of LMCache's type "plugin": the adapter that its parameters name. LMCache imports the module of a
    plugin before it asks for the adapter's serde, and imports no module of a serde."""

    def __new__(cls, adapter_params: dict, l1_memory_desc=None) -> L2AdapterInterface:
        config = get_l2_adapter_config_class(adapter_params["type"]).from_dict(adapter_params)
        return create_l2_adapter(config, l1_memory_desc)


if "rota" not in get_registered_serde_types():  # `python -m rota.lmcache` reads this file as another module
    register_serde_factory("rota", create)


def main() -> None:
    """The command `lmcache` with this serde."""
    from lmcache.cli.main import main as lmcache

    lmcache()


if __name__ == "__main__":
    main()
