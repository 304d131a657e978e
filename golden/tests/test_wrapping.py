import unittest
from typing import Any

import torch

from descriptions import linear, observe, sequential, step
from fsdp_cts_sdk.modules import build_module
from fsdp_cts_sdk.recorder import Recorder
from testee_case import TesteeCase

MODEL = sequential(linear(5, 5), linear(5, 5), sequential(linear(5, 5), linear(5, 5)))
NORMS = sequential(linear(4, 4), {"type": "BatchNorm1d", "class": "BatchNorm1d", "features": 4}, linear(4, 4, label="Special"))
LIST = {"type": "ModuleList", "class": "ModuleList", "children": [["0", linear(10, 10)]]}
ATTENTION = sequential(linear(10, 10), {"type": "MultiheadAttention", "class": "MultiheadAttention", "dim": 100, "heads": 1})


def values(model: dict[str, Any]) -> dict[str, torch.Tensor]:
    return {f"parameters/model/{name}": parameter.detach() for name, parameter in build_module(model, Recorder()).named_parameters()}


class Policies(TesteeCase):
    def units(self, model: dict[str, Any], auto_wrap: dict[str, Any], **unit: Any) -> dict[str, dict[str, Any]]:
        plan = {"api": "fsdp", "units": [{"modules": [""], "process_group": {"dummy": 2}, "auto_wrap": auto_wrap, **unit}]}
        answers = self.act(model, plan, [step("build", model="model"), step("shard", model="model"), observe("units", "warnings")], values(model))
        self.warnings = [w["message"] for w in answers[0].entry("warnings")["warnings"]]
        return {u["module"]: {"class": u["class"], **u["settings"]} for u in answers[0].entry("units")["units"]}

    def test_trees(self) -> None:
        size = {"policy": "size_based", "min_num_params": 40}
        for model, auto_wrap, expected in [
            (MODEL, {"policy": "always"}, ["", "0", "1", "2", "2.0", "2.1"]),
            (MODEL, size, ["", "2"]),
            (MODEL, {"policy": "module_wrap", "classes": ["Sequential"]}, ["", "2"]),
            (ATTENTION, size, ["", "0"]),
            (ATTENTION, {**size, "force_leaf": []}, ["", "0", "1", "1.out_proj"]),
            (MODEL, {**size, "exclude_wrap": ["Sequential"]}, [""]),
            (sequential(LIST), size, ["", "0.0"]),
            (sequential(LIST), {**size, "exclude_wrap": []}, ["", "0.0"]),
            (sequential(LIST), {**size, "exclude_wrap": [], "force_leaf": ["ModuleList"]}, [""]),
            (MODEL, {"policy": "never"}, [""]),
            (NORMS, {"policy": "or", "policies": [{"policy": "never"}, {"policy": "batch_norm"}]}, ["", "1"]),
            (NORMS, {"policy": "batch_norm"}, ["", "1"]),
            (NORMS, {"policy": "transformer", "classes": ["Special"]}, ["", "2"]),
            (NORMS, {"policy": "or", "policies": [{"policy": "batch_norm"}, {"policy": "module_wrap", "classes": ["Special"]}]}, ["", "1", "2"]),
        ]:
            with self.subTest(str(auto_wrap)):
                self.assertEqual(list(self.units(model, auto_wrap)), expected)

    def test_custom_rules_override_settings(self) -> None:
        rules = [{"class": "Special", "wrap": {"sharding_strategy": "SHARD_GRAD_OP", "backward_prefetch": "BACKWARD_POST"}}, {"class": "Sequential", "wrap": False}]
        found = self.units(NORMS, {"policy": "custom", "rules": rules}, mixed_precision={"param_dtype": "float16"})
        self.assertEqual(list(found), ["", "1", "2"])
        self.assertEqual((found["2"]["sharding_strategy"], found["2"]["backward_prefetch"], found["2"]["class"]), ("SHARD_GRAD_OP", "BACKWARD_POST", "Special"))
        self.assertEqual((found[""]["sharding_strategy"], found[""]["mixed_precision"]["param_dtype"]), ("FULL_SHARD", "float16"))
        self.assertIsNone(found["1"]["mixed_precision"]["param_dtype"])  # batch norm gets a unit of its own, in full precision
        self.assertRegex(" ".join(self.warnings), "Both mixed precision and an auto_wrap_policy were specified to FSDP")

    def test_something_wrapped_already(self) -> None:
        plan = {"api": "fsdp", "units": [{"modules": ["2.1"]}, {"modules": [""], "auto_wrap": {"policy": "always"}}]}
        program = [step("build", model="model"), step("attempt_begin", name="a"), step("shard", model="model"), step("attempt_end", name="a")]
        for answer in self.act(MODEL, plan, program, values(MODEL)):
            error = self.error(answer)
            self.assertEqual((error["type"], error["phase"]), ("ValueError", "construction"))
            self.assertRegex(error["message"], "FSDP auto wrapping requires modules to not already have FSDP applied but found 2.1 in\n")

    def test_wrap_outside_of_a_context_leaves_the_module(self) -> None:
        units = [{"modules": ["0"], "process_group": {"dummy": 2}, "enable_wrap": "outside"}, {"modules": [""], "process_group": {"dummy": 2}}]
        self.assertEqual(list(self.tree(units)), [""])

    def test_wrap_takes_the_settings_of_its_context_and_its_own_before_them(self) -> None:
        context = {"process_group": {"dummy": 2}, "sharding_strategy": "SHARD_GRAD_OP", "auto_wrap": {"policy": "always"}, "ignored_modules": ["2.0"]}
        found = self.tree([{"modules": ["2"], "process_group": {"dummy": 4}, "enable_wrap": context}])
        self.assertEqual(list(found), ["2", "2.1"])
        self.assertEqual({(unit["world_size"], unit["sharding_strategy"]) for unit in found.values()}, {(4, "SHARD_GRAD_OP")})

    def tree(self, units: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
        program = [step("build", model="model"), step("shard", model="model"), observe("units")]
        answers = self.act(MODEL, {"api": "fsdp", "units": units}, program, values(MODEL))
        return {u["module"]: u["settings"] for u in answers[0].entry("units")["units"]}


if __name__ == "__main__":
    unittest.main()
