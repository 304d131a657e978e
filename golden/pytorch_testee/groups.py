"""Process groups, made once and used from case to case."""

from __future__ import annotations

import os
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp._fully_shard import _fsdp_init

HYBRID = ("HYBRID_SHARD", "_HYBRID_SHARD_ZERO2")


class DummyGroup:
    """Answers rank 0 and the asked size, and communicates nothing: enough to look at how a model is wrapped."""

    def __init__(self, size: int) -> None:
        self._size = size

    def rank(self) -> int:
        return 0

    def size(self) -> int:
        return self._size


class Groups:
    """Making a group is collective over the world, so all that a case needs is made before its program, in the order of its plans."""

    def __init__(self, backend: str, device: torch.device) -> None:
        self.device = device
        self._backend = backend
        self._object_group: dist.ProcessGroup | None = None
        self._self_group: dist.ProcessGroup | None = None
        self._meshes: dict[Any, DeviceMesh] = {}

    def prepare(self, case: dict[str, Any]) -> bool:
        """Whether this was the first case, for which the group of all ranks was made."""
        world = case["world"]
        # Of the level a case asks for, which it gets when it shards, groups that other cases use must have nothing.
        dist.set_debug_level(dist.DebugLevel.OFF)
        first = not dist.is_initialized()
        if first:
            os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
            rendezvous = f"file://{os.environ['FSDP_CTS_RENDEZVOUS']}"
            # A group has one backend of foreign make at most, so that the CPU's tensors go over Gloo beside ours.
            beside = {"sim": "cpu:gloo,sim:sim", "cuda": f"cpu:gloo,cuda:{self._backend}"}
            backend = beside.get(self.device.type, self._backend)
            dist.init_process_group(backend, init_method=rendezvous, rank=int(os.environ["RANK"]), world_size=world)
            _fsdp_init.DeviceMesh = self._cached_mesh
        if dist.get_world_size() != world:
            raise ValueError(f"the case wants {world} ranks, this group was started with {dist.get_world_size()}")
        for plan in case["plans"].values():
            self.mesh(plan)
            if any(unit.get("process_group") == "self" for unit in plan["units"]):
                self.process_group("self")
        return first

    def mesh(self, plan: dict[str, Any]) -> DeviceMesh:
        """One dimension over the world, or the plan's [replicate, shard]."""
        shape = tuple(plan.get("mesh") or (dist.get_world_size(),))
        names = ("replicate", "shard") if len(shape) == 2 else None
        if shape not in self._meshes:
            self._meshes[shape] = init_device_mesh(self.device.type, shape, mesh_dim_names=names)
        made = self._meshes[shape]
        if plan.get("mesh_from") != "groups":
            return made
        if ("groups", shape) not in self._meshes:
            groups = made.get_all_groups() if len(shape) > 1 else made.get_group()
            self._meshes["groups", shape] = DeviceMesh.from_group(groups, self.device.type, mesh=made.mesh, mesh_dim_names=names)
        return self._meshes["groups", shape]

    def process_group(self, wanted: str | dict[str, int]) -> dist.ProcessGroup | DummyGroup:
        if wanted == "world":
            return dist.distributed_c10d._get_default_group()
        if isinstance(wanted, dict):
            return DummyGroup(wanted["dummy"])
        if self._self_group is None:
            made = [dist.new_group([rank]) for rank in range(dist.get_world_size())]
            self._self_group = made[dist.get_rank()]
        return self._self_group

    def for_objects(self) -> dist.ProcessGroup | None:
        """Of all ranks, for Python objects: whatever carries tensors need not carry these. Collective at the first call."""
        if self._backend == "gloo":
            return None
        if self._object_group is None:
            self._object_group = dist.new_group(backend="gloo")
        return self._object_group

    def _cached_mesh(self, device_type: str, mesh: torch.Tensor) -> DeviceMesh:
        """fully_shard makes a new mesh with new groups at every call with an integer `reshard_after_forward`; one of each is enough."""
        key = (device_type, tuple(mesh.shape), tuple(mesh.flatten().tolist()))
        if key not in self._meshes:
            self._meshes[key] = DeviceMesh(device_type, mesh)
        return self._meshes[key]
