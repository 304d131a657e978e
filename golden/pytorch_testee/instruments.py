"""Looks over FSDP's shoulder: whose collective it is, how often its hooks are registered, how unsharded views are installed. Nothing here
changes what FSDP does; a delay can be put in where a scenario asks for one."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.distributed.fsdp import _runtime_utils
from torch.distributed.fsdp._flat_param import FlatParamHandle
from torch.distributed.fsdp._fully_shard._fsdp_param_group import FSDPParamGroup
from torch.distributed.fsdp._fully_shard._fsdp_state import FSDPState
from torch.utils._pytree import tree_leaves

from fsdp_cts_sdk import Model
from fsdp_cts_sdk.collective_tap import CollectiveTap
from fsdp_cts_sdk.sleep import sleep


class Instruments:
    def __init__(self, tap: CollectiveTap, device: torch.device) -> None:
        self._tap = tap
        self._device = device
        self.delay_before_free = 0.0
        self._places: dict[nn.Module, tuple[str, str]] = {}  # module -> (instance, path)
        self._counts: Counter[tuple[str, str]] = Counter()
        self._watch_fully_shard()
        self._watch_flat_parameters()

    def know(self, model: Model) -> None:
        self._places.update({module: (model.instance, path) for module, path in model.paths.items()})

    def end_case(self) -> None:
        self._places.clear()
        self._counts.clear()
        self.delay_before_free = 0.0

    def counters(self, model: Model) -> dict[str, int]:
        names = (
            "pre_backward_registrations",
            "post_backward_registrations",
            "unsharded_views_as_tensors",
            "unsharded_views_as_params",
        )
        return {name: self._counts[model.instance, name] for name in names}

    def _phase(self) -> str | None:
        return self._tap.into.phase if self._tap.into else None

    def _path(self, module: nn.Module) -> str | None:
        return self._places.get(module, (None, None))[1]

    def _count(self, name: str, module: nn.Module, times: int = 1) -> None:
        module = getattr(module, "_fsdp_wrapped_module", module)
        if module in self._places and self._phase() in ("forward", "backward"):
            self._counts[self._places[module][0], name] += times

    def _watch_fully_shard(self) -> None:
        def collectives_of(function: Callable[..., Any]) -> Callable[..., Any]:
            @functools.wraps(function)
            def call(group: FSDPParamGroup, *args: Any, **kwargs: Any) -> Any:
                with self._tap.on_behalf_of(self._path(group.modules[0])):
                    return function(group, *args, **kwargs)

            return call

        FSDPParamGroup.unshard = collectives_of(FSDPParamGroup.unshard)
        FSDPParamGroup.post_backward = collectives_of(FSDPParamGroup.post_backward)
        _before(FSDPParamGroup, "reshard", lambda group: self._wait_before_free())
        def pre_backward(register: Callable[..., Any], state: FSDPState, output: Any) -> Any:
            before = _hooks_on(output)
            hooked = register(state, output)
            self._count("pre_backward_registrations", state._modules[0], _hooks_on(hooked) - before)
            return hooked

        def post_backward(register: Callable[..., Any], group: FSDPParamGroup, *inputs: Any) -> Any:
            hooked = register(group, *inputs)
            if any(after is not before for after, before in zip(tree_leaves(hooked), tree_leaves(inputs))):
                self._count("post_backward_registrations", group.modules[0])
            return hooked

        _around(FSDPState, "_register_pre_backward_hook", pre_backward)
        _around(FSDPParamGroup, "_register_post_backward_hook", post_backward)

    def _watch_flat_parameters(self) -> None:
        def collectives_of(function: Callable[..., Any], handle_at: int) -> Callable[..., Any]:
            @functools.wraps(function)
            def call(*args: Any, **kwargs: Any) -> Any:
                with self._tap.on_behalf_of(self._path(args[handle_at]._fully_sharded_module)):
                    return function(*args, **kwargs)

            return call

        FlatParamHandle._all_gather_flat_param = collectives_of(FlatParamHandle._all_gather_flat_param, 0)
        _runtime_utils._reduce_grad = collectives_of(_runtime_utils._reduce_grad, 1)
        _runtime_utils._reduce_grad_no_shard = collectives_of(_runtime_utils._reduce_grad_no_shard, 1)

        def views(handle: FlatParamHandle, as_params: bool) -> None:
            name = "unsharded_views_as_params" if as_params else "unsharded_views_as_tensors"
            self._count(name, handle._fully_sharded_module)

        def pre_backward(register: Callable[..., Any], state: Any, module: nn.Module, outputs: Any, handle: Any) -> Any:
            before = _hooks_on(outputs)
            hooked = register(state, module, outputs, handle)
            self._count("pre_backward_registrations", module, _hooks_on(hooked) - before)
            return hooked

        def post_backward(register: Callable[..., Any], state: Any, handle: FlatParamHandle | None) -> None:
            before = _post_backward_hook(handle)
            register(state, handle)
            if handle is not None and _post_backward_hook(handle) is not before:
                self._count("post_backward_registrations", handle._fully_sharded_module)

        _before(FlatParamHandle, "_use_unsharded_views", views)
        _around(_runtime_utils, "_register_pre_backward_hooks", pre_backward)
        _around(_runtime_utils, "_register_post_backward_hook", post_backward)
        _before(_runtime_utils, "_reshard", lambda state, handle, free: self._wait_before_free() if free else None)

    def _wait_before_free(self) -> None:
        if self.delay_before_free and self._phase() == "forward":
            sleep(self.delay_before_free, self._device)


def _hooks_on(outputs: Any) -> int:
    """Backward hooks that the tensors among the outputs carry: what was registered, not what was asked for."""
    return sum(len(leaf._backward_hooks or ()) for leaf in tree_leaves(outputs) if isinstance(leaf, torch.Tensor))


def _post_backward_hook(handle: FlatParamHandle | None) -> Any:
    return getattr(handle.flat_param, "_post_backward_hook_state", None) if handle is not None else None


def _around(owner: Any, name: str, act: Callable[..., Any]) -> None:
    """`act` takes the function's place and is handed it first."""
    function = getattr(owner, name)

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        return act(function, *args, **kwargs)

    setattr(owner, name, call)


def _before(owner: Any, name: str, look: Callable[..., Any]) -> None:
    def both(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        look(*args, **kwargs)
        return function(*args, **kwargs)

    _around(owner, name, both)
