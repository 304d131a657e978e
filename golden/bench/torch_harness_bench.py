"""What one 2-rank case costs in PyTorch's own test harness: the comparison of target H3.

The case is the one that the suite runs as F2MP/TestFullyShardMixedPrecisionTraining/test_compute_dtype with reshard_after_forward=true:
three MLPs in bfloat16 under FSDP2, ten Adam steps on CPU and gloo, losses and parameters compared with a replica after every step.
Prints {"seconds": [...]}, one entry per run of the test. Needs the package expecttest, which PyTorch's test base class imports.

    torch_harness_bench.py --repeats 3
"""

import argparse
import copy
import json
import os
import sys
import time
import unittest

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.testing._internal.common_distributed import MultiProcessTestCase

ITERATIONS = 10


def mlp():
    return nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 16), nn.ReLU())


class ComputeDtype(MultiProcessTestCase):
    world_size = 2

    def setUp(self):
        super().setUp()
        self._spawn_processes()

    def test_compute_dtype(self):
        torch.set_num_threads(1)
        dist.init_process_group("gloo", store=dist.FileStore(self.file_name, 2), rank=self.rank, world_size=2)
        torch.manual_seed(42)
        model = nn.Sequential(*(mlp() for _ in range(3)))
        replica = copy.deepcopy(model)
        computing = copy.deepcopy(replica).to(torch.bfloat16)
        mesh = init_device_mesh("cpu", (2,))
        for module in [*model, model]:
            fully_shard(module, mesh=mesh, mp_policy=MixedPrecisionPolicy(param_dtype=torch.bfloat16))
        optimizer, replica_optimizer = (torch.optim.Adam(m.parameters(), lr=1e-2) for m in (model, replica))
        torch.manual_seed(43 + self.rank)
        x = torch.randn(4, 16, dtype=torch.bfloat16)
        for _ in range(ITERATIONS):
            optimizer.zero_grad()
            loss = model(x).sum()
            loss.backward()
            optimizer.step()
            expected = computing(x).sum()
            expected.backward()
            for master, low in zip(replica.parameters(), computing.parameters()):
                dist.all_reduce(low.grad)
                master.grad, low.grad = (low.grad / 2).float(), None
            replica_optimizer.step()
            with torch.no_grad():
                for master, low in zip(replica.parameters(), computing.parameters()):
                    low.copy_(master)
            self.assertEqual(loss, expected)
            for sharded, master in zip(model.parameters(), replica.parameters()):
                self.assertEqual(sharded.full_tensor(), master)
        dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser(description="Times PyTorch's MultiProcessTestCase on one small FSDP2 case.")
    parser.add_argument("--repeats", type=int, default=3)
    repeats = parser.parse_args().repeats
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    seconds = []
    for _ in range(repeats):
        result = unittest.TestResult()
        begin = time.perf_counter()
        ComputeDtype("test_compute_dtype").run(result)
        seconds.append(time.perf_counter() - begin)
        if not result.wasSuccessful():
            sys.exit("\n".join(text for _, text in result.failures + result.errors))
    print(json.dumps({"seconds": seconds}))


if __name__ == "__main__":
    main()
