"""A tap below the library under test: it sits in PyTorch's dispatcher, between whatever calls a collective of c10d and the backend that
carries it out, and sees all of them, by whichever function of torch.distributed they were asked for and whatever that function is called
in this version of PyTorch. An adapter makes one and says in `rendezvous` where to note:

    self.tap.into = self.context.trace
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.distributed as dist

from fsdp_cts_sdk.dtypes import dtype_name
from fsdp_cts_sdk.errors import InstrumentBlind
from fsdp_cts_sdk.trace import Trace

# The last level of the dispatcher above the backends: nothing of c10d's own stands there, and calls of functional collectives, which
# have left autograd's level behind, come by it too.
_LEVEL = torch._C.DispatchKey.ADInplaceOrView

# Operators of c10d, by what they are to the protocol: arguments are (outputs, inputs, group, …), or (tensors, group, …).
_PAIRS = {
    "all_gather": ("_allgather_base_", "allgather_", "allgather_coalesced_", "allgather_into_tensor_coalesced_"),
    "reduce_scatter": ("_reduce_scatter_base_", "reduce_scatter_", "reduce_scatter_tensor_coalesced_"),
    "other": ("alltoall_base_", "alltoall_"),
}
# Of these only the root has all arguments. The place of the one that every rank has:
_ROOTED = {"scatter_": 0, "gather_": 1}
_IN_PLACE = {"all_reduce": ("allreduce_", "allreduce_coalesced_"), "broadcast": ("broadcast_",), "other": ("reduce_",)}

class CollectiveTap:
    """One for the life of the process. Tensors made in inference mode go past it: their calls skip the place where it sits."""

    def __init__(self) -> None:
        self.into: Trace | None = None  # the running case's; None: collectives are not noted
        self.before_reduce_scatter: Callable[[], None] = lambda: None
        self._unit: str | None = None
        self._reduce_op: str | None = None
        self._ranks: dict[str, list[int]] = {}
        self._library = torch.library.Library("c10d", "IMPL")
        for kind, names in _PAIRS.items():
            self._watch(kind, names, self._note_pair)
        for name, place in _ROOTED.items():
            self._watch("other", (name,), functools.partial(self._note_rooted, place))
        for kind, names in _IN_PLACE.items():
            self._watch(kind, names, self._note_in_place)
        # The dispatcher hands the operator of a reduction on as something that cannot be read; the group's methods are called with it.
        for name in dir(dist.ProcessGroup):
            if "reduce" in name:
                self._read_reduce_op(name)

    @contextlib.contextmanager
    def on_behalf_of(self, unit: str | None) -> Iterator[None]:
        """Collectives inside belong to this unit, as the adapter reads it from the library."""
        before, self._unit = self._unit, unit
        try:
            yield
        finally:
            self._unit = before

    def check(self, device: torch.device) -> None:
        """Raises InstrumentBlind unless the tap sees an all-gather and two sums over the default group: on a PyTorch where it does not, it
        could not say anything about a library. Collective; to be called once, when the group has been made."""
        before, self.into = self.into, Trace()
        one, all_ones = torch.ones(1, device=device), torch.ones(dist.get_world_size(), device=device)
        dist.all_gather(list(all_ones.split(1)), one)
        reduce_scatter = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor  # as 2.13 calls it
        reduce_scatter(one, all_ones, op=dist.ReduceOp.SUM)
        dist.all_reduce(one)
        seen = [(event["op"], event["reduce_op"]) for event in self.into.drain()]
        self.into = before
        if seen != [("all_gather", None), ("reduce_scatter", "sum"), ("all_reduce", "sum")]:
            raise InstrumentBlind(
                f"of an all-gather, a reduce-scatter and an all-reduce the tap below torch.distributed {torch.__version__} saw "
                f"{seen or 'nothing'}: it cannot tell anything about a library"
            )

    def _watch(self, kind: str, names: tuple[str, ...], note: Callable[..., None]) -> None:
        for name in names:
            operator = getattr(torch.ops.c10d, name).default
            self._library.impl(name, functools.partial(self._pass_on, kind, operator, note), _LEVEL.name)

    def _pass_on(self, kind: str, operator: Any, note: Callable[..., None], *args: Any, **kwargs: Any) -> Any:
        if self.into is not None:
            if kind == "reduce_scatter":
                self.before_reduce_scatter()
            note(kind, args)
        with torch._C._ExcludeDispatchKeyGuard(torch._C.DispatchKeySet(_LEVEL)):
            return operator(*args, **kwargs)

    def _note_pair(self, kind: str, args: tuple[Any, ...]) -> None:
        outputs, inputs = (list(_tensors(each)) for each in args[:2])
        self._note(kind, inputs, _numel(inputs), _numel(outputs), args[2])

    def _note_rooted(self, place: int, kind: str, args: tuple[Any, ...]) -> None:
        """In the size that every rank gives or gets, so that all note the same."""
        tensors = list(_tensors(args[place]))
        self._note(kind, tensors, _numel(tensors), _numel(tensors), args[2])

    def _note_in_place(self, kind: str, args: tuple[Any, ...]) -> None:
        tensors = list(_tensors(args[0]))
        self._note(kind, tensors, _numel(tensors), _numel(tensors), args[1])

    def _note(self, kind: str, tensors: list[torch.Tensor], in_numel: int, out_numel: int, group: Any) -> None:
        reduce_op = self._reduce_op if kind in ("all_reduce", "reduce_scatter") else None
        self.into.collective(kind, dtype_name(tensors[0].dtype), in_numel, out_numel, self._members(group), reduce_op, self._unit)

    def _members(self, group: Any) -> list[int]:
        members = dist.ProcessGroup.unbox(group)
        name = members.group_name
        if name not in self._ranks:
            self._ranks[name] = sorted(dist.get_process_group_ranks(members))
        return self._ranks[name]

    def _read_reduce_op(self, name: str) -> None:
        method = getattr(dist.ProcessGroup, name)

        @functools.wraps(method)
        def call(group: dist.ProcessGroup, *args: Any, **kwargs: Any) -> Any:
            before = self._reduce_op
            self._reduce_op = next((op for op in map(_reduce_name, (*args, *kwargs.values())) if op), "sum")
            try:
                return method(group, *args, **kwargs)
            finally:
                self._reduce_op = before

        setattr(dist.ProcessGroup, name, call)


def _tensors(nested: Any) -> Iterator[torch.Tensor]:
    if isinstance(nested, torch.Tensor):
        yield nested
    else:
        for each in nested:
            yield from _tensors(each)


def _numel(tensors: list[torch.Tensor]) -> int:
    return sum(tensor.numel() for tensor in tensors)


def _reduce_name(argument: Any) -> str | None:
    """Of an operator, or of options that hold one."""
    argument = getattr(argument, "reduceOp", argument)
    if not isinstance(argument, (dist.ReduceOp, dist.ReduceOp.RedOpType)):
        return None
    known = {dist.ReduceOp.SUM: "sum", dist.ReduceOp.PREMUL_SUM: "sum", dist.ReduceOp.AVG: "avg", dist.ReduceOp.MAX: "max"}
    return next((name for op, name in known.items() if argument == op), None)
