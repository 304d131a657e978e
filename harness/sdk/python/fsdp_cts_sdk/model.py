"""An instance of a case's model: the module, and where each of its parameters and buffers is."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from fsdp_cts_sdk.case_data import CaseData
from fsdp_cts_sdk.modules import build_module
from fsdp_cts_sdk.recorder import Recorder


@dataclass(frozen=True)
class Slot:
    """Place of a parameter or buffer: the module that owns it and the attribute there. What stands in it may change."""

    name: str
    owner: nn.Module
    attribute: str
    shape: tuple[int, ...]

    @property
    def tensor(self) -> torch.Tensor:
        return getattr(self.owner, self.attribute)


class Model:
    """Alive from `build` to the end of the case, or to the next `build` of the same name."""

    def __init__(self, instance: str, module: nn.Module, plan: dict[str, Any] | None) -> None:
        self.instance = instance
        self.module = module  # what is called; `shard` may put a wrapper here
        self.built = module  # stays what was built
        self.compiled: Callable[..., Any] | None = None  # what a graph compiler made of `module`
        self.plan = plan
        named = dict(module.named_modules(remove_duplicate=False))
        self.modules = named
        self.paths = {submodule: path for path, submodule in module.named_modules()}
        self.parameter_slots = [_slot(named, name, p) for name, p in module.named_parameters()]  # tied ones once, at the first
        self.buffer_slots = [_slot(named, name, b) for name, b in module.named_buffers()]
        self._slots = {slot.name: slot for slot in self.parameter_slots}

    @property
    def called(self) -> Callable[..., Any]:
        return self.compiled or self.module

    def slot(self, name: str) -> Slot:
        if name not in self._slots:
            raise KeyError(f"model '{self.instance}' has no parameter '{name}'; it has {', '.join(self._slots)}")
        return self._slots[name]

    def submodule(self, path: str) -> nn.Module:
        """As built, whatever wraps it by now."""
        if path not in self.modules:
            raise KeyError(f"model '{self.instance}' has no module '{path}'")
        return self.modules[path]

    def part(self, path: str) -> Model:
        """What stands at the path, for operations that look at nothing of a model but its module."""
        if not path:
            return self
        part = copy.copy(self)
        part.module, part.built = self.now(path), self.submodule(path)
        return part

    def now(self, path: str) -> nn.Module:
        """What stands at the path now, its wrapper if it has one."""
        parent, _, name = path.rpartition(".")
        return getattr(self.submodule(parent), name) if path else self.module


def _slot(modules: dict[str, nn.Module], name: str, tensor: torch.Tensor) -> Slot:
    path, _, attribute = name.rpartition(".")
    return Slot(name, modules[path], attribute, tuple(tensor.shape))


def build_model(
    instance: str,
    description: dict[str, Any],
    plan: dict[str, Any] | None,
    data: CaseData,
    device: torch.device,
    recorder: Recorder,
) -> Model:
    """With the initial values of the data file; on the meta device only with shapes."""
    if device.type == "meta":
        with device:
            return Model(instance, build_module(description, recorder), plan)
    model = Model(instance, build_module(description, recorder), plan)
    with torch.no_grad():
        for slot in model.parameter_slots:
            slot.tensor.copy_(data.value(f"parameters/{instance}/{slot.name}", slot.shape))
        for slot in model.buffer_slots:
            initial = data.find(f"buffers/{instance}/{slot.name}")
            if initial is not None:
                slot.tensor.copy_(initial)
    if device.type != "cpu":
        model.module.to(device)
    return model
