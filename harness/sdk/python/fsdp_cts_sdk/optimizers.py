"""torch.optim optimizers from `optimizer` steps: conformance/LANGUAGE.md, section 6."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import torch

KINDS: dict[str, tuple[type[torch.optim.Optimizer], tuple[str, ...]]] = {
    "SGD": (torch.optim.SGD, ("lr", "momentum", "weight_decay")),
    "Adam": (torch.optim.Adam, ("lr", "betas", "eps", "weight_decay")),
    "AdamW": (torch.optim.AdamW, ("lr", "betas", "eps", "weight_decay")),
}


def make_optimizer(step: dict[str, Any], parameters: Iterable[tuple[str, torch.Tensor]]) -> torch.optim.Optimizer:
    """`match` selects by regular expression (search) on names. With `groups` the first that matches gives its settings, and a parameter
    that none matches is left out."""
    if step["kind"] not in KINDS:
        raise ValueError(f"no optimizer '{step['kind']}'; known are {', '.join(KINDS)}")
    cls, allowed = KINDS[step["kind"]]
    match = re.compile(step.get("match") or "")
    chosen = [(name, parameter) for name, parameter in parameters if match.search(name)]
    settings = _settings(step, allowed)
    if step.get("foreach") is not None:
        settings["foreach"] = step["foreach"]
    if step.get("amsgrad"):
        settings["amsgrad"] = True
    if not step.get("groups"):
        return cls([parameter for _, parameter in chosen], **settings)
    groups = [{"params": [], **_settings(group, allowed)} for group in step["groups"]]
    patterns = [re.compile(group["match"]) for group in step["groups"]]
    for name, parameter in chosen:
        group = next((g for g, pattern in zip(groups, patterns) if pattern.search(name)), None)
        if group is not None:
            group["params"].append(parameter)
    return cls(groups, **settings)


def _settings(source: dict[str, Any], allowed: tuple[str, ...]) -> dict[str, Any]:
    found = {key: source[key] for key in allowed if source.get(key) is not None}
    if "betas" in found:
        found["betas"] = tuple(found["betas"])
    return found
