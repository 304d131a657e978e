"""Answers of Operations become entries of an `observation` message: PROTOCOL.md, section 5."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils.weak import WeakIdKeyDictionary

from fsdp_cts_sdk.dtypes import dtype_name
from fsdp_cts_sdk.errors import Unsupported
from fsdp_cts_sdk.model import Model
from fsdp_cts_sdk.operations import Operations, pieces
from fsdp_cts_sdk.placement import Exposed
from fsdp_cts_sdk.sleep import clock

Entry = dict[str, Any]


@dataclass
class Observation:
    """One `observe` step's, or one attempt's, answer. The tensors are what the entries name; they are the model's own, so that whoever
    keeps them beyond the next step must copy them."""

    step: dict[str, Any]
    index: int
    entries: list[Entry] = field(default_factory=list)
    tensors: dict[str, torch.Tensor] = field(default_factory=dict)


class Observer:
    """One per case: it remembers which parameter objects it has named."""

    def __init__(self, operations: Operations, optimizers: dict[str, tuple[str, torch.optim.Optimizer]]) -> None:
        self._operations = operations
        self._optimizers = optimizers
        self._state_dicts: dict[str, tuple[str, list[Exposed]]] = {}
        self._identities: WeakIdKeyDictionary = WeakIdKeyDictionary()

    def remember_state_dict(self, name: str, instance: str, items: list[Exposed]) -> None:
        self._state_dicts[name] = (instance, items)

    def observe(self, step: dict[str, Any], index: int) -> Observation:
        observation = Observation(step, index)
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")
            for what in step["what"]:
                observation.entries += self._entries(what, step.get("model", "model"), observation.tensors)
        return observation

    def _entries(self, what: str, instance: str, tensors: dict[str, torch.Tensor]) -> list[Entry]:
        if what not in ("loss", "output") and not what.startswith("register:"):
            return [self._entry(what, instance, tensors)]
        tensors[what] = self._operations.context.register(what.removeprefix("register:"))
        return [{"what": what, "tensor": what}]

    def _entry(self, what: str, instance: str, tensors: dict[str, torch.Tensor]) -> Entry:
        if what.startswith("state_dict:"):
            instance, items = self._state_dicts[what.removeprefix("state_dict:")]
            return {"what": what, "model": instance, "items": _items(what, items, tensors)}
        if what.startswith("devices:"):
            _, items = self._state_dicts[what.removeprefix("devices:")]
            return {"what": what, "values": {item.name: _memory_of(item.value) for item in items}}
        if what in _OF_CASE:
            return {"what": what, **_OF_CASE[what](self._operations)}
        model = self._operations.context.model(instance)
        if what in _ITEMS:
            return {"what": what, "model": instance, "items": _items(f"{instance}/{what}", _ITEMS[what](self, model), tensors)}
        if what in _OF_MODEL:
            return {"what": what, "model": instance, **_OF_MODEL[what](self, model)}
        raise Unsupported(f"this testee cannot observe '{what}'")

    def optimizer_state(self, model: Model) -> list[Exposed]:
        made = [optimizer for instance, optimizer in self._optimizers.values() if instance == model.instance]
        return [item for optimizer in made for item in self._operations.optimizer_state(model, optimizer)]

    def full_parameters(self, model: Model) -> list[Exposed]:
        self._operations.context.phase = "summon"
        return self._operations.full_parameters(model)

    def counters(self, model: Model) -> dict[str, int]:
        hooks = self._operations.context.gradient_hooks
        counted = self._operations.counters(model)
        return {**counted, "gradient_hooks": hooks[model.instance]} if model.instance in hooks else counted

    def identities(self, model: Model) -> dict[str, str]:
        named = [(slot.name, self._operations.exposed(model, slot.name)) for slot in model.parameter_slots]
        for _, parameter in named:
            self._identities.setdefault(parameter, f"parameter {len(self._identities)}")
        return {name: self._identities[parameter] for name, parameter in named}


def observables() -> set[str]:
    """What `observe` knows beside registers and state dicts."""
    return {"loss", "output", *_OF_CASE, *_ITEMS, *_OF_MODEL}


def _held(parameter: torch.Tensor) -> torch.Tensor:
    """What of it is on this rank: a DTensor has the shape of the whole."""
    return parameter.to_local() if hasattr(parameter, "to_local") else parameter


def _memory_of(tensor: torch.Tensor) -> str:
    """As PROTOCOL.md has it: a device, and of host memory whether it is pinned."""
    device = str(tensor.device)
    if tensor.device.type != "cpu":
        return device
    if tensor.numel() == 0:
        return device + ":empty"
    return device + ":pinned" if tensor.is_pinned() else device


_ITEMS: dict[str, Callable[[Observer, Model], list[Exposed]]] = {
    "parameters": lambda o, model: [p.as_value() for p in o._operations.parameters(model)],
    "gradients": lambda o, model: [p.as_gradient() for p in o._operations.parameters(model)],
    "full_parameters": Observer.full_parameters,
    "buffers": lambda o, model: o._operations.buffers(model),
    "optimizer_state": Observer.optimizer_state,
}

_OF_MODEL: dict[str, Callable[[Observer, Model], Entry]] = {
    "units": lambda o, model: {"units": o._operations.units(model)},
    "counters": lambda o, model: {"values": o.counters(model)},
    "training_state": lambda o, model: {"value": o._operations.training_state(model)},
    "identity": lambda o, model: {"values": o.identities(model)},
    "registered_parameters": lambda o, model: {"values": {name: list(_held(p).shape) for name, p in model.module.named_parameters()}},
    "devices": lambda o, model: {"values": {p.name: _memory_of(p.value) for p in o._operations.parameters(model)}},
}


def _drain_warnings(operations: Operations) -> Entry:
    found, operations.context.warnings[:] = list(operations.context.warnings), []
    return {"warnings": found}


_OF_CASE: dict[str, Callable[[Operations], Entry]] = {
    "trace": lambda operations: {"events": operations.context.trace.drain()},
    "recorded": lambda operations: {"values": dict(operations.context.recorder.dtypes)},
    "seen_parameters": lambda operations: {"values": dict(operations.context.recorder.parameters)},
    "warnings": _drain_warnings,
    "clock": lambda operations: {"values": {"milliseconds": clock()}},
    "memory": lambda operations: {"values": operations.memory()},
    "virtual_time": lambda operations: {"values": operations.virtual_time()},
}


def _items(prefix: str, exposed: Iterable[Exposed], tensors: dict[str, torch.Tensor]) -> list[Entry]:
    return [_item(f"{prefix}/{item.name}", item, tensors) for item in exposed]


def _item(key: str, item: Exposed, tensors: dict[str, torch.Tensor]) -> Entry:
    entry: Entry = {
        "name": item.name,
        "global_shape": list(item.placement.global_shape),
        "dtype": dtype_name(item.dtype if item.value is None else item.value.dtype),
        "sharded": item.placement.sharded,
        "requires_grad": item.requires_grad,
        "none": item.value is None,
        "pieces": [],
    }
    if item.value is not None and not item.value.is_contiguous():
        entry["contiguous"] = False
    for number, (offset, elements) in enumerate(pieces(item.value, item) if item.value is not None else ()):
        name = f"{key}#{number}"
        tensors[name] = elements
        entry["pieces"].append({"tensor": name, "offset": offset, "length": elements.numel()})
    return entry
