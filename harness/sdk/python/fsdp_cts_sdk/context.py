"""What an adapter may know while a case runs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch

from fsdp_cts_sdk.case_data import CaseData
from fsdp_cts_sdk.model import Model
from fsdp_cts_sdk.recorder import Recorder
from fsdp_cts_sdk.trace import Trace

PHASES = ("construction", "lazy_init", "forward", "backward", "optimizer", "summon", "state_dict", "other")


@dataclass
class Context:
    rank: int
    world: int
    case: dict[str, Any]
    data: CaseData
    recorder: Recorder = field(default_factory=Recorder)
    trace: Trace = field(default_factory=Trace)  # where a tap notes collectives
    models: dict[str, Model] = field(default_factory=dict)
    registers: dict[str, tuple[torch.Tensor, ...]] = field(default_factory=dict)
    gradient_hooks: dict[str, int] = field(default_factory=dict)  # calls of `step_in_backward`'s hooks, by instance
    phase: str = "other"  # one of PHASES: the running verb's
    warnings: list[dict[str, str]] = field(default_factory=list)  # since the last `warnings` observation

    def model(self, instance: str) -> Model:
        if instance not in self.models:
            raise KeyError(f"no model '{instance}' has been built; built are {', '.join(self.models) or 'none'}")
        return self.models[instance]

    def register(self, name: str) -> torch.Tensor:
        tensors = self.all_of(name)
        if len(tensors) != 1:
            raise ValueError(f"'{name}' holds {len(tensors)} tensors; give each output of the module a name, forward: {{output: [a, b]}}")
        return tensors[0]

    def all_of(self, name: str) -> tuple[torch.Tensor, ...]:
        if name not in self.registers:
            raise KeyError(f"no register '{name}'; filled are {', '.join(self.registers) or 'none'}")
        return self.registers[name]
