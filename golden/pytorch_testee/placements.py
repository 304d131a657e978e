"""Where the part of a tensor lies that this rank holds: DTensors, sharded tensors, whole ones."""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch.distributed._shard.sharded_tensor import ShardedTensor
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Shard
from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

from fsdp_cts_sdk import Exposed, Placement, rows, whole


def local(tensor: torch.Tensor) -> torch.Tensor:
    return tensor._local_tensor if isinstance(tensor, DTensor) else tensor


def placement_of(tensor: torch.Tensor) -> Placement:
    if not isinstance(tensor, DTensor):
        return whole(tensor.shape)
    return _placement(tensor.shape, tensor.device_mesh, tensor.placements)


@functools.cache  # asked for every parameter at every observation, and slow to find out
def _placement(shape: torch.Size, mesh: DeviceMesh, placements: tuple[Any, ...]) -> Placement:
    """At most one of the placements shards: FSDP2 makes no others."""
    dims = [placement.dim for placement in placements if isinstance(placement, Shard)]
    if not dims:
        return whole(shape)
    local_shape, offset = compute_local_shape_and_global_offset(shape, mesh, placements)
    return rows(shape, dims[0], offset[dims[0]], local_shape[dims[0]])


def state_item(name: str, value: Any) -> Exposed:
    if isinstance(value, DTensor):
        return Exposed(name, value._local_tensor, placement_of(value))
    if not isinstance(value, ShardedTensor):
        return Exposed(name, value, whole(value.shape))
    shards = value.local_shards()
    if not shards:
        return Exposed(name, torch.empty(0, dtype=value.dtype), rows(value.size(), 0, 0, 0))
    (shard,) = shards
    offset, count = shard.metadata.shard_offsets[0], shard.metadata.shard_sizes[0]
    return Exposed(name, shard.tensor, rows(value.size(), 0, offset, count))
