"""Units of an `fsdp` or `composable` plan: from their keys to PyTorch's arguments, and back to settings that can be observed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import nn
from torch.distributed.fsdp import BackwardPrefetch, CPUOffload, FullyShardedDataParallel, MixedPrecision, ShardingStrategy
from torch.distributed.fsdp.wrap import enable_wrap, wrap

from fsdp_cts_sdk import Model
from fsdp_cts_sdk.dtypes import optional_dtype, optional_dtype_name
from pytorch_testee import composable
from pytorch_testee.groups import HYBRID, Groups
from pytorch_testee.wrap_policies import classes_of, make_policy

ModuleInit = Callable[[nn.Module], None]  # gives a module's own parameters and buffers memory and values

_DTYPES = ("param_dtype", "reduce_dtype", "buffer_dtype")
_FLAGS = ("keep_low_precision_grads", "cast_forward_inputs", "cast_root_forward_inputs")


def settings_to_arguments(settings: dict[str, Any]) -> dict[str, Any]:
    """The keys that a unit and a custom wrap rule share, as the wrapper names them. An absent key stays absent."""
    arguments = {key: settings[key] for key in ("use_orig_params", "forward_prefetch", "limit_all_gathers", "sync_module_states") if key in settings}
    if settings.get("sharding_strategy") is not None:
        arguments["sharding_strategy"] = ShardingStrategy[settings["sharding_strategy"]]
    if "backward_prefetch" in settings:
        name = settings["backward_prefetch"]
        arguments["backward_prefetch"] = None if name is None else BackwardPrefetch[name]
    if "mixed_precision" in settings:
        arguments["mixed_precision"] = _mixed_precision(settings["mixed_precision"])
    if settings.get("cpu_offload"):
        arguments["cpu_offload"] = CPUOffload(offload_params=True)
    return arguments


def apply_wrapper(model: Model, unit: dict[str, Any], groups: Groups, init: ModuleInit) -> None:
    (path,) = unit["modules"]
    wrapper = _wrapped(model, model.submodule(path), unit, groups, init)
    if path == "":
        model.module = wrapper
    else:
        parent, _, name = path.rpartition(".")
        setattr(model.submodule(parent), name, wrapper)


def _wrapped(model: Model, module: nn.Module, unit: dict[str, Any], groups: Groups, init: ModuleInit) -> nn.Module:
    context = unit.get("enable_wrap")
    by_init = {"param_init_fn": init} if unit.get("param_init") else {}
    if context is None:
        return FullyShardedDataParallel(module, **_wrapper_arguments(model, unit, groups), **by_init)
    explicit = {**_asked_arguments(model, unit, groups), **by_init}
    if context == "outside":
        return wrap(module, **explicit)
    if context == "nested":
        with enable_wrap(wrapper_cls=FullyShardedDataParallel), enable_wrap(wrapper_cls=FullyShardedDataParallel):
            return wrap(module, **explicit)
    with enable_wrap(wrapper_cls=FullyShardedDataParallel, **_wrapper_arguments(model, context, groups)):
        return wrap(module, **explicit)


def _wrapper_arguments(model: Model, unit: dict[str, Any], groups: Groups) -> dict[str, Any]:
    """Those of the constructor: what the unit asks for, and a group and a device where it names none."""
    arguments = {**_device(unit, groups), **_asked_arguments(model, unit, groups)}
    if not {"process_group", "device_mesh"} & set(arguments):
        arguments["process_group"] = groups.process_group("world")
    return arguments


def _asked_arguments(model: Model, unit: dict[str, Any], groups: Groups) -> dict[str, Any]:
    arguments = {**settings_to_arguments(unit), **_ignored(model, unit)}
    if unit.get("sharding_strategy") in HYBRID:
        arguments["device_mesh"] = groups.mesh(model.plan)
    elif "process_group" in unit:
        arguments["process_group"] = groups.process_group(unit["process_group"])
    if unit.get("auto_wrap"):
        arguments["auto_wrap_policy"] = make_policy(unit["auto_wrap"], settings_to_arguments)
    return arguments


def apply_composable(model: Model, unit: dict[str, Any], groups: Groups, init: ModuleInit) -> None:
    (path,) = unit["modules"]
    arguments = {**_device(unit, groups), **_composable_names(settings_to_arguments(unit)), **_ignored(model, unit)}
    if unit.get("sharding_strategy") in HYBRID:
        mesh = groups.mesh(model.plan)
        arguments["process_group"] = (mesh.get_group(1), mesh.get_group(0))
    else:
        arguments["process_group"] = groups.process_group(unit.get("process_group", "world"))
    if unit.get("auto_wrap"):
        arguments["policy"] = make_policy(unit["auto_wrap"], lambda rule: _composable_names(settings_to_arguments(rule)))
    if unit.get("param_init"):
        arguments["param_init_fn"] = init
    composable.fully_shard(model.submodule(path), **arguments)


def unit_settings(state: Any) -> dict[str, Any]:
    mixed = state.mixed_precision
    return {
        "sharding_strategy": state.sharding_strategy.name,
        "use_orig_params": state._use_orig_params,
        "backward_prefetch": None if state.backward_prefetch is None else state.backward_prefetch.name,
        "forward_prefetch": state.forward_prefetch,
        "limit_all_gathers": state.limit_all_gathers,
        "cpu_offload": state.cpu_offload.offload_params,
        "rank": state.rank,
        "world_size": state.world_size,
        "mixed_precision": {
            **{key: optional_dtype_name(getattr(mixed, key)) for key in _DTYPES},
            **{key: getattr(mixed, key) for key in _FLAGS},
        },
    }


def _device(unit: dict[str, Any], groups: Groups) -> dict[str, Any]:
    """On a CPU always: without it FSDP1 looks for an accelerator and refuses a machine that has none."""
    if groups.device.type == "cpu" or unit.get("device_id") is not None:
        return {"device_id": groups.device}
    return {}


def _ignored(model: Model, unit: dict[str, Any]) -> dict[str, Any]:
    arguments: dict[str, Any] = {}
    if unit.get("ignored_modules"):
        arguments["ignored_modules"] = [model.submodule(path) for path in unit["ignored_modules"]]
    parameters = [model.slot(name).tensor for name in unit.get("ignored_parameters") or ()]
    states = parameters + [model.submodule(path) for path in unit.get("ignored_state_modules") or ()]
    if states:
        arguments["ignored_states"] = states
    return arguments


def _composable_names(arguments: dict[str, Any]) -> dict[str, Any]:
    """The composable form calls the strategy `strategy`, and three of the wrapper's choices are not open to it."""
    fixed = ("use_orig_params", "limit_all_gathers", "backward_prefetch")
    return {"strategy" if key == "sharding_strategy" else key: value for key, value in arguments.items() if key not in fixed}


def _mixed_precision(policy: dict[str, Any] | None) -> MixedPrecision | None:
    if policy is None:
        return None
    dtypes = {key: optional_dtype(policy.get(key)) for key in _DTYPES}
    flags = {key: policy[key] for key in _FLAGS if key in policy}
    if "module_classes_to_ignore" in policy:
        flags["_module_classes_to_ignore"] = tuple(classes_of(policy["module_classes_to_ignore"]))
    return MixedPrecision(**dtypes, **flags)
