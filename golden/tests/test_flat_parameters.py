import unittest
from typing import Any

import torch

from descriptions import dyadic, graph, linear, observe, step
from testee_case import TesteeCase

# Upstream's writeback model: two linears with a ReLU between.
MODEL = graph(
    ["x"],
    [{"call": "lin1", "args": ["x"], "to": "h"}, {"relu": "h", "to": "a"}, {"call": "lin2", "args": ["a"], "to": "y"}],
    "y",
    [("lin1", linear(5, 5)), ("lin2", linear(5, 7))],
    label="TwoLinears",
)
SHAPES = {"lin1.weight": (5, 5), "lin1.bias": (5,), "lin2.weight": (7, 5), "lin2.bias": (7,)}
DATA = {f"parameters/model/{name}": dyadic(*shape, seed=i) for i, (name, shape) in enumerate(SHAPES.items())}
DATA |= {f"inputs/x@{rank}": dyadic(2, 5, seed=10 + rank) for rank in range(2)}
MADE = [step("build", model="model"), step("shard", model="model")]
SGD = step("optimizer", **{"as": "optimizer"}, model="model", kind="SGD", lr=0.5, momentum=0.5)
BACKWARD = [step("forward", input=["x"]), step("loss", kind="sum"), step("backward", loss="loss")]


def plan(api: str = "fsdp", modules: tuple[str, ...] = ("",), **unit: Any) -> dict:
    if api == "fsdp":
        unit.setdefault("use_orig_params", True)
    return {"api": api, "units": [{"modules": [path], **unit} for path in modules]}


def expected_gradients() -> dict[str, torch.Tensor]:
    """The mean over both ranks of what one process gets from each rank's input."""
    total = {name: torch.zeros(shape) for name, shape in SHAPES.items()}
    for rank in range(2):
        own = {name: DATA[f"parameters/model/{name}"].clone().requires_grad_() for name in SHAPES}
        hidden = torch.relu(DATA[f"inputs/x@{rank}"] @ own["lin1.weight"].T + own["lin1.bias"])
        (hidden @ own["lin2.weight"].T + own["lin2.bias"]).sum().backward()
        total = {name: total[name] + own[name].grad / 2 for name in SHAPES}
    return total


EXPECTED = expected_gradients()


class Layouts(TesteeCase):
    """The literal numbers of upstream's own tests, two ranks."""

    def layout_of(self, model: dict = MODEL, data: dict = DATA, **unit: Any) -> dict[str, list[list[int]]]:
        answers = self.act(model, plan(**unit), [MADE, observe("parameters")], data)
        for name in (key.removeprefix("parameters/model/") for key in data if key.startswith("parameters")):
            self.assertTrue(torch.equal(self.whole(answers, "parameters", name), data[f"parameters/model/{name}"]), name)
        return self.layout(answers)

    def test_one_unit_is_aligned(self) -> None:
        expected = {"lin1.weight": [[0, 0, 25]], "lin1.bias": [[0, 0, 5]], "lin2.weight": [[0, 0, 4], [1, 4, 31]], "lin2.bias": [[1, 0, 7]]}
        self.assertEqual(self.layout_of(), expected)

    def test_without_original_parameters_nothing_is_aligned(self) -> None:
        expected = {"lin1.weight": [[0, 0, 25]], "lin1.bias": [[0, 0, 5]], "lin2.weight": [[0, 0, 6], [1, 6, 29]], "lin2.bias": [[1, 0, 7]]}
        self.assertEqual(self.layout_of(use_orig_params=False), expected)

    def test_a_unit_for_each_linear(self) -> None:
        expected = {"lin1.weight": [[0, 0, 17], [1, 17, 8]], "lin1.bias": [[1, 0, 5]], "lin2.weight": [[0, 0, 22], [1, 22, 13]], "lin2.bias": [[1, 0, 7]]}
        self.assertEqual(self.layout_of(modules=("lin1", "lin2", "")), expected)

    def test_alignment_follows_the_compute_dtype(self) -> None:
        expected = {"lin1.weight": [[0, 0, 19], [1, 19, 6]], "lin1.bias": [[1, 0, 5]], "lin2.weight": [[0, 0, 24], [1, 24, 11]], "lin2.bias": [[1, 0, 7]]}
        self.assertEqual(self.layout_of(modules=("lin1", "lin2", ""), mixed_precision={"param_dtype": "float16"}), expected)

    def test_seven_by_one_splits_alike_with_and_without_original_parameters(self) -> None:
        data = {"parameters/model/weight": dyadic(1, 7)}
        for use_orig_params in (True, False):
            found = self.layout_of(linear(7, 1, bias=False), data, use_orig_params=use_orig_params)
            self.assertEqual(found, {"weight": [[0, 0, 4], [1, 4, 3]]})

    def test_no_shard_holds_everything_everywhere(self) -> None:
        answers = self.act(MODEL, plan(sharding_strategy="NO_SHARD"), [MADE, observe("parameters", "warnings")], DATA)
        self.assertEqual(self.layout(answers)["lin1.weight"], [[0, 0, 25], [1, 0, 25]])
        self.assertFalse(self.item(answers[0], "parameters", "lin1.weight")[0]["sharded"])
        self.assertEqual(answers[0].entry("warnings")["warnings"][0]["category"], "FutureWarning")


class Training(TesteeCase):
    def variants(self) -> list[tuple[str, dict]]:
        strategies = ("FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD")
        found = [(f"{s} {orig}", plan(modules=("lin1", "lin2", ""), sharding_strategy=s, use_orig_params=orig)) for s in strategies for orig in (True, False)]
        found += [(f"composable {s}", plan("composable", ("lin1", "lin2", ""), sharding_strategy=s)) for s in strategies]
        hybrid = {**plan(modules=("lin1", "lin2", ""), sharding_strategy="HYBRID_SHARD"), "mesh": [1, 2]}
        return [*found, ("HYBRID_SHARD", hybrid)]

    def test_a_step_of_sgd_against_its_formula(self) -> None:
        for name, with_plan in self.variants():
            with self.subTest(name):
                program = [MADE, SGD, BACKWARD, observe("gradients", "parameters"), step("step", optimizer="optimizer"), observe("parameters", "full_parameters", "optimizer_state", "training_state")]
                answers = self.act(MODEL, with_plan, program, DATA)
                for parameter, gradient in EXPECTED.items():
                    after = DATA[f"parameters/model/{parameter}"] - 0.5 * gradient
                    self.assertTrue(torch.equal(self.whole(answers, "gradients", parameter), gradient), parameter)
                    self.assertTrue(torch.equal(self.whole(answers, "parameters", parameter, 1), after), parameter)
                    self.assertTrue(torch.equal(self.whole(answers[1:], "full_parameters", parameter), after), parameter)
                    self.assertTrue(torch.equal(self.whole(answers, "optimizer_state", f"{parameter}/momentum_buffer"), gradient), parameter)
                self.assertEqual(answers[0].entry("training_state")["value"], "idle")

    def test_one_event_for_each_collective(self) -> None:
        expected = ["all_gather forward lin1 17->34 float32", "all_gather forward lin2 22->44 float32", "all_gather backward lin2 22->44 float32"]
        expected += ["all_gather backward lin1 17->34 float32", "reduce_scatter backward lin2 44->22 float32", "reduce_scatter backward lin1 34->17 float32"]
        program = [MADE, BACKWARD, observe("full_parameters"), observe("trace", "counters")]
        for api in ("fsdp", "composable"):
            answers = self.act(MODEL, plan(api, ("lin1", "lin2", "")), program, DATA)
            for answer in answers:
                self.assertEqual(self.collectives(answer), expected, api)
                counted = answer.entry("counters")["values"]
                self.assertEqual((counted["pre_backward_registrations"], counted["unsharded_views_as_params"]), (3, 0))
        answers = self.act(MODEL, plan(sharding_strategy="NO_SHARD"), program, DATA)
        self.assertEqual(self.collectives(answers[0]), ["all_reduce backward  80->80 float32"])

    def test_parameters_stay_whole_between_forward_and_backward(self) -> None:
        program = [MADE, BACKWARD[:1], observe("parameters", "gradients"), BACKWARD[1:], observe("parameters")]
        answers = self.act(MODEL, plan(sharding_strategy="SHARD_GRAD_OP"), program, DATA)
        self.assertEqual(self.layout(answers)["lin2.weight"], [[0, 0, 35], [1, 0, 35]])
        self.assertTrue(self.item(answers[0], "gradients", "lin2.weight")[0]["none"])
        self.assertEqual(self.layout(answers, which=1)["lin2.weight"], [[0, 0, 4], [1, 4, 31]])

    def test_no_sync_leaves_whole_gradients_in_the_compute_dtype(self) -> None:
        policy = {"param_dtype": "float16", "reduce_dtype": "float32"}
        scope = [step("enter", scope="no_sync", model="model"), BACKWARD, BACKWARD, observe("gradients", "trace"), step("leave", scope="no_sync", model="model")]
        for api, orig in (("fsdp", True), ("fsdp", False), ("composable", True)):
            unit = {"use_orig_params": orig} if api == "fsdp" else {}
            answers = self.act(MODEL, plan(api, mixed_precision=policy, **unit), [MADE, *scope, BACKWARD, observe("gradients")], DATA)
            for answer in answers:
                inside, after = (self.item(answer, "gradients", "lin2.weight", which)[0] for which in (0, 1))
                self.assertEqual((inside["dtype"], inside["sharded"], after["dtype"], after["sharded"]), ("float16", False, "float32", True))
                self.assertNotIn("reduce", " ".join(self.collectives(answer)))
            self.assertTrue(torch.equal(self.whole(answers, "gradients", "lin2.bias", 1), 3 * EXPECTED["lin2.bias"]))

    def test_only_some_gradients_are_none(self) -> None:
        weights = step("optimizer", **{"as": "weights"}, model="model", kind="SGD", lr=0.5, match="weight")
        program = [MADE, weights, BACKWARD, step("zero_grad", optimizer="weights", set_to_none=True), observe("gradients"), BACKWARD[:1], observe("gradients")]
        answers = self.act(MODEL, plan(), program, DATA)
        for which in (0, 1):
            self.assertTrue(self.item(answers[0], "gradients", "lin1.weight", which)[0]["none"])
            self.assertFalse(self.item(answers[0], "gradients", "lin1.bias", which)[0]["none"])
        self.assertTrue(torch.equal(self.whole(answers, "gradients", "lin1.bias", 1), EXPECTED["lin1.bias"]))

    def test_names_seen_in_forward_are_the_original_ones(self) -> None:
        model = graph(["x"], [{"record_parameters": "", "as": "seen"}, {"call": "lin1", "args": ["x"], "to": "y"}], "y", [("lin1", linear(5, 5))])
        data = {key: value for key, value in DATA.items() if "lin2" not in key}
        for modules in (("",), ("lin1", "")):
            answers = self.act(model, plan(modules=modules), [MADE, step("forward", input=["x"]), observe("seen_parameters")], data)
            names = [name for name, _ in answers[0].entry("seen_parameters")["values"]["seen"]]
            self.assertEqual(names, ["lin1.weight", "lin1.bias"])
        whole = self.act(model, plan(), [MADE, step("forward", input=["x"]), observe("seen_parameters")], data)
        self.assertEqual(whole[0].entry("seen_parameters")["values"]["seen"], [["lin1.weight", [5, 5]], ["lin1.bias", [5]]])

    def test_groups_of_one_and_groups_that_communicate_nothing(self) -> None:
        own = {"api": "fsdp", "units": [{"modules": ["lin1"], "process_group": "self", "use_orig_params": True}, {"modules": [""], "use_orig_params": True}]}
        answers = self.act(MODEL, own, [MADE, BACKWARD, observe("gradients", "units", "trace")], DATA)
        by_rank = [self.whole([answer], "gradients", "lin1.bias") for answer in answers]
        self.assertTrue(torch.equal((by_rank[0] + by_rank[1]) / 2, EXPECTED["lin1.bias"]))
        self.assertFalse(torch.equal(by_rank[0], by_rank[1]))
        self.assertIn(("all_reduce", (1,)), {(e["op"], tuple(e["group"])) for e in self.events(answers[1])})
        self.assertEqual(answers[0].entry("units")["units"][1]["settings"]["sharding_strategy"], "NO_SHARD")
        dummy = plan(process_group={"dummy": 4})
        answers = self.act(MODEL, dummy, [MADE, observe("units")], DATA)
        self.assertEqual([answer.entry("units")["units"][0]["settings"]["world_size"] for answer in answers], [4, 4])


class State(TesteeCase):
    def test_state_dicts(self) -> None:
        for api, orig in (("fsdp", True), ("fsdp", False), ("composable", True)):
            for kind in ("full", "sharded"):
                with self.subTest(f"{api} {orig} {kind}"):
                    unit = {"use_orig_params": orig} if api == "fsdp" else {}
                    program = [
                        MADE, step("state_dict", **{"as": "s"}, kind=kind, model="model"), step("zero_parameters", model="model"), observe("full_parameters"),
                        step("load_state_dict", **{"from": "s"}, model="model"), observe("full_parameters", "state_dict:s"),
                    ]  # fmt: skip
                    answers = self.act(MODEL, plan(api, ("lin1", ""), **unit), program, DATA)
                    for name in SHAPES:
                        self.assertFalse(self.whole(answers, "full_parameters", name, 0).any())
                        self.assertTrue(torch.equal(self.whole(answers, "full_parameters", name, 1), DATA[f"parameters/model/{name}"]), name)
                        self.assertTrue(torch.equal(self.whole(answers, "state_dict:s", name), DATA[f"parameters/model/{name}"]), name)
                    self.assertEqual(self.item(answers[0], "state_dict:s", "lin1.weight")[0]["sharded"], kind == "sharded")

    def test_writeback_of_a_replaced_parameter(self) -> None:
        for how in ("data", "replace"):
            program = [MADE, step("mutate", parameter="lin2.weight", what="value", how=how, fill=2, model="model"), observe("parameters", "full_parameters")]
            answers = self.act(MODEL, plan(), program, DATA)
            self.assertEqual(self.layout(answers)["lin2.weight"], [[0, 0, 4], [1, 4, 31]])
            self.assertTrue(torch.equal(self.whole(answers, "full_parameters", "lin2.weight"), torch.full((7, 5), 2.0)))
            self.assertTrue(torch.equal(self.whole(answers, "full_parameters", "lin1.weight"), DATA["parameters/model/lin1.weight"]))

    def test_writing_into_the_flat_parameter(self) -> None:
        """In place each rank writes its own part, also where no original parameter is exposed."""
        new = {"inputs/new": dyadic(7, 5, seed=40)}
        for exposed in (True, False):
            mutation = step("mutate", **{"from": "new"}, parameter="lin2.weight", what="value", how="inplace", model="model")
            answers = self.act(MODEL, plan(use_orig_params=exposed), [MADE, mutation, observe("full_parameters")], DATA | new)
            self.assertTrue(torch.equal(self.whole(answers, "full_parameters", "lin2.weight"), new["inputs/new"]))
            self.assertTrue(torch.equal(self.whole(answers, "full_parameters", "lin1.weight"), DATA["parameters/model/lin1.weight"]))

    def test_writing_in_a_summon(self) -> None:
        inside = [step("enter", scope="summon", model="model"), observe("full_parameters"), step("mutate", parameter="lin1.bias", what="value", how="inplace", fill=3, model="model"), step("leave", scope="summon", model="model")]
        answers = self.act(MODEL, plan(), [MADE, inside, observe("parameters", "trace")], DATA)
        self.assertTrue(torch.equal(self.whole(answers, "full_parameters", "lin1.bias"), DATA["parameters/model/lin1.bias"]))
        self.assertEqual(self.whole(answers, "parameters", "lin1.bias").tolist(), [3.0] * 5)
        self.assertEqual(self.collectives(answers[0]), ["all_gather summon  40->80 float32"])

    def test_errors_in_attempts_do_not_end_the_group(self) -> None:
        between = [step("forward", input=["x"]), step("loss", kind="sum"), step("mutate", parameter="lin1.weight", what="value", how="data", model="model")]
        backward = [step("attempt_begin", name="a"), step("backward", loss="loss"), step("attempt_end", name="a")]
        answers = self.act(MODEL, plan(modules=("lin1", "lin2", ""), sharding_strategy="SHARD_GRAD_OP"), [MADE, between, backward], DATA)
        for answer in answers:
            self.assertEqual((self.error(answer)["type"], self.error(answer)["phase"]), ("AssertionError", "backward"))
            self.assertRegex(self.error(answer)["message"], "FSDP does not support changing the parameters between forward and backward")
        grown = [step("mutate", parameter="lin2.weight", what="value", how="replace", fill=1, grow=1, model="model")]
        summon = [step("attempt_begin", name="a"), step("enter", scope="summon", model="model"), step("leave", scope="summon", model="model"), step("attempt_end", name="a")]
        answers = self.act(MODEL, plan(), [MADE, grown, summon], DATA)
        for answer, (expected, found) in zip(answers, ((4, 5), (31, 32))):
            self.assertEqual(self.error(answer)["phase"], "summon")
            self.assertRegex(self.error(answer)["message"], rf"Cannot writeback when the parameter shape changes\nExpects torch.Size\(\[{expected}\]\) but got torch.Size\(\[{found}\]\)")
        Layouts.test_one_unit_is_aligned(self)  # the group is fit for the next case

    layout_of = Layouts.layout_of

    def test_identity_survives_wrapping_with_original_parameters(self) -> None:
        program = [MADE[0], observe("identity"), MADE[1], observe("identity", "devices")]
        (before, after) = self.act(MODEL, plan(), program, DATA)[0].entries("identity")
        self.assertEqual(before["values"], after["values"])

    def test_frozen_and_trainable_parameters_in_one_unit(self) -> None:
        freeze = step("set_requires_grad", match="bias", value=False, model="model")
        wrap = {"policy": "module_wrap", "classes": ["Linear"]}
        for orig in (True, False):
            shard = [step("attempt_begin", name="a"), MADE[1], step("attempt_end", name="a"), observe("warnings")]
            answers = self.session.run({"models": {"model": MODEL}, "plans": {"model": plan(auto_wrap=wrap, use_orig_params=orig)}, "program": [MADE[0], freeze, *shard]}, DATA)
            for answer in answers:
                self.assertEqual(answer.end["type"], "done", answer.end)
                text = answer.entry("warnings")["warnings"][0]["message"] if orig else self.error(answer)["message"]
                self.assertRegex(text, "^lin1 has both parameters with requires_grad=True and False.")
                self.assertEqual(self.error(answer) is None, orig)


if __name__ == "__main__":
    unittest.main()
