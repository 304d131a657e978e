"""PyTorch's FSDP on the simulated accelerator: values are the CPU's, nothing is found, and what is taken out is found."""

from __future__ import annotations

import os
import unittest

from rank_programs import outputs_of

PACKAGE = os.environ.get("FSDP_CTS_SIM_PACKAGE")

# One rank of two. Prints whether losses and parameters equal the CPU's bit for bit, and the codes of what was found.
_RANK = """
    import os, sys
    from pathlib import Path
    import torch
    import torch.distributed as dist
    from torch import nn
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import CPUOffloadPolicy, FullyShardedDataParallel, MixedPrecisionPolicy, fully_shard
    from pytorch_testee import simulation

    rendezvous, forgotten, how = sys.argv[1:]
    rank = int(os.environ["RANK"])
    device = simulation.begin(Path(os.environ["FSDP_CTS_SIM_PACKAGE"]), forgotten or None)
    import fsdp_sim

    torch.set_num_threads(1)
    dist.init_process_group("cpu:gloo,sim:sim", init_method=f"file://{rendezvous}", rank=rank, world_size=2)

    def trained(device):
        torch.manual_seed(0)
        blocks = [nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.LayerNorm(32), nn.Linear(32, 8)) for _ in range(3)]
        model = nn.Sequential(*blocks).to(device)
        if how == "fsdp1":
            wrap = lambda module, recurse, nonwrapped_numel: recurse or isinstance(module, nn.Linear)
            model = FullyShardedDataParallel(model, device_id=device, process_group=dist.group.WORLD, auto_wrap_policy=wrap)
        else:
            options = {"mesh": init_device_mesh(device.type, (2,))}
            if how == "bf16":
                options["mp_policy"] = MixedPrecisionPolicy(torch.bfloat16, torch.float32)
            if how == "offload" and device.type == "sim":  # what is offloaded computes the same, and needs pinned memory
                options["offload_policy"] = CPUOffloadPolicy()
            for unit in [*model, model]:
                fully_shard(unit, **options)
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
        inputs = [torch.randn(4, 8, generator=torch.Generator().manual_seed(10 * i + rank)) for i in range(3)]
        losses = []
        for input in [input.to(device, non_blocking=True) for input in inputs]:
            loss = model(input).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.detach())
        local = [getattr(parameter, "_local_tensor", parameter).detach() for parameter in model.parameters()]
        return [each.cpu() for each in losses + local]

    expected, actual = trained(torch.device("cpu")), trained(device)
    equal = all(torch.equal(a, b) for a, b in zip(actual, expected, strict=True))
    print("equal" if equal else "different", *sorted({finding["code"] for finding in fsdp_sim.drain_findings()}))
    dist.destroy_process_group()
"""


@unittest.skipUnless(PACKAGE, "the build has made no package fsdp_sim")
class Simulation(unittest.TestCase):
    def answers(self, how: str, forgotten: str = "") -> list[str]:
        return [printed.strip() for printed in outputs_of(_RANK, forgotten, how)]

    def test_values_are_the_cpus(self) -> None:
        for how in ("fsdp2", "bf16", "offload", "fsdp1"):
            with self.subTest(how):
                self.assertEqual(self.answers(how), ["equal"] * 2)

    def test_a_forgotten_wait_is_found_though_values_stay_equal(self) -> None:
        self.assertEqual(self.answers("fsdp2", "_fsdp_collectives:532"), ["equal stream_race use_after_free"] * 2)


if __name__ == "__main__":
    unittest.main()
