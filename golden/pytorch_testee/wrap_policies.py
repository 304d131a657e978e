"""`auto_wrap` of a plan becomes one of PyTorch's policies. Classes are the scenario's nominal classes."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any

from torch import nn
from torch.distributed.fsdp import wrap
from torch.nn.modules.batchnorm import _BatchNorm

from fsdp_cts_sdk.errors import Unsupported
from fsdp_cts_sdk.modules import classes_labelled

Arguments = Callable[[dict[str, Any]], dict[str, Any]]


def classes_of(labels: Iterable[str]) -> set[type[nn.Module]]:
    return {cls for label in labels for cls in classes_labelled(label)}


def make_policy(auto_wrap: dict[str, Any], arguments: Arguments) -> Any:
    """`arguments` turns the settings of a custom rule into the API's keyword arguments."""
    kind = auto_wrap["policy"]
    classes = classes_of(auto_wrap.get("classes", ()))
    if kind == "module_wrap":
        return wrap.ModuleWrapPolicy(classes)
    if kind == "transformer":
        return functools.partial(wrap.transformer_auto_wrap_policy, transformer_layer_cls=classes)
    if kind == "lambda":
        return functools.partial(wrap.lambda_auto_wrap_policy, lambda_fn=lambda module: isinstance(module, tuple(classes)))
    if kind == "size_based":
        return functools.partial(wrap.size_based_auto_wrap_policy, **_size_based(auto_wrap))
    if kind == "always":
        return wrap.always_wrap_policy
    if kind == "never":
        return lambda *_, **__: False
    if kind == "batch_norm":
        return functools.partial(wrap._wrap_module_cls_individually, module_classes=[_BatchNorm])
    if kind == "custom":
        return wrap.CustomPolicy(_rules(auto_wrap["rules"], arguments))
    if kind == "or":
        return functools.partial(wrap._or_policy, policies=[make_policy(one, arguments) for one in auto_wrap["policies"]])
    raise Unsupported(f"no auto-wrap policy '{kind}'")


def _size_based(auto_wrap: dict[str, Any]) -> dict[str, Any]:
    arguments = {"min_num_params": auto_wrap["min_num_params"]} if "min_num_params" in auto_wrap else {}
    for key in ("force_leaf", "exclude_wrap"):
        if key in auto_wrap:
            arguments[f"{key}_modules"] = classes_of(auto_wrap[key])
    return arguments


def _rules(rules: list[dict[str, Any]], arguments: Arguments) -> Callable[[nn.Module], Any]:
    """The first rule for a module's class decides; a module that no rule names is not wrapped."""
    made = [
        (tuple(classes_labelled(rule["class"])), arguments(rule["wrap"]) if isinstance(rule["wrap"], dict) else rule["wrap"])
        for rule in rules
    ]
    return lambda module: next((wanted for classes, wanted in made if isinstance(module, classes)), False)
