"""One rank of the Python side of the step benchmark: plain, DDP, FSDP1 and FSDP2 of PyTorch on gloo.

Speaks the same lines as the C++ program fsdp_step_bench, so that ci/bench can run both in turns:
a request {"model": "tiny8", "what": "fsdp2", "steps": 20} on stdin is answered by {"ms": [...], "loss": "0x1.8p-1"} on stdout.
Models stay built between requests, and the process sleeps while it waits.

    RANK=0 WORLD_SIZE=2 FSDP_BENCH_RENDEZVOUS=/tmp/store step_bench.py     (and RANK=1 beside it)
"""

import json
import os
import sys
import time

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.nn.parallel import DistributedDataParallel
from workload import LEARNING_RATE, Workload

CPU = torch.device("cpu")


def plain(work):
    return work.model


def ddp(work):
    return DistributedDataParallel(work.model)


def fsdp1(work):
    for name, module in list(work.model.named_modules()):
        if any(module is unit for unit in work.units):
            parent, _, leaf = name.rpartition(".")
            setattr(work.model.get_submodule(parent), leaf, FullyShardedDataParallel(module, device_id=CPU))
    return FullyShardedDataParallel(work.model, device_id=CPU)


def fsdp2(work):
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for unit in work.units:
        fully_shard(unit, mesh=mesh)
    return fully_shard(work.model, mesh=mesh)


class Training:
    def __init__(self, model, what):
        self.work = Workload(model, dist.get_rank())
        self.module = {"plain": plain, "ddp": ddp, "fsdp1": fsdp1, "fsdp2": fsdp2}[what](self.work)
        self.optimizer = torch.optim.SGD(self.module.parameters(), lr=LEARNING_RATE)

    def step(self):
        self.optimizer.zero_grad()
        loss = self.work.loss(self.module(self.work.input), self.work.target)
        loss.backward()
        self.optimizer.step()
        return loss


def answer(request, trainings):
    key = request["model"], request["what"]
    if key not in trainings:
        trainings[key] = Training(*key)
    milliseconds = []
    for _ in range(request["steps"]):
        begin = time.perf_counter_ns()
        loss = trainings[key].step()
        milliseconds.append((time.perf_counter_ns() - begin) / 1e6)
    return {"ms": milliseconds, "loss": loss.item().hex()}


def main():
    torch.set_num_threads(1)
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    dist.init_process_group("gloo", store=dist.FileStore(os.environ["FSDP_BENCH_RENDEZVOUS"], world), rank=rank, world_size=world)
    trainings = {}
    for line in sys.stdin:
        print(json.dumps(answer(json.loads(line), trainings)), flush=True)
    trainings.clear()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
