"""Where what a rank holds lies in the global tensor."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import torch


@dataclass(frozen=True)
class Extent:
    """`length` elements at flat row-major offset `offset` of the global tensor."""

    offset: int
    length: int


@dataclass(frozen=True)
class Placement:
    """The local tensor's elements, in order, are the extents one after the other. No extents: this rank holds nothing."""

    global_shape: tuple[int, ...]
    sharded: bool
    extents: tuple[Extent, ...]


def whole(shape: Sequence[int]) -> Placement:
    """Not sharded."""
    return Placement(tuple(shape), False, (Extent(0, prod(shape)),))


def flat(shape: Sequence[int], offset: int, length: int) -> Placement:
    """One stretch of the flattened tensor."""
    return Placement(tuple(shape), True, (Extent(offset, length),) if length else ())


def rows(shape: Sequence[int], dim: int, first: int, count: int) -> Placement:
    """Indices [first, first + count) of dimension `dim`: one extent for dimension 0, several otherwise."""
    inner = prod(shape[dim + 1 :])
    stride = shape[dim] * inner
    extents = (Extent(i * stride + first * inner, count * inner) for i in range(prod(shape[:dim])))
    return Placement(tuple(shape), True, tuple(extents) if count * inner else ())


@dataclass
class Exposed:
    """One item of an observation (PROTOCOL.md, section 5). `value` is None for an absent gradient; then `dtype` says what it would be."""

    name: str
    value: torch.Tensor | None
    placement: Placement
    requires_grad: bool = False
    dtype: torch.dtype | None = None


@dataclass
class Parameter:
    """A parameter as this rank exposes it now, with its gradient."""

    name: str
    value: torch.Tensor
    placement: Placement
    requires_grad: bool
    gradient: torch.Tensor | None = None
    gradient_placement: Placement | None = None  # absent: the same as the parameter's

    def as_gradient(self) -> Exposed:
        placement = self.gradient_placement or self.placement
        return Exposed(self.name, self.gradient, placement, self.requires_grad, self.value.dtype)

    def as_value(self) -> Exposed:
        return Exposed(self.name, self.value, self.placement, self.requires_grad)
