"""What an adapter implements. Every operation has a default that is right for a plain unsharded torch model on one rank, so an adapter
overrides only what its library does differently; the interpreter turns programs into these calls and answers into messages."""

from __future__ import annotations

import contextlib
import copy
import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from fsdp_cts_sdk.context import Context
from fsdp_cts_sdk.dtypes import dtype_from_name
from fsdp_cts_sdk.errors import Unsupported
from fsdp_cts_sdk.graph import clean_name
from fsdp_cts_sdk.model import Model
from fsdp_cts_sdk.optimizers import make_optimizer
from fsdp_cts_sdk.placement import Exposed, Parameter, whole

Step = dict[str, Any]


@dataclass
class Identity:
    """What `hello` says (PROTOCOL.md, section 3)."""

    name: str
    version: str
    apis: list[str]
    backend: str = "none"
    device: str = "cpu"
    reduction_order: str = "unspecified"  # rank | ring | unspecified
    environment: dict[str, str] = field(default_factory=dict)


@dataclass
class StateDict:
    """`native` is what the library gave and takes back; `items` are detached descriptions of its contents for the observer."""

    native: dict[str, Any]
    items: list[Exposed]


@dataclass
class Checkpoint:
    """What `save_checkpoint` and `load_checkpoint` are about."""

    format: str  # native | safetensors (PROTOCOL.md, section 8)
    folder: str  # exists; the same for all ranks
    model: Model
    optimizer: torch.optim.Optimizer | None  # None: weights only


class Operations:
    context: Context  # the running case; set by the interpreter before `rendezvous`
    device = torch.device("cpu")

    def identity(self) -> Identity:
        raise NotImplementedError

    def unsupported(self, case: dict[str, Any]) -> str | None:
        """Why this case is not for this testee, from the case alone. Asked before anything else. An operation that is first found wanting
        when it is called may raise Unsupported instead, on every rank at the same step."""
        return None

    def rendezvous(self) -> None:
        """First call of a case: make or reuse process groups (step -1 of the protocol)."""

    def end_case(self) -> None:
        """Models, registers and optimizers are about to be dropped. Always called after `rendezvous`."""

    # Instruments below the library, for devices that have them.
    def observing(self) -> AbstractContextManager[Any]:
        """Around everything that the SDK does to look at the program, and that is no part of it."""
        return contextlib.nullcontext()

    def device_findings(self) -> list[dict[str, Any]]:
        """What the device has found since the last call: PROTOCOL.md, message `finding`."""
        return []

    def device_use(self) -> dict[str, Any] | None:
        """Memory and waits of the host since the last call: PROTOCOL.md, message `device_use`; None: nobody counts."""
        return None

    def device_launches(self) -> int | None:
        """How many operators the device has been given in this case; None: nobody counts."""
        return None

    def device_kept_bytes(self) -> int | None:
        """Bytes on the device beyond what was there when the case began, now that nothing of it is left; None: nobody counts."""
        return None

    def memory(self) -> dict[str, int]:
        """Of this rank's device, in bytes: `current`, and `peak`, the most since the last call. Nothing on a CPU."""
        if self.device.type == "cpu":
            return {}
        bytes_ = {"current": torch.accelerator.memory_allocated(self.device), "peak": torch.accelerator.max_memory_allocated(self.device)}
        torch.accelerator.reset_peak_memory_stats(self.device)
        return bytes_

    def virtual_time(self) -> dict[str, int]:
        """Nanoseconds since the last call, or since the case began: duration, compute, communication, exposed_communication. Nothing where
        no time is simulated."""
        return {}

    # Construction.
    def shard(self, model: Model) -> None:
        """Applies `model.plan`; puts a wrapper into `model.module` if it must."""
        raise Unsupported("this testee does not shard")

    def materialize(self, model: Model) -> None:
        """From meta: allocate, then this rank's values from the data file."""
        model.module.to_empty(device=self.device)
        self.load_initial_values(model)

    def load_initial_values(self, model: Model) -> None:
        data, instance = self.context.data, model.instance
        with torch.no_grad():
            for parameter in self.parameters(model):
                initial = data.value(f"parameters/{instance}/{parameter.name}", parameter.placement.global_shape).reshape(-1)
                local, begin = parameter.value.view(-1), 0
                for extent in parameter.placement.extents:
                    local[begin : begin + extent.length].copy_(initial[extent.offset : extent.offset + extent.length])
                    begin += extent.length
            for slot in model.buffer_slots:
                slot.tensor.copy_(data.value(f"buffers/{instance}/{slot.name}", slot.shape))

    def move(self, model: Model) -> None:
        """From wherever it was built to this testee's device."""
        model.module.to(self.device)

    def cast(self, model: Model, dtype: torch.dtype, match: str | None = None) -> None:
        """Floating parameters and buffers, sharded or not; with a pattern the parameters that it is found in."""
        if match is None:
            model.module.to(dtype)
            return
        for name, parameter in self.named_parameters(model):
            if re.search(match, name) and parameter.is_floating_point():
                parameter.data = parameter.data.to(dtype)

    def named_parameters(self, model: Model) -> list[tuple[str, torch.Tensor]]:
        """What an optimizer made now would update, by the scenario's names."""
        return [(clean_name(name), parameter) for name, parameter in model.module.named_parameters()]

    def make_optimizer(self, model: Model, step: Step) -> torch.optim.Optimizer:
        return make_optimizer(step, self.named_parameters(model))

    def make_scaler(self, model: Model, settings: dict[str, Any]) -> torch.amp.GradScaler:
        return torch.amp.GradScaler(self.device.type, **settings)

    def compile(self, model: Model, step: Step) -> None:
        raise Unsupported("this testee compiles no graphs")

    # Training.
    def forward(self, model: Model, module: str, inputs: list[torch.Tensor]) -> Any:
        """`module`: path of the part to call, "" is all."""
        return (model.now(module) if module else model.called)(*inputs)

    def call_method(self, model: Model, module: str, method: str, inputs: list[torch.Tensor]) -> Any:
        return getattr(model.now(module), method)(*inputs)

    def register_forward_method(self, model: Model, module: str, method: str) -> None:
        """From now on the method of that module counts as its forward. Where nothing stands around forward it needs nothing."""

    def backward(self, loss: torch.Tensor, create_graph: bool) -> None:
        loss.backward(create_graph=create_graph)

    def hook_gradient(self, model: Model, name: str, hook: Callable[[torch.Tensor], None]) -> None:
        """From now on `hook` gets the parameter whenever its gradient has been set or added to: by autograd, or, where gradients are
        reduced, once the reduced one is there."""
        self.exposed(model, name).register_post_accumulate_grad_hook(hook)

    def set_training(self, model: Model, training: bool) -> None:
        model.module.train(training)

    def zero_grad(self, model: Model, set_to_none: bool) -> None:
        model.module.zero_grad(set_to_none)

    def control(self, model: Model, step: Step) -> None:
        """set_requires_gradient_sync … unshard, reshard, set_*_prefetch."""
        raise Unsupported(f"this testee has no '{step['verb']}'")

    def enter(self, model: Model, step: Step) -> AbstractContextManager[Any]:
        """The scope `no_sync` or `summon`, not yet entered. (`no_grad` is the interpreter's.)"""
        raise Unsupported(f"this testee has no scope '{step['scope']}'")

    def clip_grad_norm(self, model: Model, max_norm: float, norm_type: float) -> torch.Tensor:
        return nn.utils.clip_grad_norm_(model.module.parameters(), max_norm, norm_type)

    def delay(self, seconds: float, at: str) -> None:
        """From now on wait that long `before_reduce` or `before_free`."""
        raise Unsupported(f"this testee cannot wait at '{at}'")

    # State.
    def parameters(self, model: Model) -> list[Parameter]:
        """Registration order, tied ones once."""
        return [
            Parameter(slot.name, slot.tensor, whole(slot.shape), slot.tensor.requires_grad, slot.tensor.grad)
            for slot in model.parameter_slots
        ]

    def full_parameters(self, model: Model) -> list[Exposed]:
        return [parameter.as_value() for parameter in self.parameters(model)]

    def buffers(self, model: Model) -> list[Exposed]:
        return [Exposed(slot.name, slot.tensor, whole(slot.tensor.shape)) for slot in model.buffer_slots]

    def optimizer_state(self, model: Model, optimizer: torch.optim.Optimizer) -> list[Exposed]:
        """What has the parameter's shape: exp_avg, exp_avg_sq, momentum_buffer."""
        return [
            Exposed(f"{name}/{key}", value, whole(value.shape))
            for name, parameter in self.named_parameters(model)
            for key, value in optimizer.state.get(parameter, {}).items()
            if isinstance(value, torch.Tensor) and value.shape == parameter.shape
        ]

    def state_dict(self, model: Model, kind: str) -> StateDict:
        native = {name: value.detach().clone() for name, value in model.module.state_dict().items()}
        return StateDict(native, [Exposed(clean_name(name), value, whole(value.shape)) for name, value in native.items()])

    def full_state_dict(self, model: Model, rank0_only: bool, offload_to_cpu: bool) -> StateDict:
        """A full one with options of its own."""
        raise Unsupported("this testee's state dicts have no options")

    def load_state_dict(self, model: Model, state: StateDict) -> None:
        model.module.load_state_dict(state.native)

    def broadcast_state_dict(self, model: Model, state: StateDict) -> None:
        """A full one, of which only the first rank's is looked at."""
        raise Unsupported("this testee loads state dicts that every rank has")

    def optimizer_state_dict(self, model: Model, optimizer: torch.optim.Optimizer, kind: str) -> StateDict:
        """Items are named <parameter>/<state>; what has no parameter's shape, as step counters, is in `native` only."""
        items = self.optimizer_state(model, optimizer)
        for item in items:
            item.value = item.value.clone()
        return StateDict(copy.deepcopy(optimizer.state_dict()), items)

    def load_optimizer_state_dict(self, model: Model, optimizer: torch.optim.Optimizer, state: StateDict) -> None:
        optimizer.load_state_dict(copy.deepcopy(state.native))

    def save_checkpoint(self, checkpoint: Checkpoint) -> None:
        """Collective."""
        raise Unsupported(f"this testee saves no checkpoint as {checkpoint.format}")

    def load_checkpoint(self, checkpoint: Checkpoint) -> None:
        """Collective."""
        raise Unsupported(f"this testee loads no checkpoint from {checkpoint.format}")

    def zero_parameters(self, model: Model) -> None:
        with torch.no_grad():
            for parameter in model.module.parameters():
                parameter.zero_()

    def exposed(self, model: Model, name: str) -> torch.Tensor:
        """The tensor that user code finds in the parameter's slot now."""
        return model.slot(name).tensor

    def local(self, tensor: torch.Tensor) -> torch.Tensor:
        """What this rank holds of a tensor that user code sees; of a class of its own only the implementation knows."""
        if type(tensor) not in (torch.Tensor, nn.Parameter):
            raise Unsupported(f"mutate gives plain values, and found a {type(tensor).__name__}")
        return tensor

    def with_local(self, like: torch.Tensor, local: torch.Tensor) -> torch.Tensor:
        """A tensor for user code, placed as `like` is, of which this rank holds `local`."""
        return local

    def replace(self, model: Model, name: str, tensor: torch.Tensor) -> None:
        """User code assigns another parameter to the slot."""
        slot = model.slot(name)
        setattr(slot.owner, slot.attribute, nn.Parameter(tensor, slot.tensor.requires_grad))

    def set_requires_grad(self, model: Model, name: str, value: bool) -> None:
        self.exposed(model, name).requires_grad_(value)

    def set_buffer(self, model: Model, name: str, dtype: str) -> None:
        slot = next((slot for slot in model.buffer_slots if slot.name == name), None)
        if slot is None:
            raise KeyError(f"model '{model.instance}' has no buffer '{name}'")
        setattr(slot.owner, slot.attribute, slot.tensor.to(dtype_from_name(dtype)))

    # What only an FSDP library has.
    def units(self, model: Model) -> list[dict[str, Any]]:
        return []

    def counters(self, model: Model) -> dict[str, int]:
        return {}

    def training_state(self, model: Model) -> str:
        return "idle"


def pieces(value: torch.Tensor, exposed: Exposed) -> Iterator[tuple[int, torch.Tensor]]:
    """The extents of an item with their elements: (flat offset in the global tensor, elements)."""
    local, begin = value.detach().reshape(-1), 0
    for extent in exposed.placement.extents:
        yield extent.offset, local[begin : begin + extent.length]
        begin += extent.length
