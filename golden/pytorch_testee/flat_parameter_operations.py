"""FSDP1: the wrapper FullyShardedDataParallel and its composable form. One flat parameter per unit; what a rank holds of an original
parameter is read from the flat parameter's own shard metadata."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed._shard.sharded_tensor import ShardedTensor
from torch.distributed.fsdp import FullStateDictConfig, FullyShardedDataParallel, StateDictType
from torch.distributed.fsdp._common_utils import TrainingState, _FSDPState
from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler
from torch.distributed.fsdp._traversal_utils import _get_fsdp_states_with_modules
from torch.distributed.fsdp._unshard_param_utils import FLAT_PARAM

from fsdp_cts_sdk import Exposed, Model, Parameter, StateDict, whole
from fsdp_cts_sdk.dtypes import dtype_from_name
from fsdp_cts_sdk.graph import clean_name
from fsdp_cts_sdk.modules import class_label
from pytorch_testee.checkpoints import Checkpoints
from pytorch_testee.flat_units import apply_composable, apply_wrapper, unit_settings
from pytorch_testee.flat_views import FlatViews
from pytorch_testee.groups import Groups
from pytorch_testee.instruments import Instruments
from pytorch_testee.placements import state_item

Step = dict[str, Any]


class FlatParameterOperations(Checkpoints):
    def __init__(self, groups: Groups, instruments: Instruments) -> None:
        self._groups = groups
        self._instruments = instruments

    # Construction.
    def shard(self, model: Model) -> None:
        self._instruments.know(model)
        dist.set_debug_level_from_env()  # PyTorch reads it when a process starts, and a case may switch it
        apply = apply_wrapper if model.plan["api"] == "fsdp" else apply_composable
        for unit in model.plan["units"]:
            apply(model, unit, self._groups, lambda module: self._initialize(model, module))

    def _initialize(self, model: Model, module: torch.nn.Module) -> None:
        """`param_init_fn`."""
        module.to_empty(device=self.device, recurse=False)
        prefix = f"{model.paths[module]}." if model.paths[module] else ""
        owned = [("parameters", module.named_parameters(recurse=False)), ("buffers", module.named_buffers(recurse=False))]
        with torch.no_grad():
            for kind, tensors in owned:
                for name, tensor in tensors:
                    tensor.copy_(self.context.data.value(f"{kind}/{model.instance}/{prefix}{name}", tensor.shape))

    def materialize(self, model: Model) -> None:
        """The constructor has allocated already; only values are missing."""
        self.load_initial_values(model)

    def named_parameters(self, model: Model) -> list[tuple[str, torch.Tensor]]:
        """A flat parameter goes by the name of the first parameter in it."""
        flat = {id(view.flat): view.name for view in reversed(FlatViews(model, states(model)).all())}
        return [(flat.get(id(p), clean_name(name)), p) for name, p in model.module.named_parameters()]

    def make_scaler(self, model: Model, settings: dict[str, Any]) -> torch.amp.GradScaler:
        return ShardedGradScaler(self.device.type, process_group=self._groups.process_group("world"), **settings)

    # Training.
    def enter(self, model: Model, step: Step) -> AbstractContextManager[Any]:
        if step["scope"] == "summon":
            names = ("writeback", "rank0_only", "recurse", "with_grads", "offload_to_cpu")
            arguments = {name: step[name] for name in names if name in step}
            return FullyShardedDataParallel.summon_full_params(model.module, **arguments)
        if isinstance(model.module, FullyShardedDataParallel):
            return model.module.no_sync()
        return _without_gradient_sync(states(model))

    def control(self, model: Model, step: Step) -> None:
        """`register_comm_hook`, the one control that this API has."""

        dtype = dtype_from_name(step["dtype"]) if "dtype" in step else None

        def hook(group: dist.ProcessGroup, gradient: torch.Tensor, output: torch.Tensor | None = None) -> None:
            sent = gradient.to(dtype or gradient.dtype)
            sent.mul_(step["scale"]).add_(step.get("add", 0))
            if output is None:
                dist.all_reduce(sent, group=group)
                gradient.copy_(sent)
            else:
                reduced = output.to(sent.dtype)
                dist.reduce_scatter_tensor(reduced, sent, group=group)
                output.copy_(reduced)

        model.module.register_comm_hook(model.module.process_group, hook)

    def clip_grad_norm(self, model: Model, max_norm: float, norm_type: float) -> torch.Tensor:
        return model.module.clip_grad_norm_(max_norm, norm_type)

    # State.
    def parameters(self, model: Model) -> list[Parameter]:
        views = FlatViews(model, states(model))
        return [views.parameter(slot) for slot in model.parameter_slots]

    def full_parameters(self, model: Model) -> list[Exposed]:
        summoned = any(state.training_state == TrainingState.SUMMON_FULL_PARAMS for state, _ in states(model))
        scope = contextlib.nullcontext() if summoned else FullyShardedDataParallel.summon_full_params(model.module, writeback=False)
        with scope:
            return [
                Exposed(slot.name, slot.tensor.detach().clone(), whole(slot.shape), slot.tensor.requires_grad)
                for slot in model.parameter_slots
            ]

    def optimizer_state(self, model: Model, optimizer: torch.optim.Optimizer) -> list[Exposed]:
        views = FlatViews(model, states(model))
        found: list[Exposed] = []
        for slot in model.parameter_slots:
            parameter = views.updated_by_optimizers(slot)
            for key, value in optimizer.state.get(parameter, {}).items():
                if isinstance(value, torch.Tensor) and value.shape == parameter.shape:
                    local, placement = views.part_of(slot, value)
                    found.append(Exposed(f"{slot.name}/{key}", local, placement))
        return found

    def state_dict(self, model: Model, kind: str, config: FullStateDictConfig | None = None) -> StateDict:
        with FullyShardedDataParallel.state_dict_type(model.module, _STATE_DICT_TYPES[kind], config):
            native = model.module.state_dict()
        if kind == "local":
            native = {name: _own_copy(value) for name, value in native.items()}
            return StateDict({"kind": kind, "state": native}, self._in_local(model, dict(native)))
        views = FlatViews(model, states(model))
        in_units = {name for state, _ in states(model) for name in views.names_in(state._handle)}
        # The rest, buffers and what FSDP leaves alone, torch.nn.Module hands out as it is.
        native = {name: value if clean_name(name) in in_units else value.clone() for name, value in native.items()}
        return StateDict({"kind": kind, "state": native}, [state_item(clean_name(name), v) for name, v in native.items()])

    def _in_local(self, model: Model, native: dict[str, Any]) -> list[Exposed]:
        views = FlatViews(model, states(model))
        names = {module: clean_name(name) for name, module in model.module.named_modules()}
        items: list[Exposed] = []
        for state, module in states(model):
            prefix = f"{names[module]}." if names[module] else ""
            saved = native.pop(f"{prefix}{FLAT_PARAM}", None)
            if saved is None:  # nothing in it, or NO_SHARD, of which PyTorch makes a full dict
                continue
            items += [Exposed(prefix + name, *part) for name, *part in views.parts_of_local(state._handle, saved)]
        # Original parameters that are shown stand there as well, as they lie.
        in_units = {item.name for item in items}
        return items + [state_item(clean_name(name), value) for name, value in native.items() if clean_name(name) not in in_units]

    def full_state_dict(self, model: Model, rank0_only: bool, offload_to_cpu: bool) -> StateDict:
        return self.state_dict(model, "full", FullStateDictConfig(rank0_only=rank0_only, offload_to_cpu=offload_to_cpu))

    def load_state_dict(self, model: Model, state: StateDict) -> None:
        # A plain module's is full, and names no kind.
        kind, saved = (state.native["kind"], state.native["state"]) if "kind" in state.native else ("full", state.native)
        of_kind = FullyShardedDataParallel.state_dict_type(model.module, _STATE_DICT_TYPES[kind])
        with of_kind if states(model) else contextlib.nullcontext():  # not wrapped yet, it is a plain module
            model.module.load_state_dict(dict(saved))  # the hooks empty the dictionary they are given

    def zero_parameters(self, model: Model) -> None:
        with FullyShardedDataParallel.summon_full_params(model.module), torch.no_grad():
            for parameter in model.module.parameters():
                parameter.zero_()

    def set_requires_grad(self, model: Model, name: str, value: bool) -> None:
        """Without original parameters the flat one that holds them is all that a user can freeze."""
        handle = next((view.handle for view in FlatViews(model, states(model)).all() if view.name == name), None)
        if handle is None or handle._use_orig_params:
            super().set_requires_grad(model, name, value)
        else:
            handle.flat_param.requires_grad_(value)

    def exposed(self, model: Model, name: str) -> torch.Tensor:
        """An original parameter that is not exposed can still be written to in place, where it lies in the flat one."""
        return FlatViews(model, states(model)).parameter(model.slot(name)).value

    # What only an FSDP library has.
    def units(self, model: Model) -> list[dict[str, Any]]:
        views = FlatViews(model, states(model))
        return [
            {
                "module": model.paths[_inner(module)],
                "class": class_label(_inner(module)),
                "settings": unit_settings(state),
                "parameters": views.names_in(state._handle),
            }
            for state, module in states(model)
        ]

    def counters(self, model: Model) -> dict[str, int]:
        return self._instruments.counters(model)

    def training_state(self, model: Model) -> str:
        found = [state.training_state for state, _ in states(model)]
        found += [state._handle._training_state for state, _ in states(model) if state._handle]
        return next((state.name.lower() for state in found if state.name != "IDLE"), "idle")


_STATE_DICT_TYPES = {
    "full": StateDictType.FULL_STATE_DICT,
    "sharded": StateDictType.SHARDED_STATE_DICT,
    "local": StateDictType.LOCAL_STATE_DICT,
}


def _own_copy(value: torch.Tensor | ShardedTensor) -> torch.Tensor | ShardedTensor:
    """What a local state dict holds lies in the flat parameter itself."""
    if not isinstance(value, ShardedTensor):
        return value.clone()
    for shard in value.local_shards():
        shard.tensor = shard.tensor.clone()
    return value


def states(model: Model) -> list[tuple[_FSDPState, torch.nn.Module]]:
    """FSDP's states with the module they stand on (the wrapper itself, or the original module), in module order."""
    return list(zip(*_get_fsdp_states_with_modules(model.module)))


def _inner(module: torch.nn.Module) -> torch.nn.Module:
    return getattr(module, "_fsdp_wrapped_module", module)


@contextmanager
def _without_gradient_sync(states: list[tuple[_FSDPState, torch.nn.Module]]) -> Iterator[None]:
    """The composable form never had a `no_sync` of its own; the flag it would have set is this one."""
    before = [state._sync_gradients for state, _ in states]
    for state, _ in states:
        state._sync_gradients = False
    try:
        yield
    finally:
        for (state, _), sync in zip(states, before):
            state._sync_gradients = sync
