"""Two ranks of the PyTorch testee that all tests share, and how tests read their answers."""

from __future__ import annotations

import atexit
import functools
import sys
import unittest
from math import prod
from pathlib import Path
from typing import Any

import torch

from fsdp_cts_sdk.rehearsal import RankAnswer, Rehearsal

COMMAND = [sys.executable, str(Path(__file__).resolve().parents[1] / "pytorch_testee")]


@functools.cache
def session_of(world: int) -> Rehearsal:
    """Importing PyTorch takes longer than most tests, so ranks serve one class after the other."""
    session = Rehearsal(COMMAND, world)
    atexit.register(session.__exit__)
    return session


class TesteeCase(unittest.TestCase):
    world = 2
    session: Rehearsal

    @classmethod
    def setUpClass(cls) -> None:
        cls.session = session_of(cls.world)

    def act(self, model: dict[str, Any], plan: dict[str, Any] | None, program: list[Any], data: dict[str, torch.Tensor], **more: Any) -> list[RankAnswer]:
        """Acts the case out; every rank must come to its end."""
        steps = [step for part in program for step in (part if isinstance(part, list) else [part])]
        plans = {} if plan is None else {"model": plan}
        answers = self.session.run({"models": {"model": model}, "plans": plans, "program": steps, **more}, data)
        for rank, answer in enumerate(answers):
            self.assertEqual(answer.end["type"], "done", f"rank {rank}: {answer.end}")
        return answers

    def layout(self, answers: list[RankAnswer], what: str = "parameters", which: int = 0) -> dict[str, list[list[int]]]:
        """name -> [[rank, offset, length], …], as literal layouts stand in scenarios."""
        found: dict[str, list[list[int]]] = {}
        for rank, answer in enumerate(answers):
            for item in answer.entries(what)[which]["items"]:
                found.setdefault(item["name"], []).extend([rank, p["offset"], p["length"]] for p in item["pieces"])
        return found

    def whole(self, answers: list[RankAnswer], what: str, name: str, which: int = 0) -> torch.Tensor:
        """Assembled from the shards of the ranks that have the item; unsharded: the first such rank's."""
        parts = [self.item(a, what, name, which) for a in answers if any(i["name"] == name for i in a.entries(what)[which]["items"])]
        shape = parts[0][0]["global_shape"]
        flat = torch.full((prod(shape),), float("nan"), dtype=getattr(torch, parts[0][0]["dtype"]))
        for item, tensors in parts if parts[0][0]["sharded"] else parts[:1]:
            for piece, tensor in zip(item["pieces"], tensors):
                flat[piece["offset"] : piece["offset"] + piece["length"]] = tensor
        return flat.reshape(shape)

    def item(self, answer: RankAnswer, what: str, name: str, which: int = 0) -> tuple[dict[str, Any], list[torch.Tensor]]:
        having = [(o, e) for o in answer.observations for e in o["entries"] if e["what"] == what]
        observation, entry = having[which]
        (item,) = [item for item in entry["items"] if item["name"] == name]
        return item, [answer.tensors[observation["step"]][piece["tensor"]] for piece in item["pieces"]]

    def events(self, answer: RankAnswer, which: int = 0) -> list[dict[str, Any]]:
        """The collectives of a trace."""
        return [event for event in answer.entries("trace")[which]["events"] if event["op"] != "compute"]

    def collectives(self, answer: RankAnswer, which: int = 0) -> list[str]:
        return [f"{e['op']} {e['phase']} {e['unit']} {e['in_numel']}->{e['out_numel']} {e['dtype']}" for e in self.events(answer, which)]

    def order(self, answer: RankAnswer, phase: str, which: int = 0) -> list[str]:
        """Gathers, reductions and computations of a phase, as they came."""
        return [f"{e['op']} {e['unit']}" for e in answer.entries("trace")[which]["events"] if e["phase"] == phase]

    def error(self, answer: RankAnswer, attempt: str = "a") -> dict[str, Any] | None:
        (entry,) = [entry for entry in answer.entries("attempt") if entry["name"] == attempt]
        return entry["error"]
