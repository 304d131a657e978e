"""The models and data of the step benchmark, as impl/bench/workload.cpp has them: same layers, same order, same numbers.

Values come from an integer hash and not from a random generator, so that two languages start from the same bits.
"""

import typing

import numpy
import torch
from torch import nn
from torch.nn import functional

VOCABULARY, BATCH = 2048, 2  # of decoders
LEARNING_RATE = 0.01


def hashed(count, stream):
    """`count` numbers in [0, 2^32) of one stream."""
    with numpy.errstate(over="ignore"):
        x = numpy.arange(count, dtype=numpy.uint32) * numpy.uint32(0x9E3779B9)
        x += numpy.uint32(stream * 0x85EBCA6B & 0xFFFFFFFF)
        x = (x ^ (x >> 16)) * numpy.uint32(0x7FEB352D)
        x = (x ^ (x >> 15)) * numpy.uint32(0x846CA68B)
        return x ^ (x >> 16)


def uniform(shape, stream, scale):
    """Values in [-scale, scale), rounded once to float32."""
    x = hashed(int(numpy.prod(shape)), stream).astype(numpy.float64)
    return torch.from_numpy(((x / 2**31 - 1.0) * scale).astype(numpy.float32)).reshape(shape)


def fill(module):
    """Matrices keep the variance of their input; vectors keep the constants their layers start with, except linear biases."""
    with torch.no_grad():
        for stream, (name, parameter) in enumerate(module.named_parameters()):
            if parameter.dim() > 1:
                parameter.copy_(uniform(parameter.shape, stream, (3 / parameter.shape[1]) ** 0.5))
            elif "norm" not in name:
                parameter.copy_(uniform(parameter.shape, stream, 0.1))
    return module


class DecoderShape(typing.NamedTuple):
    layers: int
    width: int
    heads: int
    sequence: int


DECODERS = {"decoder": DecoderShape(6, 384, 6, 128), "decoder8": DecoderShape(8, 768, 12, 256)}  # 12.3 and 60 M parameters


class Block(nn.Module):
    def __init__(self, shape):
        super().__init__()
        self.heads = shape.heads
        self.norm1 = nn.LayerNorm(shape.width)
        self.qkv = nn.Linear(shape.width, 3 * shape.width)
        self.projection = nn.Linear(shape.width, shape.width)
        self.norm2 = nn.LayerNorm(shape.width)
        self.up = nn.Linear(shape.width, 4 * shape.width)
        self.down = nn.Linear(4 * shape.width, shape.width)

    def forward(self, x):
        q, k, v = (t.view(*x.shape[:2], self.heads, -1).transpose(1, 2) for t in self.qkv(self.norm1(x)).chunk(3, -1))
        attended = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.projection(attended.transpose(1, 2).reshape(x.shape))
        return x + self.down(functional.gelu(self.up(self.norm2(x))))


class Decoder(nn.Module):
    def __init__(self, shape):
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, shape.width)
        self.positions = nn.Embedding(shape.sequence, shape.width)
        self.blocks = nn.ModuleList(Block(shape) for _ in range(shape.layers))
        self.norm = nn.LayerNorm(shape.width)
        self.head = nn.Linear(shape.width, VOCABULARY, bias=False)

    def forward(self, ids):
        x = self.tokens(ids) + self.positions(torch.arange(ids.shape[1], device=ids.device))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def mean_square(output, _):
    return output.square().mean()


def cross_entropy(output, targets):
    return functional.cross_entropy(output.flatten(0, 1), targets.flatten())


class Workload:
    """One model with this rank's data, on `device`. `units` are the modules sharded on their own; the root takes the rest."""

    def __init__(self, name, rank, device):
        if name in ("tiny8", "tiny64"):
            depth = int(name.removeprefix("tiny"))
            self.model = nn.Sequential(*(nn.Linear(16, 16) for _ in range(depth + 1)))
            self.units = list(self.model)[:depth]
            self.input, self.target, self.loss = uniform((4, 16), 1000 + rank, 1.0), None, mean_square
        elif name == "mlp":
            self.units = [nn.Linear(1024, 1024) for _ in range(4)]
            self.model = nn.Sequential(*(m for unit in self.units for m in (unit, nn.ReLU())))
            self.input, self.target, self.loss = uniform((64, 1024), 1000 + rank, 1.0), None, mean_square
        elif name in DECODERS:
            shape = DECODERS[name]
            self.model = Decoder(shape)
            self.units = list(self.model.blocks)
            ids = [torch.from_numpy((hashed(BATCH * shape.sequence, s + rank) % VOCABULARY).astype(numpy.int64)) for s in (1000, 2000)]
            self.input, self.target = (t.reshape(BATCH, shape.sequence) for t in ids)
            self.loss = cross_entropy
        else:
            raise ValueError(f"unknown model {name!r}; known: tiny8, tiny64, mlp, decoder, decoder8")
        self.device = device
        fill(self.model).to(device)
        self.input = self.input.to(device)
        if self.target is not None:
            self.target = self.target.to(device)
