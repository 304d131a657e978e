"""What PyTorch calls differently from 2.6 to 2.15, so that one testee drives them all."""

from __future__ import annotations

from typing import Any

import torch

VERSION = tuple(int(part) for part in torch.__version__.split("+")[0].split(".")[:2])


def set_gradient_divide_factor(module: Any, factor: float) -> None:
    """`set_reduce_scatter_divide_factor` before 2.8."""
    set_factor = getattr(module, "set_gradient_divide_factor", None) or module.set_reduce_scatter_divide_factor
    set_factor(factor)
