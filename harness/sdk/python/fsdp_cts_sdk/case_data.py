"""The data file of a case as one rank sees it."""

from __future__ import annotations

from collections.abc import Sequence

import torch


class CaseData:
    """Names as in PROTOCOL.md, section 4. A tensor made for this rank (`name@rank`) wins over the common one."""

    def __init__(self, tensors: dict[str, torch.Tensor], rank: int, device: torch.device) -> None:
        self._tensors = tensors
        self._rank = rank
        self._device = device

    def find(self, name: str) -> torch.Tensor | None:
        tensor = self._tensors.get(f"{name}@{self._rank}")
        return self._tensors.get(name) if tensor is None else tensor

    def value(self, name: str, shape: Sequence[int] | None = None) -> torch.Tensor:
        """Not a copy: do not write into it. Raises ValueError for what is missing or has another shape than asked for."""
        tensor = self.find(name)
        if tensor is None:
            raise ValueError(f"the data file has neither '{name}' nor '{name}@{self._rank}'")
        if shape is not None and tuple(tensor.shape) != tuple(shape):
            raise ValueError(f"'{name}' has shape {list(tensor.shape)} in the data file, the model wants {list(shape)}")
        return tensor

    def input(self, name: str) -> torch.Tensor:
        """On the device; the copy does not make the host wait, since the program has not asked it to."""
        return self.value(f"inputs/{name}").to(self._device, non_blocking=True)
