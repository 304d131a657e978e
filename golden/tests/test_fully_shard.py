import unittest

import torch

from descriptions import dyadic, graph, linear, observe, sequential, step, train
from testee_case import TesteeCase

# Five rows and one row over two ranks: a short shard and an empty one.
MODEL = sequential(linear(3, 5), linear(5, 1))
DATA = {
    "parameters/model/0.weight": dyadic(5, 3),
    "parameters/model/0.bias": dyadic(5, seed=1),
    "parameters/model/1.weight": dyadic(1, 5, seed=2),
    "parameters/model/1.bias": dyadic(1, seed=3),
    "inputs/x@0": dyadic(4, 3, seed=5),
    "inputs/x@1": dyadic(4, 3, seed=6),
}
SGD = step("optimizer", **{"as": "optimizer"}, model="model", kind="SGD", lr=0.5, momentum=0.5)
MADE = [step("build", model="model"), step("shard", model="model"), SGD]


def plan(**unit: object) -> dict:
    return {"api": "fully_shard", "units": [{"modules": [path], **unit} for path in ("0", "1", "")]}


def mean_gradients(inputs: list[torch.Tensor]) -> dict[str, torch.Tensor]:
    """Of the plain sum of the outputs, averaged over ranks."""
    w0, b0, w1 = (DATA[f"parameters/model/{n}"] for n in ("0.weight", "0.bias", "1.weight"))
    hidden = sum((x @ w0.T + b0).sum(0) for x in inputs) / 2
    rows = sum(x.sum(0, keepdim=True) for x in inputs) / 2
    return {"0.weight": w1.T @ rows, "0.bias": 4 * w1[0], "1.weight": hidden[None], "1.bias": torch.tensor([4.0])}


EXPECTED = mean_gradients([DATA["inputs/x@0"], DATA["inputs/x@1"]])


class FullyShard(TesteeCase):
    def test_shards_are_chunks_of_rows(self) -> None:
        answers = self.act(MODEL, plan(), [MADE, observe("parameters")], DATA)
        self.assertEqual(
            self.layout(answers),
            {"0.weight": [[0, 0, 9], [1, 9, 6]], "0.bias": [[0, 0, 3], [1, 3, 2]], "1.weight": [[0, 0, 5]], "1.bias": [[0, 0, 1]]},
        )
        for name in EXPECTED:
            self.assertTrue(torch.equal(self.whole(answers, "parameters", name), DATA[f"parameters/model/{name}"]), name)

    def test_a_step_of_sgd_against_its_formula(self) -> None:
        answers = self.act(MODEL, plan(), [MADE, train(observed=("gradients", "loss")), observe("parameters", "full_parameters", "optimizer_state")], DATA)
        for name, gradient in EXPECTED.items():
            self.assertTrue(torch.equal(self.whole(answers, "gradients", name), gradient), name)
            after = DATA[f"parameters/model/{name}"] - 0.5 * gradient
            self.assertTrue(torch.equal(self.whole(answers, "parameters", name), after), name)
            self.assertTrue(torch.equal(self.whole(answers, "optimizer_state", f"{name}/momentum_buffer"), gradient), name)
            for answer in answers:
                self.assertTrue(torch.equal(self.whole([answer], "full_parameters", name), after), name)
        self.assertNotEqual(answers[0].value("loss"), answers[1].value("loss"))

    def test_every_collective_once_and_none_of_the_observers(self) -> None:
        program = [MADE, train(), observe("full_parameters"), observe("trace"), observe("trace")]
        answers = self.act(MODEL, plan(reshard_after_forward=True), program, DATA)
        # Padded: unit 0 has 6 rows of 3 and 6 of 1; unit 1 has 2 of 5 and 2 of 1.
        expected = ["all_gather forward 0 12->24 float32", "all_gather forward 1 6->12 float32"]
        expected += ["all_gather backward 1 6->12 float32", "all_gather backward 0 12->24 float32"]
        expected += ["reduce_scatter backward 1 12->6 float32", "reduce_scatter backward 0 24->12 float32"]
        for answer in answers:
            self.assertEqual(self.collectives(answer), expected)
            self.assertEqual({(e["reduce_op"], tuple(e["group"])) for e in self.events(answer)}, {(None, (0, 1)), ("avg", (0, 1))})
            self.assertEqual(self.collectives(answer, 1), [])

    def test_a_gather_comes_before_the_layer_computes(self) -> None:
        answers = self.act(MODEL, plan(reshard_after_forward=True), [MADE, train(), observe("trace")], DATA)
        for answer in answers:
            self.assertEqual(self.order(answer, "forward"), ["all_gather 0", "compute 0", "all_gather 1", "compute 1"])
            # The unit that ran before is gathered before the gradients of this one are computed.
            backward = ["all_gather 1", "all_gather 0", "compute 1", "reduce_scatter 1", "compute 0", "reduce_scatter 0"]
            self.assertEqual(self.order(answer, "backward"), backward)

    def test_keeping_parameters_after_forward(self) -> None:
        program = [MADE, step("forward", input=["x"]), observe("parameters"), step("loss", kind="sum"), step("backward", loss="loss"), observe("trace", "parameters")]
        answers = self.act(MODEL, plan(reshard_after_forward=False), program, DATA)
        self.assertFalse(self.item(answers[0], "parameters", "0.weight", 0)[0]["sharded"])
        self.assertTrue(self.item(answers[0], "parameters", "0.weight", 1)[0]["sharded"])
        self.assertEqual([line.split()[:2] for line in self.collectives(answers[0])].count(["all_gather", "backward"]), 0)

    def test_mixed_precision(self) -> None:
        policy = {"param_dtype": "bfloat16", "reduce_dtype": "float32", "output_dtype": "float16", "cast_forward_inputs": True}
        answers = self.act(MODEL, plan(mixed_precision=policy), [MADE, train(observed=("output", "gradients", "trace", "units"))], DATA)
        self.assertEqual(answers[0].value("output").dtype, torch.float16)
        self.assertEqual(self.item(answers[0], "gradients", "0.weight")[0]["dtype"], "float32")
        dtypes = {(e["op"], e["dtype"]) for e in self.events(answers[0])}
        self.assertEqual(dtypes, {("all_gather", "bfloat16"), ("reduce_scatter", "float32")})
        root, first, _ = answers[0].entry("units")["units"]
        self.assertEqual((root["module"], root["parameters"], first["module"], first["parameters"]), ("", [], "0", ["0.weight", "0.bias"]))
        self.assertEqual(first["settings"]["mixed_precision"], policy)
        self.assertEqual((first["settings"]["reshard_after_forward"], first["settings"]["world_size"]), (True, 2))

    def test_accumulation_without_communication(self) -> None:
        quiet = step("set_requires_gradient_sync", value=False, model="model", module="")
        loud = step("set_requires_gradient_sync", value=True, model="model", module="")
        backward = [step("forward", input=["x"]), step("loss", kind="sum"), step("backward", loss="loss")]
        answers = self.act(MODEL, plan(), [MADE, quiet, backward, observe("gradients", "trace"), loud, backward, observe("gradients", "trace")], DATA)
        self.assertTrue(self.item(answers[0], "gradients", "0.weight")[0]["none"])
        self.assertNotIn("reduce_scatter", " ".join(self.collectives(answers[0])))
        self.assertTrue(torch.equal(self.whole(answers, "gradients", "0.weight", 1), 2 * EXPECTED["0.weight"]))

    def test_sharding_another_dimension_is_told_row_by_row(self) -> None:
        wide = linear(4, 3)
        data = {"parameters/model/weight": dyadic(3, 4), "parameters/model/bias": dyadic(3)}
        one = {"api": "fully_shard", "units": [{"modules": [""], "shard_dims": {"weight": 1}}]}
        answers = self.act(wide, one, [MADE[:2], observe("parameters")], data)
        self.assertEqual(self.layout(answers)["weight"], [[0, 0, 2], [0, 4, 2], [0, 8, 2], [1, 2, 2], [1, 6, 2], [1, 10, 2]])
        self.assertTrue(torch.equal(self.whole(answers, "parameters", "weight"), data["parameters/model/weight"]))

    def test_replicas_of_a_hybrid_mesh_hold_everything(self) -> None:
        hybrid = {**plan(), "mesh": [2, 1]}
        answers = self.act(MODEL, hybrid, [MADE, train(observed=("parameters", "gradients", "trace"))], DATA)
        self.assertEqual(self.layout(answers)["0.weight"], [[0, 0, 15], [1, 0, 15]])
        self.assertTrue(torch.equal(self.whole(answers[:1], "gradients", "0.weight"), EXPECTED["0.weight"]))
        self.assertEqual({e["op"] for e in self.events(answers[0])}, {"all_reduce"})

    def test_manual_unshard_prefetch_and_state_dict(self) -> None:
        program = [
            MADE, step("unshard", module="0", model="model"), observe("parameters"), step("reshard", module="0", model="model"),
            step("set_forward_prefetch", module="0", targets=["1"], model="model"), train(), observe("trace", "training_state"),
            step("state_dict", **{"as": "full"}, kind="full", model="model"), step("state_dict", **{"as": "sharded"}, kind="sharded", model="model"),
            step("zero_parameters", model="model"), step("load_state_dict", **{"from": "sharded"}, model="model"), observe("full_parameters", "state_dict:full", "state_dict:sharded"),
            step("zero_parameters", model="model"), step("load_state_dict", **{"from": "full"}, model="model"), observe("full_parameters"),
        ]  # fmt: skip
        answers = self.act(MODEL, plan(), program, DATA)
        self.assertFalse(self.item(answers[0], "parameters", "0.weight")[0]["sharded"])
        self.assertEqual(answers[0].entry("training_state")["value"], "idle")
        after = DATA["parameters/model/0.weight"] - 0.5 * EXPECTED["0.weight"]
        for what, which in (("full_parameters", 0), ("full_parameters", 1), ("state_dict:full", 0), ("state_dict:sharded", 0)):
            self.assertTrue(torch.equal(self.whole(answers, what, "0.weight", which), after), f"{what} {which}")
        self.assertTrue(self.item(answers[0], "state_dict:sharded", "0.weight")[0]["sharded"])

    def test_from_meta(self) -> None:
        program = [step("build", model="model", device="meta"), MADE[1], step("materialize", model="model"), SGD, train(observed=("gradients",))]
        answers = self.act(MODEL, plan(), program, DATA)
        self.assertTrue(torch.equal(self.whole(answers, "gradients", "0.weight"), EXPECTED["0.weight"]))

    def test_clipping_returns_the_global_norm(self) -> None:
        clip = step("clip_grad_norm", model="model", max_norm=1.0, into="norm")
        answers = self.act(MODEL, plan(), [MADE, train()[:-1], clip, observe("register:norm", "gradients")], DATA)
        norm = torch.cat([g.reshape(-1) for g in EXPECTED.values()]).norm()
        self.assertTrue(torch.allclose(answers[1].value("register:norm"), norm))

    def test_after_an_error_on_all_ranks_the_group_goes_on(self) -> None:
        # Batch norm with low-precision parameters over float32 statistics: PyTorch refuses on the CPU, in forward.
        norm = {"type": "BatchNorm1d", "class": "BatchNorm1d", "features": 3}
        data = {"parameters/model/weight": torch.ones(3), "parameters/model/bias": torch.zeros(3), **{k: v for k, v in DATA.items() if "inputs" in k}}
        one = {"api": "fully_shard", "units": [{"modules": [""], "mixed_precision": {"param_dtype": "bfloat16"}}]}
        attempt = [step("attempt_begin", name="a"), step("forward", input=["x"]), step("attempt_end", name="a")]
        answers = self.act(norm, one, [MADE[:2], attempt, observe("parameters")], data)
        for answer in answers:
            self.assertEqual((self.error(answer)["type"], self.error(answer)["phase"]), ("RuntimeError", "forward"))
            self.assertRegex(self.error(answer)["message"], "expected scalar type BFloat16 but found Float")
        self.test_a_step_of_sgd_against_its_formula()

    def test_an_error_outside_an_attempt_is_reported_with_its_phase(self) -> None:
        twice = {"api": "fully_shard", "units": [{"modules": [""]}, {"modules": [""]}]}
        answers = self.session.run({"models": {"model": MODEL}, "plans": {"model": twice}, "program": MADE[:2]}, DATA)
        for answer in answers:
            self.assertEqual((answer.end["type"], answer.end["step"], answer.end["error"]["type"], answer.end["error"]["phase"]), ("error", 1, "AssertionError", "construction"))
            self.assertRegex(answer.end["error"]["message"], "^Each distinct composable distributed API can only be applied to a module once")

    def test_what_cannot_be_done_is_said_before_acting(self) -> None:
        for program, reason in [
            ([*MADE, step("enter", scope="summon", model="model")], "FSDP1's"),
            ([*MADE, step("delay", milliseconds=1, at="now"), observe("weather")], "weather"),
        ]:
            answers = self.session.run({"models": {"model": MODEL}, "plans": {"model": plan()}, "program": program}, DATA)
            for answer in answers:
                self.assertEqual((answer.end["type"], answer.progress), ("unsupported", []))
                self.assertIn(reason, answer.end["reason"])

    def test_recording_modules_see_the_cast_inputs(self) -> None:
        body = [{"record": "x", "as": "seen"}, {"call": "l", "args": ["x"], "to": "y"}]
        model = graph(["x"], body, "y", [("l", linear(3, 2))], label="Recording")
        data = {"parameters/model/l.weight": dyadic(2, 3), "parameters/model/l.bias": dyadic(2), **{k: v for k, v in DATA.items() if "inputs" in k}}
        one = {"api": "fully_shard", "units": [{"modules": [""], "mixed_precision": {"param_dtype": "float16"}}]}
        answers = self.act(model, one, [MADE[:2], step("forward", input=["x"]), observe("recorded", "units")], data)
        self.assertEqual([a.entry("recorded")["values"] for a in answers], [{"seen": "float16"}] * 2)
        self.assertEqual(answers[0].entry("units")["units"][0]["class"], "Recording")


if __name__ == "__main__":
    unittest.main()
