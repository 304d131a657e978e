"""Checkpoints of PyTorch: its own format, torch.distributed.checkpoint, and the whole state as one safetensors file (PROTOCOL.md, section 8)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from fsdp_cts_sdk import Checkpoint, StateDict
from fsdp_cts_sdk.tensor_file import read_tensors, write_tensors
from pytorch_testee.groups import Groups
from pytorch_testee.optimizer_states import NamedOptimizerStates

_FILE = "state.safetensors"


class Checkpoints(NamedOptimizerStates):
    _groups: Groups

    def save_checkpoint(self, checkpoint: Checkpoint) -> None:
        if checkpoint.format in ("native", "dcp"):  # the same here: it is PyTorch's own
            import torch.distributed.checkpoint as dcp

            state = _distributed_state(checkpoint)
            with _as_errors():
                dcp.save(state, checkpoint_id=checkpoint.folder, process_group=self._groups.for_objects())
            return
        tensors = {f"model/{item.name}": item.value for item in self.state_dict(checkpoint.model, "full").items}
        if checkpoint.optimizer is not None:
            saved = self.optimizer_state_dict(checkpoint.model, checkpoint.optimizer, "full").native["state"]
            tensors |= {
                f"optimizer/{name}/{key}": value
                for name, values in saved["state"].items()
                for key, value in values.items()
                if isinstance(value, torch.Tensor)
            }
        if self.context.rank == 0:
            write_tensors(Path(checkpoint.folder) / _FILE, tensors)

    def load_checkpoint(self, checkpoint: Checkpoint) -> None:
        from torch.distributed.checkpoint.state_dict import StateDictOptions, set_model_state_dict, set_optimizer_state_dict

        if checkpoint.format in ("native", "dcp"):
            import torch.distributed.checkpoint as dcp

            state = _distributed_state(checkpoint)
            # Others than PyTorch have no settings of the optimizer to save. What is missing beside them keeps its value, which is seen.
            saved = dcp.FileSystemReader(checkpoint.folder).read_metadata().state_dict_metadata
            of_others = not any(name.startswith("optimizer.param_groups.") for name in saved)
            planner = dcp.DefaultLoadPlanner(allow_partial_load=checkpoint.optimizer is not None and of_others)
            with _as_errors():
                dcp.load(state, checkpoint_id=checkpoint.folder, process_group=self._groups.for_objects(), planner=planner)
            set_model_state_dict(checkpoint.model.module, state["model"])
            if checkpoint.optimizer is not None:
                set_optimizer_state_dict(checkpoint.model.module, checkpoint.optimizer, state["optimizer"])
            return
        tensors = read_tensors(Path(checkpoint.folder) / _FILE)
        set_model_state_dict(checkpoint.model.module, _below("model/", tensors), options=StateDictOptions(full_state_dict=True))
        if checkpoint.optimizer is None:
            return
        # The groups of parameters are those of the optimizer that is there; only its state comes from the file.
        state = self.optimizer_state_dict(checkpoint.model, checkpoint.optimizer, "full").native["state"]
        state["state"] = {}
        for path, value in _below("optimizer/", tensors).items():
            name, key = path.rsplit("/", 1)
            state["state"].setdefault(name, {})[key] = value
        self.load_optimizer_state_dict(checkpoint.model, checkpoint.optimizer, StateDict({"kind": "full", "state": state}, []))


@contextmanager
def _as_errors() -> Iterator[None]:
    """What goes wrong with a checkpoint comes as a BaseException, which would end the rank and not the case."""
    from torch.distributed.checkpoint.api import CheckpointException

    try:
        yield
    except CheckpointException as error:
        raise RuntimeError("; ".join(f"rank {rank}: {reason[0]}" for rank, reason in error.failures.items())) from error


def _distributed_state(checkpoint: Checkpoint) -> dict[str, Any]:
    """Sharded, as torch.distributed.checkpoint saves it and, when loading, fills it in place."""
    from torch.distributed.checkpoint.state_dict import get_model_state_dict, get_optimizer_state_dict

    state: dict[str, Any] = {"model": get_model_state_dict(checkpoint.model.module)}
    if checkpoint.optimizer is not None:
        state["optimizer"] = get_optimizer_state_dict(checkpoint.model.module, checkpoint.optimizer)
    return state


def _below(prefix: str, tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}
