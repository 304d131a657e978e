"""PyTorch's FSDP2 in the virtual time of the simulated accelerator: the same numbers every time, and numbers that say what they should."""

from __future__ import annotations

import json
import os
import tempfile
import unittest
from pathlib import Path
from typing import Any

from rank_programs import outputs_of

PACKAGE = os.environ.get("FSDP_CTS_SIM_PACKAGE")

# One rank of two: a decoder of 8 blocks, of which the third step is measured. Prints the numbers as JSON.
_RANK = """
    import dataclasses, json, os, sys
    from pathlib import Path
    import torch
    import torch.distributed as dist
    from torch import nn
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from pytorch_testee import simulation

    rendezvous, how = sys.argv[1:]
    rank = int(os.environ["RANK"])
    device = simulation.begin(Path(os.environ["FSDP_CTS_SIM_PACKAGE"]), None)
    import fsdp_sim

    torch.set_num_threads(1)
    dist.init_process_group("cpu:gloo,sim:sim", init_method=f"file://{rendezvous}", rank=rank, world_size=2)
    torch.manual_seed(0)

    class Decoder(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = nn.Embedding(64, 64)
            self.blocks = nn.ModuleList(nn.TransformerEncoderLayer(64, 4, 256, 0.0, batch_first=True, norm_first=True) for _ in range(8))
            self.head = nn.Linear(64, 64)

        def forward(self, tokens):
            hidden = self.embed(tokens)
            mask = nn.Transformer.generate_square_subsequent_mask(tokens.shape[1], device=tokens.device)
            for block in self.blocks:
                hidden = block(hidden, src_mask=mask, is_causal=True)
                if how == "wait":  # one too many: the host waits behind each block, so nothing is gathered ahead
                    fsdp_sim.synchronize()
            return self.head(hidden)

    model = Decoder().to(device)
    for unit in [*model.blocks, model]:
        fully_shard(unit, mesh=init_device_mesh("sim", (2,)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    tokens = torch.arange(4 * 32).view(4, 32).remainder(61).add(rank).to(device)
    for step in range(3):
        fsdp_sim.mark()
        if how == "late" and rank == 1:
            fsdp_sim.delay_stream(fsdp_sim.current_stream(), 20_000_000)
        model(tokens).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        numbers = fsdp_sim.since_mark()
    print(json.dumps({**dataclasses.asdict(numbers), "findings": len(fsdp_sim.drain_findings())}))
    dist.destroy_process_group()
    fsdp_sim.write_trace()
"""


def step(machine: str, how: str = "", trace: str = "") -> list[dict[str, Any]]:
    """By rank."""
    return [json.loads(printed) for printed in outputs_of(_RANK, how, FSDP_SIM_MACHINE=machine, FSDP_SIM_TRACE=trace)]


@unittest.skipUnless(PACKAGE, "the build has made no package fsdp_sim")
class VirtualTime(unittest.TestCase):
    @classmethod
    def setUpClass(cls) -> None:
        cls.near = step("h100-nvlink")

    def test_the_same_numbers_again_and_a_trace_of_each_rank(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            self.assertEqual(step("h100-nvlink", trace=folder), self.near)
            self.assertEqual(sorted(os.listdir(folder)), ["rank0.json", "rank1.json"])
            for rank in range(2):
                events = json.loads(Path(folder, f"rank{rank}.json").read_text())["traceEvents"]
                lanes = {event["args"]["name"] for event in events if event["name"] == "thread_name"}
                self.assertLessEqual({f"default stream of sim:{rank}", "all_gather_stream", "reduce_scatter_stream"}, lanes)
                self.assertEqual({event["pid"] for event in events}, {rank})
                self.assertIn("collective", {event.get("cat") for event in events})
        for numbers in self.near:
            self.assertEqual(numbers["findings"], 0)
            self.assertGreater(numbers["exposed_communication"], 0)
            self.assertLess(numbers["exposed_communication"], numbers["communication"])
            self.assertLess(numbers["communication"], numbers["duration"])

    def test_a_slower_network_exposes_more(self) -> None:
        for near, far in zip(self.near, step("h100-infiniband"), strict=True):
            self.assertEqual(near["compute"], far["compute"])
            self.assertGreater(far["communication"], near["communication"])
            self.assertGreater(far["exposed_communication"], near["exposed_communication"])
            # A model as small as this one is launched more slowly than it computes, so its step need not be longer.
            self.assertGreaterEqual(far["duration"], near["duration"])

    def test_a_wait_too_many_makes_a_step_longer(self) -> None:
        for free, waiting in zip(step("slow"), step("slow", "wait"), strict=True):
            self.assertEqual(waiting["communication"], free["communication"])
            self.assertGreater(waiting["duration"], free["duration"])

    def test_all_ranks_wait_for_one_that_is_late(self) -> None:
        for free, late in zip(self.near, step("h100-nvlink", "late"), strict=True):
            self.assertGreater(late["duration"], free["duration"] + 10_000_000)


if __name__ == "__main__":
    unittest.main()
