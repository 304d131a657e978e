"""Optimizer state by parameter names, as torch.distributed.checkpoint.state_dict gives and takes it, for FSDP2 and FSDP1 alike."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch.distributed._shard.sharded_tensor import ShardedTensor

from fsdp_cts_sdk import Model, Operations, StateDict
from fsdp_cts_sdk.graph import clean_name
from pytorch_testee.placements import state_item


class NamedOptimizerStates(Operations):
    def optimizer_state_dict(self, model: Model, optimizer: torch.optim.Optimizer, kind: str) -> StateDict:
        # Imported where it is used, here and below: it takes long, and few cases need it.
        from torch.distributed.checkpoint.state_dict import StateDictOptions, get_optimizer_state_dict

        options = StateDictOptions(full_state_dict=kind == "full")
        native = copy.deepcopy(get_optimizer_state_dict(model.module, optimizer, options=options))
        items = [
            state_item(f"{clean_name(name)}/{key}", value)
            for name, values in native["state"].items()
            for key, value in values.items()
            if isinstance(value, (torch.Tensor, ShardedTensor)) and key != "step"
        ]
        return StateDict({"kind": kind, "state": native}, items)

    def load_optimizer_state_dict(self, model: Model, optimizer: torch.optim.Optimizer, state: StateDict) -> None:
        from torch.distributed.checkpoint.state_dict import StateDictOptions, set_optimizer_state_dict

        options = StateDictOptions(full_state_dict=state.native["kind"] == "full")
        set_optimizer_state_dict(model.module, optimizer, copy.deepcopy(state.native["state"]), options=options)
