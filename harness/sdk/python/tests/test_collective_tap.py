import tempfile
import unittest
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional

from fsdp_cts_sdk import InstrumentBlind
from fsdp_cts_sdk.collective_tap import CollectiveTap
from fsdp_cts_sdk.trace import Trace

CPU = torch.device("cpu")


class Tap(unittest.TestCase):
    """One rank: what is seen does not depend on how many there are."""

    @classmethod
    def setUpClass(cls) -> None:
        cls.tap = CollectiveTap()
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        dist.init_process_group("gloo", init_method=f"file://{Path(folder.name) / 'store'}", rank=0, world_size=1)
        cls.addClassCleanup(dist.destroy_process_group)

    def setUp(self) -> None:
        self.tap.into = Trace()

    def seen(self) -> list[tuple[str, str | None, int, int, str | None]]:
        keys = ("op", "reduce_op", "in_numel", "out_numel", "unit")
        return [tuple(event[key] for key in keys) for event in self.tap.into.drain()]

    def test_each_call_is_one_event(self) -> None:
        four, out = torch.ones(4), torch.empty(4)
        with self.tap.on_behalf_of("0"):
            dist.all_gather_into_tensor(out, four)
        dist.all_gather([out], four)
        dist.reduce_scatter_tensor(out, four, op=dist.ReduceOp.AVG)
        dist.all_reduce(four, op=dist.ReduceOp.MAX, async_op=True).wait()
        dist.broadcast(four, 0)
        dist.scatter(out, [four], 0)
        gathers = [("all_gather", None, 4, 4, "0"), ("all_gather", None, 4, 4, None)]
        reductions = [("reduce_scatter", "avg", 4, 4, None), ("all_reduce", "max", 4, 4, None)]
        self.assertEqual(self.seen(), [*gathers, *reductions, ("broadcast", None, 4, 4, None), ("other", None, 4, 4, None)])

    def test_functional_collectives_go_by_the_same_place(self) -> None:
        functional.all_gather_tensor(torch.ones(4), 0, dist.group.WORLD) + 0
        self.assertEqual(self.seen(), [("all_gather", None, 4, 4, None)])

    def test_a_tap_that_sees_nothing_says_so(self) -> None:
        self.tap.check(CPU)
        blind = CollectiveTap.__new__(CollectiveTap)  # not connected to the dispatcher
        blind.into = None
        with self.assertRaisesRegex(InstrumentBlind, "saw nothing"):
            blind.check(CPU)


if __name__ == "__main__":
    unittest.main()
