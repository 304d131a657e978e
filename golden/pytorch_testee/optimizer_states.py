"""Optimizer state by parameter names, as torch.distributed.checkpoint.state_dict gives and takes it, for FSDP2 and FSDP1 alike."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch.distributed._shard.sharded_tensor import ShardedTensor
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_optimizer_state_dict, set_optimizer_state_dict

from fsdp_cts_sdk import Model, StateDict
from fsdp_cts_sdk.graph import clean_name
from pytorch_testee.placements import state_item


def optimizer_state_dict(model: Model, optimizer: torch.optim.Optimizer, kind: str) -> StateDict:
    native = copy.deepcopy(get_optimizer_state_dict(model.module, optimizer, options=_options(kind)))
    items = [
        state_item(f"{clean_name(name)}/{key}", value)
        for name, values in native["state"].items()
        for key, value in values.items()
        if isinstance(value, (torch.Tensor, ShardedTensor)) and key != "step"
    ]
    return StateDict({"kind": kind, "state": native}, items)


def load_optimizer_state_dict(model: Model, optimizer: torch.optim.Optimizer, state: StateDict) -> None:
    kind = state.native["kind"]
    set_optimizer_state_dict(model.module, optimizer, copy.deepcopy(state.native["state"]), options=_options(kind))


def _options(kind: str) -> StateDictOptions:
    return StateDictOptions(full_state_dict=kind == "full")
