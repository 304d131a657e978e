"""Real PyTorch as a testee: FSDP2, FSDP1's wrapper and FSDP1's composable form, by the API that the model's plan names."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch.distributed.tensor import DTensor

from fsdp_cts_sdk import Checkpoint, Identity, Model, Operations, StateDict
from fsdp_cts_sdk.collective_tap import CollectiveTap
from fsdp_cts_sdk.sleep import sleep
from pytorch_testee import compiling, placements
from pytorch_testee.flat_parameter_operations import FlatParameterOperations
from pytorch_testee.fully_shard_operations import FullyShardOperations
from pytorch_testee.groups import Groups
from pytorch_testee.instruments import Instruments
from pytorch_testee.support import APIS, reason_unsupported


class _Unsharded(Operations):
    def load_state_dict(self, model: Model, state: StateDict) -> None:
        """A plain model takes what an FSDP1 model has saved, which keeps its kind beside it."""
        model.module.load_state_dict(state.native["state"] if state.native.keys() == {"kind", "state"} else state.native)


class PyTorchTestee(Operations):
    def __init__(self, backend: str, device: torch.device) -> None:
        self.device = device
        self._backend = backend
        self._compiled = False  # in this case
        self._groups = Groups(backend, device)
        self._tap = CollectiveTap()
        self._instruments = Instruments(self._tap, device)
        fsdp1 = FlatParameterOperations(self._groups, self._instruments)
        self._fsdp2 = FullyShardOperations(self._groups, self._instruments)
        self._by_api: dict[str | None, Operations] = {"fully_shard": self._fsdp2, "fsdp": fsdp1, "composable": fsdp1, None: _Unsharded()}
        for operations in self._by_api.values():
            operations.device = device

    def identity(self) -> Identity:
        # Gloo adds along its ring, our shared memory in the order of ranks; other backends promise nothing.
        order = {"gloo": "ring", "shm": "rank"}.get(self._backend, "unspecified")
        made_of = {"composable": "front door rebuilt over FSDP1's internals; PyTorch removed its own after 2.5"}
        return Identity("pytorch", torch.__version__, list(APIS), self._backend, self.device.type, order, made_of)

    def unsupported(self, case: dict[str, Any]) -> str | None:
        return reason_unsupported(case, self.device)

    def rendezvous(self) -> None:
        for operations in self._by_api.values():
            operations.context = self.context
        if self._groups.prepare(self.context.case):
            self._tap.check(self.device)
        self._tap.into = self.context.trace

    def end_case(self) -> None:
        self._fsdp2.end_case()
        self._tap.into = None
        self._tap.before_reduce_scatter = lambda: None
        self._instruments.end_case()
        if self._compiled:
            compiling.forget()
        self._compiled = False

    def delay(self, seconds: float, at: str) -> None:
        if at == "before_reduce":
            self._tap.before_reduce_scatter = functools.partial(sleep, seconds, self.device)
        else:
            self._instruments.delay_before_free = seconds

    def compile(self, model: Model, step: dict[str, Any]) -> None:
        model.compiled = compiling.compiled(model.module, step["skip_fsdp_guards"])
        self._compiled = True

    def save_checkpoint(self, checkpoint: Checkpoint) -> None:
        self._of(checkpoint.model).save_checkpoint(checkpoint)

    def load_checkpoint(self, checkpoint: Checkpoint) -> None:
        self._of(checkpoint.model).load_checkpoint(checkpoint)

    def local(self, tensor: torch.Tensor) -> torch.Tensor:
        return placements.local(tensor)

    def with_local(self, like: torch.Tensor, local: torch.Tensor) -> torch.Tensor:
        if not isinstance(like, DTensor):
            return local
        return DTensor.from_local(local, like.device_mesh, like.placements, run_check=False, shape=like.shape, stride=like.stride())

    def counters(self, model: Model) -> dict[str, int]:
        counted = self._of(model).counters(model)
        if "output" in self.context.registers:
            counted["output_backward_hooks"] = len(self.context.all_of("output")[0]._backward_hooks or ())
        return counted

    def _of(self, model: Model) -> Operations:
        """A model that has a plan but is not sharded yet is a plain module, and all of them treat it as one."""
        return self._by_api[model.plan["api"] if model.plan else None]


def _by_api(name: str) -> Callable[..., Any]:
    def call(self: PyTorchTestee, model: Model, *arguments: Any) -> Any:
        return getattr(self._of(model), name)(model, *arguments)

    return call


for _name in (
    *("shard", "materialize", "move", "cast", "named_parameters", "make_optimizer", "make_scaler"),
    *("forward", "call_method", "register_forward_method", "set_training", "zero_grad", "hook_gradient", "control", "enter", "clip_grad_norm"),
    *("parameters", "full_parameters", "buffers", "optimizer_state", "zero_parameters"),
    *("state_dict", "full_state_dict", "load_state_dict", "broadcast_state_dict"),
    *("optimizer_state_dict", "load_optimizer_state_dict"),
    *("exposed", "replace", "set_requires_grad", "set_buffer", "units", "training_state"),
):
    setattr(PyTorchTestee, _name, _by_api(_name))
