"""ggml's block formats for KV caches and a Hadamard rotation, by their definitions, on torch tensors.

A format takes 32 neighbouring values of a head. `restored(x, name)` is what a cache that stores x in that format
reads back; nothing is packed, because only the values matter here.
"""

import torch

BLOCK = 32

# Bits of a value as stored: codes, and f16 numbers for each block.
BITS = {"q8_0": 8.5, "q5_1": 6.0, "q5_0": 5.5, "q4_1": 5.0, "q4_0": 4.5}


def _through_f16(x):
    return x.to(torch.float16).to(torch.float32)


def _inverse(scale):
    return torch.where(scale == 0, torch.zeros_like(scale), 1 / scale)


def _largest(blocks):
    """The value of largest magnitude of each block, with its sign; the first one of several."""
    return blocks.gather(-1, blocks.abs().argmax(-1, keepdim=True))


def _q8_0(blocks):
    scale = blocks.abs().amax(-1, keepdim=True) / 127
    scaled = blocks * _inverse(scale)
    # Halves are rounded away from zero.
    code = torch.sign(scaled) * torch.floor(scaled.abs() + 0.5)
    return code * _through_f16(scale)


def _around_zero(blocks, bits):
    """q4_0, q5_0: the value of largest magnitude gets the lowest code, which has no positive counterpart."""
    half = 2 ** (bits - 1)
    scale = _largest(blocks) / -half
    code = torch.trunc(blocks * _inverse(scale) + (half + 0.5)).clamp(0, 2 * half - 1)
    return (code - half) * _through_f16(scale)


def _from_least(blocks, bits):
    """q4_1, q5_1: codes count from the block's least value, which is stored as well."""
    least, most = blocks.amin(-1, keepdim=True), blocks.amax(-1, keepdim=True)
    levels = 2**bits - 1
    scale = (most - least) / levels
    code = torch.trunc((blocks - least) * _inverse(scale) + 0.5).clamp(0, levels)
    return code * _through_f16(scale) + _through_f16(least)


_FORMATS = {
    "q8_0": _q8_0,
    "q5_1": lambda blocks: _from_least(blocks, 5),
    "q5_0": lambda blocks: _around_zero(blocks, 5),
    "q4_1": lambda blocks: _from_least(blocks, 4),
    "q4_0": lambda blocks: _around_zero(blocks, 4),
}


def hadamard(size):
    """The symmetric orthogonal matrix of that size, a power of two: its own inverse."""
    matrix = torch.ones(1, 1)
    while matrix.shape[0] < size:
        matrix = torch.cat([torch.cat([matrix, matrix], 1), torch.cat([matrix, -matrix], 1)])
    return matrix / size**0.5


def rotated(x):
    """Each head (last dimension) times a Hadamard matrix; in blocks of the largest power of two that divides it."""
    dim = x.shape[-1]
    size = dim & -dim
    return (x.reshape(*x.shape[:-1], -1, size) @ hadamard(size).to(x)).reshape(x.shape)


def restored(x, name, *, rotate=False):
    """What is read back of x, [..., head_dim], after it was stored in the format `name`."""
    if x.shape[-1] % BLOCK:
        raise ValueError(f"{name} has blocks of {BLOCK} values; wanted heads of a multiple of it, found {x.shape[-1]}")
    values = x.to(torch.float32)
    if rotate:
        values = rotated(values)
    values = _FORMATS[name](values.reshape(*x.shape[:-1], -1, BLOCK)).reshape(x.shape)
    if rotate:
        values = rotated(values)
    return values.to(x.dtype)
