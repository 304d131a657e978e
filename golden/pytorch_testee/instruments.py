"""Looks over FSDP's shoulder: whose collective it is, how often its hooks are registered, how unsharded views are installed. Nothing here
changes what FSDP does; a delay can be put in where a scenario asks for one."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable
from typing import Any

from torch import nn
from torch.distributed.fsdp import _runtime_utils
from torch.distributed.fsdp._flat_param import FlatParamHandle
from torch.distributed.fsdp._fully_shard._fsdp_param_group import FSDPParamGroup
from torch.distributed.fsdp._fully_shard._fsdp_state import FSDPState

from fsdp_cts_sdk import Model
from fsdp_cts_sdk.sleep import sleep
from pytorch_testee.trace import CollectiveTrace


class Instruments:
    def __init__(self, trace: CollectiveTrace) -> None:
        self.trace = trace
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
        self.delay_before_free = self.trace.delay_before_reduce = 0.0
        self.trace.drain()

    def counters(self, model: Model) -> dict[str, int]:
        names = (
            "pre_backward_registrations",
            "post_backward_registrations",
            "unsharded_views_as_tensors",
            "unsharded_views_as_params",
        )
        return {name: self._counts[model.instance, name] for name in names}

    def _path(self, module: nn.Module) -> str | None:
        return self._places.get(module, (None, None))[1]

    def _count(self, name: str, module: nn.Module) -> None:
        module = getattr(module, "_fsdp_wrapped_module", module)
        if module in self._places and self.trace.phase() in ("forward", "backward"):
            self._counts[self._places[module][0], name] += 1

    def _watch_fully_shard(self) -> None:
        def collectives_of(function: Callable[..., Any]) -> Callable[..., Any]:
            @functools.wraps(function)
            def call(group: FSDPParamGroup, *args: Any, **kwargs: Any) -> Any:
                with self.trace.on_behalf_of(self._path(group.modules[0])):
                    return function(group, *args, **kwargs)

            return call

        FSDPParamGroup.unshard = collectives_of(FSDPParamGroup.unshard)
        FSDPParamGroup.post_backward = collectives_of(FSDPParamGroup.post_backward)
        _before(FSDPParamGroup, "reshard", lambda group: self._wait_before_free())
        _before(
            FSDPState,
            "_register_pre_backward_hook",
            lambda state, *_: self._count("pre_backward_registrations", state._modules[0]),
        )
        _before(
            FSDPParamGroup,
            "_register_post_backward_hook",
            lambda group, *_: self._count("post_backward_registrations", group.modules[0]),
        )

    def _watch_flat_parameters(self) -> None:
        def collectives_of(function: Callable[..., Any], handle_at: int) -> Callable[..., Any]:
            @functools.wraps(function)
            def call(*args: Any, **kwargs: Any) -> Any:
                with self.trace.on_behalf_of(self._path(args[handle_at]._fully_sharded_module)):
                    return function(*args, **kwargs)

            return call

        FlatParamHandle._all_gather_flat_param = collectives_of(FlatParamHandle._all_gather_flat_param, 0)
        _runtime_utils._reduce_grad = collectives_of(_runtime_utils._reduce_grad, 1)
        _runtime_utils._reduce_grad_no_shard = collectives_of(_runtime_utils._reduce_grad_no_shard, 1)

        def views(handle: FlatParamHandle, as_params: bool) -> None:
            name = "unsharded_views_as_params" if as_params else "unsharded_views_as_tensors"
            self._count(name, handle._fully_sharded_module)

        def post_backward(state: Any, handle: FlatParamHandle | None) -> None:
            if handle is not None:
                self._count("post_backward_registrations", handle._fully_sharded_module)

        _before(FlatParamHandle, "_use_unsharded_views", views)
        _before(_runtime_utils, "_register_post_backward_hook", post_backward)
        _before(
            _runtime_utils,
            "_register_pre_backward_hooks",
            lambda state, module, *_: self._count("pre_backward_registrations", module),
        )
        _before(_runtime_utils, "_reshard", lambda state, handle, free: self._wait_before_free() if free else None)

    def _wait_before_free(self) -> None:
        if self.delay_before_free and self.trace.phase() == "forward":
            sleep(self.delay_before_free, self.trace.device)


def _before(owner: Any, name: str, look: Callable[..., Any]) -> None:
    function = getattr(owner, name)

    @functools.wraps(function)
    def both(*args: Any, **kwargs: Any) -> Any:
        look(*args, **kwargs)
        return function(*args, **kwargs)

    setattr(owner, name, both)
