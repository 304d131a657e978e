"""FSDP2: torch.distributed.fsdp.fully_shard."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import CPUOffloadPolicy, FSDPModule, MixedPrecisionPolicy, fully_shard, register_fsdp_forward_method
from torch.distributed.fsdp._fully_shard._fsdp_param import FSDPParam
from torch.distributed.fsdp._fully_shard._fsdp_state import FSDPState
from torch.distributed.tensor import DTensor, Shard

from fsdp_cts_sdk import Exposed, Model, Parameter, StateDict, whole
from fsdp_cts_sdk.dtypes import optional_dtype, optional_dtype_name
from fsdp_cts_sdk.errors import Unsupported
from fsdp_cts_sdk.graph import clean_name
from fsdp_cts_sdk.modules import class_label
from pytorch_testee.checkpoints import Checkpoints
from pytorch_testee.compat import set_gradient_divide_factor
from pytorch_testee.groups import Groups
from pytorch_testee.instruments import Instruments
from pytorch_testee.placements import local, placement_of

Step = dict[str, Any]


class FullyShardOperations(Checkpoints):
    def __init__(self, groups: Groups, instruments: Instruments) -> None:
        self._groups = groups
        self._instruments = instruments
        self._unshards: dict[tuple[str, str], Any] = {}  # begun in this case, by instance and module path

    def end_case(self) -> None:
        """A gather that nobody waited for is forward's to end, and no later case's."""
        self._unshards.clear()

    # Construction.
    def shard(self, model: Model) -> None:
        mesh = self._groups.mesh(model.plan)
        if model.plan.get("replicas") == "by_hook":
            mesh = mesh["shard"]
        self._instruments.know(model)
        for unit in model.plan["units"]:
            modules = [model.submodule(path) for path in unit["modules"]]
            fully_shard(modules[0] if len(modules) == 1 else modules, mesh=mesh, **_arguments(model, unit))

    # Training.
    def register_forward_method(self, model: Model, module: str, method: str) -> None:
        register_fsdp_forward_method(model.submodule(module), method)

    def control(self, model: Model, step: Step) -> None:
        verb, value, target = step["verb"], step.get("value"), model.submodule(step.get("module", ""))
        if verb in ("set_is_last_backward", "set_unshard_in_backward", "set_force_sum_reduction_for_comms"):  # of this module, whatever is below it
            getattr(target, verb)(value)
        elif verb == "set_unshard_async_op":
            target._set_unshard_async_op(value)  # of the whole subtree
        elif verb == "set_gradient_divide_factor":
            set_gradient_divide_factor(target, value)
        elif verb == "set_post_optim_event":
            event = torch.Event(self.device)
            event.record()
            target.set_post_optim_event(event)
        elif verb == "set_all_reduce_hook":
            target.set_all_reduce_hook(self._all_reduce_hook(model, step))
        elif verb == "unshard" and step.get("async"):
            self._unshards[model.instance, step["module"]] = target.unshard(async_op=True)
        elif verb == "wait_unshard":
            self._unshards.pop((model.instance, step["module"])).wait()
        elif verb in ("unshard", "reshard"):
            getattr(target, verb)()
        elif verb in ("set_forward_prefetch", "set_backward_prefetch"):
            direction = verb.removeprefix("set_").removesuffix("_prefetch")
            getattr(target, f"set_modules_to_{direction}_prefetch")([model.submodule(path) for path in step["targets"]])
        else:
            for module in _fsdp_modules(target) if step.get("recurse", True) else [target]:
                getattr(module, verb)(value, recurse=False)

    def _all_reduce_hook(self, model: Model, step: Step) -> Callable[[torch.Tensor], None]:
        group = self._groups.mesh(model.plan).get_group("replicate") if "mean_over" in step else None

        def hook(reduced: torch.Tensor) -> None:
            if group is not None:
                dist.all_reduce(reduced, group=group, op=dist.ReduceOp.AVG)
            reduced.mul_(step["scale"]).add_(step.get("add", 0))

        return hook

    def enter(self, model: Model, step: Step) -> AbstractContextManager[Any]:
        return _without_gradient_sync(model)  # the only scope this API has; see `support.py`

    def clip_grad_norm(self, model: Model, max_norm: float, norm_type: float) -> torch.Tensor:
        norm = super().clip_grad_norm(model, max_norm, norm_type)
        return norm.full_tensor() if isinstance(norm, DTensor) else norm

    # State.
    def parameters(self, model: Model) -> list[Parameter]:
        found = []
        for slot in model.parameter_slots:
            exposed = slot.tensor
            gradient = exposed.grad
            found.append(
                Parameter(
                    slot.name,
                    local(exposed),
                    placement_of(exposed),
                    exposed.requires_grad,
                    None if gradient is None else local(gradient),
                    None if gradient is None else placement_of(gradient),
                )
            )
        return found

    def full_parameters(self, model: Model) -> list[Exposed]:
        managed = {
            (info.module, info.param_name): fsdp_param.sharded_param
            for fsdp_param in _fsdp_params(model)
            for info in [fsdp_param._module_info]
        }
        full = []
        for slot in model.parameter_slots:
            value = managed.get((slot.owner, slot.attribute), slot.tensor)
            requires_grad = value.requires_grad
            full.append(Exposed(slot.name, _full(value), whole(slot.shape), requires_grad))
        return full

    def optimizer_state(self, model: Model, optimizer: torch.optim.Optimizer) -> list[Exposed]:
        return [
            Exposed(f"{name}/{key}", local(value), placement_of(value))
            for name, parameter in self.named_parameters(model)
            for key, value in optimizer.state.get(parameter, {}).items()
            if isinstance(value, torch.Tensor) and value.shape == parameter.shape
        ]

    def state_dict(self, model: Model, kind: str) -> StateDict:
        native = model.module.state_dict()
        if kind == "full":
            native = {name: _full(value) for name, value in native.items()}
        return _copied(native)

    def full_state_dict(self, model: Model, rank0_only: bool, offload_to_cpu: bool) -> StateDict:
        from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict

        if rank0_only != offload_to_cpu:
            raise Unsupported("whole state dicts of fully_shard are on every rank's device, or in the first rank's host memory")
        options = StateDictOptions(full_state_dict=True, cpu_offload=offload_to_cpu)
        return _copied(get_model_state_dict(model.module, options=options))

    def load_state_dict(self, model: Model, state: StateDict) -> None:
        _load(model, state, full_state_dict=not any(isinstance(value, DTensor) for value in state.native.values()))

    def broadcast_state_dict(self, model: Model, state: StateDict) -> None:
        _load(model, state, full_state_dict=True, broadcast_from_rank0=True)

    def zero_parameters(self, model: Model) -> None:
        with torch.no_grad():
            for _, parameter in self.named_parameters(model):
                local(parameter).zero_()

    # What only an FSDP library has.
    def units(self, model: Model) -> list[dict[str, Any]]:
        names = {(slot.owner, slot.attribute): slot.name for slot in model.parameter_slots}
        return [
            {
                "module": model.paths[state._modules[0]],
                "class": class_label(state._modules[0]),
                "settings": _settings(state),
                "parameters": [names[p._module_info.module, p._module_info.param_name] for p in _params_of(state)],
            }
            for state in _states(model)
        ]

    def counters(self, model: Model) -> dict[str, int]:
        return self._instruments.counters(model)

    def training_state(self, model: Model) -> str:
        of_groups = [state._fsdp_param_group._training_state for state in _states(model) if state._fsdp_param_group]
        busy = [state.name.lower() for state in [*(s._training_state for s in _states(model)), *of_groups] if state.name != "IDLE"]
        return busy[0] if busy else "idle"


def _arguments(model: Model, unit: dict[str, Any]) -> dict[str, Any]:
    arguments: dict[str, Any] = {}
    if unit.get("reshard_after_forward") is not None:
        arguments["reshard_after_forward"] = unit["reshard_after_forward"]
    if unit.get("mixed_precision") is not None:
        policy = dict(unit["mixed_precision"])
        dtypes = {key: optional_dtype(policy.pop(key, None)) for key in ("param_dtype", "reduce_dtype", "output_dtype")}
        arguments["mp_policy"] = MixedPrecisionPolicy(**dtypes, **policy)
    if unit.get("cpu_offload"):
        arguments["offload_policy"] = CPUOffloadPolicy(pin_memory=unit.get("pin_memory", True))
    if unit.get("ignored_parameters"):
        arguments["ignored_params"] = {model.slot(name).tensor for name in unit["ignored_parameters"]}
    if unit.get("shard_dims"):
        dims = {model.slot(name).tensor: dim for name, dim in unit["shard_dims"].items()}
        arguments["shard_placement_fn"] = lambda parameter: Shard(dims[parameter]) if parameter in dims else None
    return arguments


def _full(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().full_tensor() if isinstance(tensor, DTensor) else tensor


def _copied(state: dict[str, Any]) -> StateDict:
    native = {name: value.detach().clone() for name, value in state.items()}
    return StateDict(native, [Exposed(clean_name(name), local(value), placement_of(value)) for name, value in native.items()])


def _load(model: Model, state: StateDict, **options: bool) -> None:
    from torch.distributed.checkpoint.state_dict import StateDictOptions, set_model_state_dict

    set_model_state_dict(model.module, dict(state.native), options=StateDictOptions(**options))


def _fsdp_modules(module: nn.Module) -> Iterator[FSDPModule]:
    return (submodule for submodule in module.modules() if isinstance(submodule, FSDPModule))


def _states(model: Model) -> list[FSDPState]:
    """In module order; a state over several modules once."""
    return list(dict.fromkeys(module._get_fsdp_state() for module in _fsdp_modules(model.built)))


def _params_of(state: FSDPState) -> list[FSDPParam]:
    return state._fsdp_param_group.fsdp_params if state._fsdp_param_group else []


def _fsdp_params(model: Model) -> Iterator[FSDPParam]:
    return (fsdp_param for state in _states(model) for fsdp_param in _params_of(state))


def _settings(state: FSDPState) -> dict[str, Any]:
    policy, group = state._mp_policy, state._fsdp_param_group
    settings: dict[str, Any] = {
        "mixed_precision": {
            **{key: optional_dtype_name(getattr(policy, key)) for key in ("param_dtype", "reduce_dtype", "output_dtype")},
            "cast_forward_inputs": policy.cast_forward_inputs,
        },
    }
    if group is not None:
        after = group.post_forward_mesh_info
        smaller = after is not None and after != group.mesh_info
        settings["reshard_after_forward"] = after.shard_mesh_size if smaller else after is not None
        settings["rank"] = group.mesh_info.shard_mesh_rank
        settings["world_size"] = group.mesh_info.shard_mesh_size
    return settings



@contextmanager
def _without_gradient_sync(model: Model) -> Iterator[None]:
    modules = list(_fsdp_modules(model.built))
    before = [state._fsdp_param_group is None or state._fsdp_param_group.reduce_grads for state in (m._get_fsdp_state() for m in modules)]
    for module in modules:
        module.set_requires_gradient_sync(False, recurse=False)
    try:
        yield
    finally:
        for module, sync in zip(modules, before):
            module.set_requires_gradient_sync(sync, recurse=False)
