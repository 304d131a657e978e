"""What real PyTorch, or the way it is driven here, cannot run. A function of the case alone, so that all ranks say the same."""

from __future__ import annotations

from typing import Any

import torch

from fsdp_cts_sdk.verbs import CONTROLS
from pytorch_testee.compat import VERSION
from pytorch_testee.groups import HYBRID

APIS = ("fully_shard", "fsdp", "composable")
_COMPOSABLE_FIXED = {"use_orig_params": True, "limit_all_gathers": True, "backward_prefetch": "BACKWARD_PRE"}


def reason_unsupported(case: dict[str, Any], device: torch.device) -> str | None:
    for instance, plan in case["plans"].items():
        if reason := _plan(plan, device):
            return f"model '{instance}': {reason}"
    sharded: set[str] = set()
    for step in case["program"]:
        instance = step.get("model", "model")
        plan = case["plans"].get(instance)
        if reason := _step(step, plan, device) or (_flattened(step, plan) if instance in sharded else None):
            return f"'{step['verb']}': {reason}"
        if step["verb"] == "shard":
            sharded.add(instance)
    return None


def reason_without_fully_shard(device: torch.device) -> str | None:
    if VERSION < (2, 7) and device.type == "cpu":
        return f"FSDP2 of PyTorch {torch.__version__} needs an accelerator's streams"
    return None


def _plan(plan: dict[str, Any], device: torch.device) -> str | None:
    if plan["api"] not in APIS:
        return f"no API '{plan['api']}'; there are {', '.join(APIS)}"
    if plan["api"] == "fully_shard" and (reason := reason_without_fully_shard(device)):
        return reason
    for unit in plan["units"]:
        if unit.get("ignored_parameters") and plan["api"] == "fully_shard" and VERSION < (2, 7):
            return f"fully_shard takes ignored_params from PyTorch 2.7 on, this is {torch.__version__}"
        if unit.get("cpu_offload") and device.type == "cpu":
            return "CPU offload pins memory, which needs an accelerator"
        if unit.get("sync_module_states") and device.type == "cpu":
            return "sync_module_states broadcasts from accelerator to accelerator only"
        if plan["api"] == "composable":
            for key, only in _COMPOSABLE_FIXED.items():
                if key in unit and unit[key] != only:
                    return f"the composable form has {key}={only} and no other"
        if plan["api"] != "fully_shard" and len(unit["modules"]) != 1:
            return "FSDP1 wraps one module at a time"
        if unit.get("sharding_strategy") in HYBRID and not plan.get("mesh"):
            return "a hybrid strategy needs the plan's mesh: on one host PyTorch would make the inner group from the number of accelerators"
    return None


def _step(step: dict[str, Any], plan: dict[str, Any] | None, device: torch.device) -> str | None:
    verb, api = step["verb"], plan["api"] if plan else None
    if verb == "compile" and device.type == "sim":
        return "the simulated accelerator has no graph compiler"
    if verb == "shard" and plan is None:
        return "the model has no plan"
    if (verb in CONTROLS or verb in ("step_in_backward", "register_forward_method")) and api != "fully_shard":
        return "only FSDP2 has it"
    if verb == "register_comm_hook" and api != "fsdp":
        return "only FSDP1's wrapper has it"
    if verb == "enter" and step["scope"] != "no_grad":
        if api is None or (step["scope"] == "summon" and api == "fully_shard"):
            return f"scope {step['scope']} is FSDP1's"
        sharded = any(unit.get("sharding_strategy") != "NO_SHARD" for unit in plan["units"]) if plan else True
        if step.get("offload_to_cpu") and device.type == "cpu" and sharded:
            return "offload_to_cpu frees storage that it still uses when the model is on the CPU already"
    if verb == "clip_grad_norm" and api == "composable":
        return "the composable form has none"
    return None


def _flattened(step: dict[str, Any], plan: dict[str, Any]) -> str | None:
    flattened = plan["api"] == "fsdp" and any(not unit.get("use_orig_params", False) for unit in plan["units"])
    if flattened and step["verb"] == "mutate" and (step["what"] != "value" or step["how"] != "inplace"):
        return "with use_orig_params=False there is no original parameter to change, but for its values in place"
    return None
