"""Composable FSDP1. PyTorch removed its entry function, `torch.distributed._composable.fully_shard`, after 2.5 and kept the
implementation: this adds the entry function again, so that all three APIs are recorded with one PyTorch. Recordings say so in their index
entry (`composable`, from the testee's hello); golden/README.md has the evidence that it does the same as that of 2.5.1."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn
from torch.distributed._composable import contract
from torch.distributed._composable_state import _get_module_state, _insert_module_state
from torch.distributed.fsdp import _init_utils as init
from torch.distributed.fsdp._common_utils import _FSDPState
from torch.distributed.fsdp._dynamo_utils import _annotate_modules_for_dynamo
from torch.distributed.fsdp._runtime_utils import (
    _register_post_forward_hook,
    _register_pre_forward_hook,
    _register_root_pre_forward_hook,
)
from torch.distributed.fsdp._state_dict_utils import _register_all_state_dict_hooks
from torch.distributed.fsdp._wrap_utils import _auto_wrap
from torch.distributed.fsdp.api import BackwardPrefetch, CPUOffload, MixedPrecision, ShardingStrategy
from torch.distributed.fsdp.wrap import _Policy


@contract(state_cls=_FSDPState)
def fully_shard(
    module: nn.Module,
    *,
    process_group: Any = None,
    policy: _Policy | None = None,
    strategy: ShardingStrategy | None = None,
    mixed_precision: MixedPrecision | None = None,
    cpu_offload: CPUOffload | None = None,
    ignored_modules: Iterable[nn.Module] | None = None,
    device_id: torch.device | None = None,
    param_init_fn: Callable[[nn.Module], None] | None = None,
    sync_module_states: bool = False,
    forward_prefetch: bool = False,
    ignored_states: Iterable[Any] | None = None,
) -> nn.Module:
    """Flat-parameter sharding without a wrapper: original parameters, names and module object stay."""
    if policy is not None and not isinstance(policy, _Policy):
        raise ValueError(f"Expects a `_Policy` but got {policy}")
    state = fully_shard.state(module)
    init._init_ignored_module_states(state, module, ignored_modules, ignored_states)
    init._init_device_handle(state, module, state._ignored_params, device_id)
    _annotate_modules_for_dynamo(module, state._ignored_modules, True)
    init._init_process_group_state(state, process_group, strategy, policy)
    if policy is not None:
        hybrid = strategy in init.HYBRID_SHARDING_STRATEGIES
        inherited = {
            "process_group": (state.process_group, state._inter_node_pg) if hybrid else process_group,
            "strategy": strategy,
            "mixed_precision": mixed_precision,
            "cpu_offload": cpu_offload,
            "ignored_modules": ignored_modules,
            "device_id": device_id,
            "param_init_fn": param_init_fn,
            "sync_module_states": sync_module_states,
            "forward_prefetch": forward_prefetch,
            "ignored_states": ignored_states,
        }
        _auto_wrap(module, policy, state._ignored_modules, state._ignored_params, inherited, fully_shard)
    init._init_core_state(
        state,
        strategy or ShardingStrategy.FULL_SHARD,
        mixed_precision,
        cpu_offload,
        limit_all_gathers=True,
        use_orig_params=True,
        backward_prefetch_limit=1,
        forward_prefetch_limit=1,
    )
    init._init_runtime_state(state)
    init._init_prefetching_state(state, BackwardPrefetch.BACKWARD_PRE, forward_prefetch)
    init._init_buffer_state(state, module)
    init._init_param_handle_from_module(state, module, device_id, param_init_fn, sync_module_states)
    init._init_state_dict_state(state)
    _register_all_state_dict_hooks(state)
    _register_pre_forward_hook(state, module)
    _register_post_forward_hook(state, module)
    _register_root_pre_forward_hook(state, module)  # last and prepended: it runs first
    _insert_module_state(module, state)
    for submodule in module.modules():
        if submodule in state._fully_sharded_module_to_handle and _get_module_state(submodule) is None:
            _insert_module_state(submodule, state)
    return module
