"""One rank of the Python side of the step benchmark: plain, DDP, FSDP1 and FSDP2 of PyTorch.

Speaks the same lines as the C++ program fsdp_step_bench, so that ci/bench can run both in turns:
a request {"model": "tiny8", "what": "fsdp2", "steps": 20} on stdin is answered by {"ms": [...], "loss": "0x1.8p-1"} on stdout.
Models stay built between requests, and the process sleeps while it waits. On the simulated accelerator (--device sim) an answer has
"findings", too, and, where FSDP_SIM_MACHINE names a machine, "virtual": a step's numbers in virtual time, ns and bytes.

    RANK=0 WORLD_SIZE=2 FSDP_CTS_RENDEZVOUS=/tmp/store step_bench.py     (and RANK=1 beside it)
"""

import argparse
import dataclasses
import json
import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.nn.parallel import DistributedDataParallel
from workload import LEARNING_RATE, Workload

GOLDEN = Path(__file__).resolve().parents[1]
sys.path += [str(GOLDEN), str(GOLDEN.parent / "harness" / "sdk" / "python")]


def plain(work):
    return work.model


def ddp(work):
    return DistributedDataParallel(work.model)


def fsdp1(work):
    for name, module in list(work.model.named_modules()):
        if any(module is unit for unit in work.units):
            parent, _, leaf = name.rpartition(".")
            setattr(work.model.get_submodule(parent), leaf, FullyShardedDataParallel(module, device_id=work.device))
    return FullyShardedDataParallel(work.model, device_id=work.device)


def fsdp2(work):
    mesh = init_device_mesh(work.device.type, (dist.get_world_size(),))
    for unit in work.units:
        fully_shard(unit, mesh=mesh)
    return fully_shard(work.model, mesh=mesh)


class Training:
    def __init__(self, model, what, device):
        self.work = Workload(model, dist.get_rank(), device)
        self.module = {"plain": plain, "ddp": ddp, "fsdp1": fsdp1, "fsdp2": fsdp2}[what](self.work)
        self.optimizer = torch.optim.SGD(self.module.parameters(), lr=LEARNING_RATE, foreach=False)  # one by one, as in C++

    def step(self):
        self.optimizer.zero_grad()
        loss = self.work.loss(self.module(self.work.input), self.work.target)
        loss.backward()
        self.optimizer.step()
        return loss


class Simulation:
    """What the simulated accelerator says of a step."""

    def __init__(self, package):
        from pytorch_testee import simulation

        self.device = simulation.begin(package, None)
        import fsdp_sim

        self._sim = fsdp_sim

    def begin_step(self):
        if self._sim.machine():
            self._sim.mark()

    def end_step(self, said):
        if self._sim.machine():
            numbers = dataclasses.asdict(self._sim.since_mark())
            numbers["peak_bytes"] = numbers.pop("peak_memory")[self.device.index]
            said.setdefault("virtual", []).append(numbers)

    def end_block(self, said):
        said["findings"] = self._sim.drain_findings()


class NoSimulation:
    device = torch.device("cpu")

    def begin_step(self): ...

    def end_step(self, said): ...

    def end_block(self, said): ...


def answer(request, trainings, simulation):
    key = request["model"], request["what"]
    if key not in trainings:
        trainings[key] = Training(*key, simulation.device)
    said = {"ms": []}
    for _ in range(request["steps"]):
        simulation.begin_step()
        begin = time.perf_counter_ns()
        loss = trainings[key].step()
        said["ms"].append((time.perf_counter_ns() - begin) / 1e6)
        simulation.end_step(said)
    simulation.end_block(said)
    return {**said, "loss": loss.item().hex()}


def main():
    parser = argparse.ArgumentParser(description="One rank of the Python side of the step benchmark; ci/bench drives it.")
    parser.add_argument("--device", default="cpu", choices=["cpu", "sim"])
    parser.add_argument("--sim-package", type=Path, help="folder of the package fsdp_sim, for --device sim")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    simulation = Simulation(arguments.sim_package) if arguments.device == "sim" else NoSimulation()
    backend = "cpu:gloo,sim:sim" if arguments.device == "sim" else "gloo"
    dist.init_process_group(backend, store=dist.FileStore(os.environ["FSDP_CTS_RENDEZVOUS"], world), rank=rank, world_size=world)
    trainings = {}
    for line in sys.stdin:
        print(json.dumps(answer(json.loads(line), trainings, simulation)), flush=True)
    trainings.clear()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
