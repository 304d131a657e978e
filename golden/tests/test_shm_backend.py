"""torch.distributed over the suite's own shared memory: every collective that it has, on one to four ranks, against closed forms."""

from __future__ import annotations

import multiprocessing
import os
import tempfile
import time
import traceback
import unittest
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path

import torch
import torch.distributed as dist

from pytorch_testee import shm_backend

MODULE = os.environ.get("FSDP_CTS_C10D_MODULE")


def values(rank: int, *shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Element i of rank r is 100 r + i."""
    count = torch.Size(shape).numel()
    return (torch.arange(count) + 100 * rank).to(dtype).reshape(shape)


def everything(rank: int, world: int) -> None:
    for check in (all_reduce, all_gather, reduce_scatter, one_to_all, objects, coalesced, layouts, autograd, works, subgroups, refusals):
        check(rank, world)


def total(world: int, *shape: int) -> torch.Tensor:
    return sum((values(r, *shape) for r in range(world)), torch.zeros(shape))


def equal(actual: torch.Tensor, expected: torch.Tensor) -> None:
    torch.testing.assert_close(actual, expected, rtol=0, atol=0)


def all_reduce(rank: int, world: int) -> None:
    for op, expected in (
        (dist.ReduceOp.SUM, total(world, 2, 3)),
        (dist.ReduceOp.AVG, total(world, 2, 3) / world),
        (dist.ReduceOp.MAX, values(world - 1, 2, 3)),
    ):
        tensor = values(rank, 2, 3)
        dist.all_reduce(tensor, op)
        equal(tensor, expected)
    for dtype in (torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.uint8):
        tensor = torch.full((5,), rank + 1, dtype=dtype)
        dist.all_reduce(tensor)
        equal(tensor, torch.full((5,), world * (world + 1) // 2, dtype=dtype))
    # The order of additions is that of the ranks: 2^24 takes ones one by one and loses each.
    tensor = torch.tensor([2.0**24 if rank == 0 else 1.0])
    dist.all_reduce(tensor)
    equal(tensor, torch.tensor([2.0**24]))
    for root in range(world):
        tensor = values(rank, 4)
        dist.reduce(tensor, root)
        equal(tensor, total(world, 4) if rank == root else values(rank, 4))


def all_gather(rank: int, world: int) -> None:
    expected = torch.cat([values(r, 3) for r in range(world)])
    output = torch.empty(3 * world)
    dist.all_gather_into_tensor(output, values(rank, 3))
    equal(output, expected)
    output = torch.empty(3 * world)
    output[3 * rank : 3 * rank + 3] = values(rank, 3)
    dist.all_gather_into_tensor(output, output[3 * rank : 3 * rank + 3])
    equal(output, expected)
    for blocks in (list(torch.empty(3 * world).split(3)), [torch.empty(3) for _ in range(world)]):
        dist.all_gather(blocks, values(rank, 3))
        equal(torch.cat(blocks), expected)
    nothing = torch.empty(0)
    dist.all_gather_into_tensor(nothing, torch.empty(0))


def reduce_scatter(rank: int, world: int) -> None:
    expected = total(world, world, 2)[rank]
    output, contribution = torch.empty(2), values(rank, world, 2)
    dist.reduce_scatter_tensor(output, contribution)
    equal(output, expected)
    equal(contribution, values(rank, world, 2))
    dist.reduce_scatter(output, list(values(rank, world, 2).unbind()), dist.ReduceOp.AVG)
    equal(output, expected / world)
    within = values(rank, world, 2).flatten()
    dist.reduce_scatter_tensor(within[2 * rank : 2 * rank + 2], within)
    equal(within[2 * rank : 2 * rank + 2], expected)


def one_to_all(rank: int, world: int) -> None:
    for root in range(world):
        tensor = values(rank, 2, 2)
        dist.broadcast(tensor, root)
        equal(tensor, values(root, 2, 2))
        output = torch.empty(2, 2)
        dist.scatter(output, [values(10 * root + r, 2, 2) for r in range(world)] if rank == root else None, root)
        equal(output, values(10 * root + rank, 2, 2))
        gathered = [torch.empty(2, 2) for _ in range(world)] if rank == root else None
        dist.gather(values(rank, 2, 2), gathered, root)
        for r, each in enumerate(gathered or ()):
            equal(each, values(r, 2, 2))
    dist.barrier()


def objects(rank: int, world: int) -> None:
    everybody = [None] * world
    dist.all_gather_object(everybody, {"rank": rank, "long": "x" * (100 * rank)})
    assert everybody == [{"rank": r, "long": "x" * (100 * r)} for r in range(world)]
    said = [rank]
    dist.broadcast_object_list(said, world - 1)
    assert said == [world - 1]


def coalesced(rank: int, world: int) -> None:
    outputs, inputs = [torch.empty(2 * world), torch.empty(world, dtype=torch.int64)], [values(rank, 2), values(rank, 1, dtype=torch.int64)]
    group = dist.distributed_c10d._get_default_group()
    group.allgather_into_tensor_coalesced(outputs, inputs).wait()
    equal(outputs[0], torch.cat([values(r, 2) for r in range(world)]))
    equal(outputs[1], torch.cat([values(r, 1, dtype=torch.int64) for r in range(world)]))
    outputs = [torch.empty(2), torch.empty(1)]
    group.reduce_scatter_tensor_coalesced(outputs, [values(rank, world, 2).flatten(), values(rank, world)]).wait()
    equal(outputs[0], total(world, world, 2)[rank])
    equal(outputs[1], total(world, world)[rank : rank + 1])
    tensors = [values(rank, 2), values(rank, 3)]
    group.allreduce_coalesced(tensors).wait()
    for tensor in tensors:
        equal(tensor, total(world, tensor.numel()))


def layouts(rank: int, world: int) -> None:
    tensor = values(rank, 3, 2).t()
    dist.all_reduce(tensor)
    equal(tensor, total(world, 3, 2).t())
    columns = torch.zeros(4, 2)
    dist.broadcast(columns[:, 1] if rank else columns[:, 1].fill_(7), 0)
    equal(columns, torch.tensor([[0.0, 7.0]] * 4))


def autograd(rank: int, world: int) -> None:
    """A backend writes beneath autograd: it leaves versions alone, and takes leaves."""
    leaf = values(rank, 3).requires_grad_()
    saved = leaf * leaf
    with torch.no_grad():
        dist.all_reduce(leaf)
    saved.sum().backward()
    equal(leaf.grad, 2 * total(world, 3))
    with torch.inference_mode():
        tensor = values(rank, 3)
        dist.all_reduce(tensor)
        equal(tensor, total(world, 3))


def works(rank: int, world: int) -> None:
    tensors = [values(rank, 3) for _ in range(3)]
    pending = [dist.all_reduce(tensor, async_op=True) for tensor in tensors]
    assert pending[2].is_completed()
    (result,) = pending[1].get_future().wait()
    equal(result, total(world, 3))
    pending[0].wait()
    pending[0].wait()
    for tensor in tensors:
        equal(tensor, total(world, 3))
    dropped = values(rank, 3, 2).t()
    dist.all_reduce(dropped, async_op=True)
    equal(dropped, total(world, 3, 2).t())


def subgroups(rank: int, world: int) -> None:
    alone = [dist.new_group([r]) for r in range(world)][rank]
    tensor = values(rank, 2)
    dist.all_reduce(tensor, group=alone)
    equal(tensor, values(rank, 2))
    if world < 3:
        return
    members = [0, world - 1]
    ends = dist.new_group(members)
    if rank in members:
        tensor = values(rank, 2)
        dist.broadcast(tensor, members[1], ends)
        equal(tensor, values(members[1], 2))


def refusals(rank: int, world: int) -> None:
    for call, text in (
        (lambda: dist.all_reduce(values(rank, 2), dist.ReduceOp.PRODUCT), "has the reductions SUM, AVG and MAX"),
        (lambda: dist.all_gather_into_tensor(torch.empty(3 * world), torch.empty(2)), "3 x Float|sizes|must be equal|times the other"),
        (lambda: dist.all_to_all_single(values(rank, world), values(rank, world)), "shm does not support alltoall_base"),
    ):
        with unittest.TestCase().assertRaisesRegex((RuntimeError, ValueError), text):
            call()


def a_rank_ends(rank: int, world: int) -> None:
    dist.barrier()
    if rank == 1:
        os._exit(0)
    with unittest.TestCase().assertRaisesRegex(RuntimeError, "rank 1 has ended"):
        dist.all_reduce(values(rank, 2))


def ranks_disagree(rank: int, world: int) -> None:
    with unittest.TestCase().assertRaisesRegex(RuntimeError, "issued all_reduce of [23] x float32 where rank"):
        dist.all_reduce(values(rank, 2 + rank))


def watched(rank: int, world: int) -> None:
    """As TORCH_DISTRIBUTED_DEBUG=DETAIL does: c10d asks how many collectives each rank has issued, and says it where they part."""
    dist.set_debug_level(dist.DebugLevel.DETAIL)
    group = dist.new_group(range(world))
    tensor = values(rank, 3)
    dist.all_reduce(tensor, group=group)
    equal(tensor, total(world, 3))
    with unittest.TestCase().assertRaisesRegex(RuntimeError, "mismatch between collectives.*SequenceNumber=1"):
        dist.all_reduce(values(rank, 2 + rank), group=group)


def _rank(program: Callable[[int, int], None], rank: int, world: int, store: str, answer: Connection) -> None:
    try:
        dist.init_process_group("shm", init_method=f"file://{store}", rank=rank, world_size=world)
        program(rank, world)
        answer.send("")
    except BaseException:
        answer.send(traceback.format_exc())
    answer.close()
    os._exit(0)  # what the parent has opened is not this process's to close


@unittest.skipUnless(MODULE, "FSDP_CTS_C10D_MODULE does not name the module that the build makes")
class ShmBackendTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls) -> None:
        shm_backend.register(Path(str(MODULE)), torch.device("cpu"))

    def run_ranks(self, program: Callable[[int, int], None], world: int, silent: tuple[int, ...] = ()) -> None:
        torch.set_num_threads(1)
        context = multiprocessing.get_context("fork")  # torch is loaded already
        with tempfile.TemporaryDirectory() as folder:
            ranks = []
            for rank in range(world):
                ours, theirs = context.Pipe(duplex=False)
                process = context.Process(target=_rank, args=(program, rank, world, f"{folder}/store", theirs))
                process.start()
                theirs.close()
                ranks.append((process, ours))
            try:
                for rank, (_, answer) in enumerate(ranks):
                    if rank in silent:
                        continue
                    self.assertTrue(answer.poll(60), f"rank {rank} says nothing")
                    if failure := answer.recv():
                        self.fail(f"rank {rank}: {failure}")
            finally:
                for process, _ in ranks:
                    process.kill()
                    process.join()

    def test_collectives(self) -> None:
        for world in (1, 2, 3, 4):
            with self.subTest(world=world):
                self.run_ranks(everything, world)

    def test_a_rank_that_ends_is_named(self) -> None:
        start = time.monotonic()
        self.run_ranks(a_rank_ends, 2, silent=(1,))
        self.assertLess(time.monotonic() - start, 30)

    def test_ranks_that_disagree_are_named(self) -> None:
        self.run_ranks(ranks_disagree, 2)

    def test_ranks_are_watched(self) -> None:
        self.run_ranks(watched, 2)

    def test_a_module_that_cannot_be_loaded(self) -> None:
        with tempfile.NamedTemporaryFile(suffix=".so") as empty, self.assertRaisesRegex(shm_backend.NotThere, "cannot be loaded.*leave out --backend shm"):
            shm_backend.register(Path(empty.name), torch.device("cpu"))


if __name__ == "__main__":
    unittest.main()
