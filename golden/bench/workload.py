"""The models and data of the step benchmark, as impl/bench/workload.cpp has them: same layers, same order, same numbers.

Values come from an integer hash and not from a random generator, so that two languages start from the same bits.
"""

import numpy
import torch
from torch import nn
from torch.nn import functional

WIDTH, LAYERS, HEADS, VOCABULARY, SEQUENCE, BATCH = 384, 6, 6, 2048, 128, 2  # of the decoder: 12.3 M parameters
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


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1 = nn.LayerNorm(WIDTH)
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.projection = nn.Linear(WIDTH, WIDTH)
        self.norm2 = nn.LayerNorm(WIDTH)
        self.up = nn.Linear(WIDTH, 4 * WIDTH)
        self.down = nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        q, k, v = (t.view(BATCH, SEQUENCE, HEADS, -1).transpose(1, 2) for t in self.qkv(self.norm1(x)).chunk(3, -1))
        attended = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.projection(attended.transpose(1, 2).reshape(x.shape))
        return x + self.down(functional.gelu(self.up(self.norm2(x))))


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, WIDTH)
        self.positions = nn.Embedding(SEQUENCE, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, ids):
        x = self.tokens(ids) + self.positions(torch.arange(SEQUENCE))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def mean_square(output, _):
    return output.square().mean()


def cross_entropy(output, targets):
    return functional.cross_entropy(output.flatten(0, 1), targets.flatten())


class Workload:
    """One model with this rank's data. `units` are the modules sharded on their own; the root takes the rest."""

    def __init__(self, name, rank):
        if name in ("tiny8", "tiny64"):
            depth = int(name.removeprefix("tiny"))
            self.model = nn.Sequential(*(nn.Linear(16, 16) for _ in range(depth + 1)))
            self.units = list(self.model)[:depth]
            self.input, self.target, self.loss = uniform((4, 16), 1000 + rank, 1.0), None, mean_square
        elif name == "mlp":
            self.units = [nn.Linear(1024, 1024) for _ in range(4)]
            self.model = nn.Sequential(*(m for unit in self.units for m in (unit, nn.ReLU())))
            self.input, self.target, self.loss = uniform((64, 1024), 1000 + rank, 1.0), None, mean_square
        elif name == "decoder":
            self.model = Decoder()
            self.units = list(self.model.blocks)
            ids = [torch.from_numpy((hashed(BATCH * SEQUENCE, s + rank) % VOCABULARY).astype(numpy.int64)) for s in (1000, 2000)]
            self.input, self.target = (t.reshape(BATCH, SEQUENCE) for t in ids)
            self.loss = cross_entropy
        else:
            raise ValueError(f"unknown model {name!r}; known: tiny8, tiny64, mlp, decoder")
        fill(self.model)
