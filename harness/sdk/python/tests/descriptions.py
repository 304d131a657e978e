"""Resolved module descriptions and steps, as short as tests want them."""

from __future__ import annotations

from typing import Any

import torch


def linear(inputs: int, outputs: int, bias: bool = True, label: str = "Linear") -> dict[str, Any]:
    return {"type": "Linear", "class": label, "in": inputs, "out": outputs, "bias": bias}


def sequential(*children: dict[str, Any]) -> dict[str, Any]:
    return {"type": "Sequential", "class": "Sequential", "children": [[str(i), child] for i, child in enumerate(children)]}


def graph(inputs: list[str], forward: list[dict[str, Any]], output: Any, children: Any = (), label: str = "Graph", **more: Any) -> dict[str, Any]:
    return {"type": "Graph", "class": label, "inputs": inputs, "forward": forward, "output": output, "children": [list(c) for c in children], **more}


def step(verb: str, **arguments: Any) -> dict[str, Any]:
    return {"verb": verb, **arguments}


def observe(*what: str, model: str = "model", **more: Any) -> dict[str, Any]:
    return step("observe", what=list(what), model=model, **more)


def train(iterations: int = 1, *, model: str = "model", optimizer: str = "optimizer", observed: tuple[str, ...] = ()) -> list[dict[str, Any]]:
    """zero_grad, forward x, sum, backward, [observe,] step."""
    steps: list[dict[str, Any]] = []
    for iteration in range(iterations):
        steps += [
            step("zero_grad", optimizer=optimizer, set_to_none=True),
            step("forward", input=["x"], model=model, output="output"),
            step("loss", kind="sum", of=["output"], into="loss"),
            step("backward", loss="loss"),
        ]
        if observed:
            steps.append(observe(*observed, model=model, iteration=iteration))
        steps.append(step("step", optimizer=optimizer))
    return steps


def dyadic(*shape: int, seed: int = 0, levels: int = 4, unit: float = 0.25) -> torch.Tensor:
    """Multiples of `unit`: sums and products of a few of them are exact in float32."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(-levels, levels + 1, shape, generator=generator).float() * unit
