import os
import re
import unittest
import warnings
from pathlib import Path
from typing import Any
from unittest import mock

import torch

from descriptions import dyadic, graph, linear, observe, sequential, step, train
from fsdp_cts_sdk.case_data import CaseData
from fsdp_cts_sdk.context import Context
from fsdp_cts_sdk.errors import StepFailed, Unsupported
from fsdp_cts_sdk.interpreter import Interpreter, unknown_in
from fsdp_cts_sdk.observer import Observation
from fsdp_cts_sdk.trace import Trace, trace_computation
from plain_testee import Plain

MODEL = sequential(linear(3, 2), linear(2, 1))
DATA = {
    "parameters/model/0.weight": dyadic(2, 3),
    "parameters/model/0.bias": dyadic(2, seed=1),
    "parameters/model/1.weight": dyadic(1, 2, seed=2),
    "parameters/model/1.bias": dyadic(1, seed=3),
    "parameters/model/1.bias@1": dyadic(1, seed=4) + 9,
    "inputs/x": dyadic(4, 3, seed=5),
    "inputs/target": torch.tensor([0, 0, 0, 0]),
}
BUILD = step("build", model="model")
SGD = step("optimizer", **{"as": "optimizer"}, model="model", kind="SGD", lr=0.5)


def run(*program: Any, model: dict = MODEL, data: dict = DATA, rank: int = 0, **case: Any) -> list[Observation]:
    steps = [s for part in program for s in (part if isinstance(part, list) else [part])]
    message = {"models": {"model": model}, "plans": {}, "program": steps, "world": 2, **case}
    interpreter = Interpreter(Plain(), Context(rank, 2, message, CaseData(data, rank, torch.device("cpu"))))
    try:
        results = [_snapshot(interpreter.run(i)) for i, s in enumerate(steps) if interpreter.will_run(s)]
    finally:
        interpreter.close()
    return [result for result in results if result is not None]


def _snapshot(seen: Observation | None) -> Observation | None:
    """What is written to a file at once when the testee is a process."""
    if seen is not None:
        seen.tensors = {name: tensor.clone() for name, tensor in seen.tensors.items()}
    return seen


def tensors_of(observation: Observation, what: str) -> dict[str, torch.Tensor]:
    (entry,) = [e for e in observation.entries if e["what"] == what]
    return {item["name"]: observation.tensors[item["pieces"][0]["tensor"]].reshape(item["global_shape"]) for item in entry["items"] if item["pieces"]}


class Traces(unittest.TestCase):
    def test_layers_say_when_they_compute_and_the_verb_says_in_which_phase(self) -> None:
        program = [step("forward", input=["x"]), step("loss", kind="sum"), step("backward", loss="loss"), observe("trace"), observe("trace")]
        first, second = run(BUILD, *program)
        events = [(event["op"], event["phase"], event["unit"]) for event in first.entries[0]["events"]]
        self.assertEqual(events, [("compute", "forward", "0"), ("compute", "forward", "1"), ("compute", "backward", "1"), ("compute", "backward", "0")])
        self.assertEqual(second.entries[0]["events"], [])

    def test_what_waits_for_a_layer_is_done_once_in_its_pass_and_an_error_goes_up_through_it(self) -> None:
        def meanwhile(which: str, what: str) -> dict[str, Any]:
            return step("meanwhile", module="1", do=what, **{"pass": which})

        phases: list[str] = []
        forward, backward = step("forward", input=["x"]), [step("loss", kind="sum"), step("backward", loss="loss")]
        with mock.patch.object(Plain, "state_dict", lambda self, model, kind: phases.append(self.context.phase)):
            run(BUILD, meanwhile("backward", "state_dict"), meanwhile("forward", "state_dict"), forward, forward, backward)
        self.assertEqual(phases, ["forward", "backward"])

        def refuse(self: Plain, model: Any, what: dict[str, Any]) -> None:
            raise AssertionError(f"not in {self.context.phase}")

        inside = [step("attempt_begin", name="inside"), backward[1], step("attempt_end", name="inside")]
        with mock.patch.object(Plain, "enter", refuse):
            (seen,) = run(BUILD, forward, backward[0], meanwhile("backward", "summon"), inside)
        error = seen.entries[0]["error"]
        self.assertEqual((error["type"], error["message"], error["verb"]), ("AssertionError", "not in backward", "backward"))

    def test_backward_is_noted_after_the_hooks_of_the_output_and_before_the_gradients(self) -> None:
        trace = Trace()
        layer = torch.nn.Linear(2, 2)
        trace_computation(layer, trace, "layer")
        output = layer(torch.ones(1, 2))
        output.register_hook(lambda _: trace.compute("hook of the output"))
        layer.weight.register_hook(lambda _: trace.compute("gradient"))
        trace.drain()
        output.sum().backward()
        self.assertEqual([event["unit"] for event in trace.drain()], ["hook of the output", "layer", "gradient"])

    def test_a_tap_notes_in_the_phase_of_the_verb_and_nothing_while_the_observer_is_at_work(self) -> None:
        trace = Trace()
        trace.phase = "backward"
        trace.collective("all_gather", "float32", 1, 2, [0, 1], unit="0")
        trace.phase = None
        trace.collective("all_gather", "float32", 1, 2, [0, 1])
        (event,) = trace.drain()
        self.assertEqual(event, {"op": "all_gather", "phase": "backward", "dtype": "float32", "reduce_op": None, "in_numel": 1, "out_numel": 2, "group": [0, 1], "unit": "0"})


class Programs(unittest.TestCase):
    def test_one_step_of_sgd_against_its_formula(self) -> None:
        (seen,) = run(BUILD, SGD, train(), observe("loss", "gradients", "parameters"))
        w0, b0, w1, b1 = (DATA[f"parameters/model/{n}"] for n in ("0.weight", "0.bias", "1.weight", "1.bias"))
        x = DATA["inputs/x"]
        hidden = x @ w0.T + b0
        self.assertEqual(seen.tensors["loss"], (hidden @ w1.T + b1).sum())
        gradients = tensors_of(seen, "gradients")
        self.assertTrue(torch.equal(gradients["0.weight"], w1.T @ x.sum(0, keepdim=True)))
        self.assertTrue(torch.equal(gradients["1.bias"], torch.tensor([4.0])))
        self.assertTrue(torch.equal(tensors_of(seen, "parameters")["1.weight"], w1 - 0.5 * hidden.sum(0)))

    def test_steps_in_backward_and_takes_the_gradient_away(self) -> None:
        program = [step("step_in_backward", optimizer="optimizer"), step("forward", input=["x"]), step("loss", kind="sum"), step("backward", loss="loss")]
        (normal,) = run(BUILD, SGD, train(), observe("parameters"))
        (seen,) = run(BUILD, SGD, *program, observe("parameters", "gradients", "counters"))
        for name, value in tensors_of(normal, "parameters").items():
            self.assertTrue(torch.equal(tensors_of(seen, "parameters")[name], value), name)
        self.assertEqual([item["none"] for item in seen.entries[1]["items"]], [True] * 4)
        self.assertEqual(seen.entries[2]["values"], {"gradient_hooks": 4})

    def test_a_scaler_leaves_out_a_step_that_is_not_finite(self) -> None:
        data = {**DATA, "inputs/bad": torch.full((4, 3), torch.inf)}
        scaler = step("scaler", **{"as": "scaler"}, optimizer="optimizer", init_scale=4.0, growth_interval=2)
        program = [BUILD, SGD, scaler]
        for name in ("bad", "x", "x"):
            program += [step("zero_grad", optimizer="optimizer"), step("forward", input=[name]), step("loss", kind="sum"), step("scale_loss", loss="loss")]
            program += [step("backward", loss="scaled"), step("scaler_step"), step("update_scale", into="scale"), observe("register:scale", "parameters")]
        (start,), seen = run(BUILD, observe("parameters"), data=data), run(*program, data=data)
        (after,) = run(BUILD, SGD, train(), observe("parameters"), data=data)
        self.assertEqual([one.tensors["register:scale"].item() for one in seen], [2.0, 2.0, 4.0])
        for name in tensors_of(start, "parameters"):
            self.assertTrue(torch.equal(tensors_of(seen[0], "parameters")[name], tensors_of(start, "parameters")[name]), name)
            self.assertTrue(torch.equal(tensors_of(seen[1], "parameters")[name], tensors_of(after, "parameters")[name]), name)

    def test_a_method_is_called_in_place_of_forward_and_a_checkpoint_changes_nothing(self) -> None:
        calls = [{"call": "inner", "args": ["x"], "to": "y", "recompute": True}]
        plain = [{"call": "inner", "args": ["x"], "to": "y"}]
        model = graph(["x"], calls, "y", [("inner", linear(3, 2))], methods={"plainly": {"inputs": ["x"], "forward": plain, "output": "y"}})
        data = {"parameters/model/inner.weight": dyadic(2, 3), "parameters/model/inner.bias": dyadic(2, seed=1), "inputs/x": dyadic(4, 3, seed=5)}
        seen = []
        for how in ({}, {"method": "plainly"}):
            program = [step("forward", input=["x"], **how), step("loss", kind="sum"), step("backward", loss="loss"), observe("loss", "gradients")]
            seen += run(BUILD, *program, model=model, data=data)
        self.assertTrue(torch.equal(seen[0].tensors["loss"], seen[1].tensors["loss"]))
        for name, gradient in tensors_of(seen[0], "gradients").items():
            self.assertTrue(torch.equal(gradient, tensors_of(seen[1], "gradients")[name]), name)

    def test_takes_the_gradient_of_a_leaf(self) -> None:
        leaf, take = step("leaf", input="x", into="asked"), step("take_gradient", of="asked", into="gradient")
        backward = [step("forward", input=["asked"]), step("loss", kind="sum"), step("backward", loss="loss")]
        (seen,) = run(BUILD, leaf, *backward, take, observe("register:gradient"))
        expected = (DATA["parameters/model/1.weight"] @ DATA["parameters/model/0.weight"]).expand(4, 3)
        self.assertTrue(torch.equal(seen.tensors["register:gradient"], expected))
        with self.assertRaises(StepFailed):
            run(BUILD, leaf, take)

    def test_a_ranks_own_values_win(self) -> None:
        (zero,), (one,) = (run(BUILD, observe("parameters"), rank=rank) for rank in (0, 1))
        self.assertTrue(torch.equal(tensors_of(one, "parameters")["1.bias"], DATA["parameters/model/1.bias@1"]))
        self.assertTrue(torch.equal(tensors_of(zero, "parameters")["1.bias"], DATA["parameters/model/1.bias"]))

    def test_steps_of_other_ranks_are_skipped(self) -> None:
        program = [BUILD, step("mutate", parameter="0.bias", what="value", how="inplace", fill=7, ranks=[1]), observe("parameters")]
        self.assertNotEqual(tensors_of(run(*program)[0], "parameters")["0.bias"].tolist(), [7.0, 7.0])
        self.assertEqual(tensors_of(run(*program, rank=1)[0], "parameters")["0.bias"].tolist(), [7.0, 7.0])

    def test_optimizer_groups_take_the_first_match_and_leave_the_rest(self) -> None:
        groups = [{"match": "^0", "lr": 0.0}, {"match": "weight", "lr": 1.0}]
        sgd = step("optimizer", **{"as": "optimizer"}, kind="SGD", lr=9.0, groups=groups)
        before, after = run(BUILD, sgd, observe("parameters"), train(), observe("parameters"))
        changed = [n for n, t in tensors_of(after, "parameters").items() if not torch.equal(t, tensors_of(before, "parameters")[n])]
        self.assertEqual(changed, ["1.weight"])

    def test_optimizer_state_has_what_is_shaped_like_the_parameter(self) -> None:
        adam = step("optimizer", **{"as": "optimizer"}, kind="Adam", lr=0.1, match="0")
        (seen,) = run(BUILD, adam, train(), observe("optimizer_state"))
        self.assertEqual(list(tensors_of(seen, "optimizer_state")), [f"0.{p}/{s}" for p in ("weight", "bias") for s in ("exp_avg", "exp_avg_sq")])

    def test_chunks_losses_and_registers(self) -> None:
        half = [step("forward", input=["x"], chunk=[i, 2], output=f"o{i}", model="model") for i in (0, 1)]
        both = step("loss", kind="sum", of=["o0", "o1"], into="both")
        whole = [step("forward", input=["x"], output="output"), step("loss", kind="sum", of=["output"], into="loss")]
        (seen,) = run(BUILD, half, both, whole, observe("loss", "register:both"))
        self.assertEqual(seen.tensors["loss"], seen.tensors["register:both"])
        entropy = step("loss", kind="cross_entropy", of=["output"], **{"with": "target"})
        (seen,) = run(BUILD, whole[0], entropy, observe("loss"))
        self.assertEqual(seen.tensors["loss"].item(), 0.0)  # a single class

    def test_many_tensors_at_once_empty_ones_among_them(self) -> None:
        multiply = step("foreach_mul", of=["nothing", "x"], copies=3, by=0.5, into="product")
        (seen,) = run(BUILD, multiply, observe("register:product"), data={**DATA, "inputs/nothing": torch.empty(0)})
        self.assertTrue(torch.equal(seen.tensors["register:product"], DATA["inputs/x"].flatten().repeat(3) * 0.5))

    def test_no_grad_and_eval(self) -> None:
        forward = step("forward", input=["x"], output="output")
        scope = [step("enter", scope="no_grad"), forward, step("loss", kind="sum"), step("leave", scope="no_grad")]
        with self.assertRaisesRegex(StepFailed, "does not require grad"):
            run(BUILD, scope, step("backward", loss="loss"))
        norm = {"type": "BatchNorm1d", "class": "BatchNorm1d", "features": 3}
        data = {"parameters/model/weight": torch.ones(3), "parameters/model/bias": torch.zeros(3), **{k: v for k, v in DATA.items() if "inputs" in k}}
        (seen,) = run(BUILD, step("mode", mode="eval"), forward, observe("output", "buffers"), model=norm, data=data)
        self.assertTrue(torch.allclose(seen.tensors["output"], data["inputs/x"], atol=1e-4))
        self.assertEqual(list(tensors_of(seen, "buffers")), ["running_mean", "running_var", "num_batches_tracked"])

    def test_several_outputs_are_observed_by_their_names(self) -> None:
        pair = graph(["x"], [{"relu": "x", "to": "y"}], ["x", "y"])
        (seen,) = run(BUILD, step("forward", input=["x"], output=["a", "b"]), observe("register:a", "register:b"), model=pair)
        self.assertEqual([entry["what"] for entry in seen.entries], ["register:a", "register:b"])
        self.assertTrue(torch.equal(seen.tensors["register:b"], DATA["inputs/x"].relu()))
        with self.assertRaisesRegex(StepFailed, "'output' holds 2 tensors; give each output of the module a name"):
            run(BUILD, step("forward", input=["x"]), observe("output"), model=pair)
        with self.assertRaisesRegex(StepFailed, "'output' holds 2 tensors"):
            run(BUILD, step("forward", input=["x"]), step("loss", kind="sum"), model=pair)
        with self.assertRaisesRegex(StepFailed, "returns 2 outputs and the step names 1"):
            run(BUILD, step("forward", input=["x"], output=["a"]), model=pair)

    def test_a_part_of_the_model_is_called_by_its_path(self) -> None:
        (seen,) = run(BUILD, step("forward", input=["x"], module="0"), observe("output"))
        expected = DATA["inputs/x"] @ DATA["parameters/model/0.weight"].T + DATA["parameters/model/0.bias"]
        self.assertTrue(torch.equal(seen.tensors["output"], expected))

    def test_a_cast_model_has_the_values_in_the_new_dtype(self) -> None:
        (seen,) = run(BUILD, step("cast", dtype="float64"), observe("parameters"))
        weight = tensors_of(seen, "parameters")["0.weight"]
        self.assertEqual(weight.dtype, torch.float64)
        self.assertTrue(torch.equal(weight, DATA["parameters/model/0.weight"].double()))

    def test_another_optimizer_goes_on_where_the_saved_one_was(self) -> None:
        adam = [step("optimizer", **{"as": name}, model="model", kind="Adam", lr=0.5) for name in ("optimizer", "second")]
        save, load = step("optimizer_state_dict", **{"as": "s"}), step("load_optimizer_state_dict", **{"from": "s"}, optimizer="second")
        weights = [step("state_dict", **{"as": "w"}), step("load_state_dict", **{"from": "w"})]
        first = [adam[0], train(2), save, weights[0], train(), observe("parameters", "state_dict:s")]
        second = [weights[1], adam[1], load, train(optimizer="second"), observe("parameters")]
        one, two = run(BUILD, *first, *second)
        self.assertEqual(list(tensors_of(one, "state_dict:s"))[:2], ["0.weight/exp_avg", "0.weight/exp_avg_sq"])
        for name, value in tensors_of(one, "parameters").items():
            self.assertTrue(torch.equal(value, tensors_of(two, "parameters")[name]), name)

    def test_checkpoints_lie_in_the_folders_of_the_case(self) -> None:
        asked = []
        with mock.patch.multiple(Plain, create=True, save_checkpoint=lambda _, c: asked.append(c), load_checkpoint=lambda _, c: asked.append(c)):
            load = step("load_checkpoint", format="native", optimizer="optimizer", like="model", optimizer_like="optimizer")
            run(BUILD, SGD, load, step("save_checkpoint", format="safetensors"), checkpoints={"save": "mine", "load": "before"})
        self.assertEqual([(c.format, c.folder, c.model.instance) for c in asked], [("native", "before", "model"), ("safetensors", "mine", "model")])
        self.assertEqual([c.optimizer is not None for c in asked], [True, False])

    def test_state_dict_round_trip(self) -> None:
        save, load = step("state_dict", **{"as": "s"}, kind="full"), step("load_state_dict", **{"from": "s"})
        seen = run(BUILD, save, step("zero_parameters"), observe("parameters"), load, observe("parameters", "state_dict:s"))
        self.assertFalse(any(t.any() for t in tensors_of(seen[0], "parameters").values()))
        self.assertTrue(torch.equal(tensors_of(seen[1], "parameters")["0.weight"], DATA["parameters/model/0.weight"]))
        self.assertEqual(len(tensors_of(seen[1], "state_dict:s")), 4)

    def test_the_state_dict_of_a_part_has_names_relative_to_it(self) -> None:
        save = step("state_dict", **{"as": "s"}, kind="full", module="0")
        load = step("load_state_dict", **{"from": "s"}, module="0")
        (seen,) = run(BUILD, save, step("zero_parameters"), load, observe("parameters", "state_dict:s"))
        self.assertEqual(list(tensors_of(seen, "state_dict:s")), ["weight", "bias"])
        loaded = tensors_of(seen, "parameters")
        self.assertTrue(torch.equal(loaded["0.weight"], DATA["parameters/model/0.weight"]))
        self.assertFalse(loaded["1.weight"].any())

    def test_a_state_dict_with_options_is_the_testees_own(self) -> None:
        save = step("state_dict", **{"as": "s"}, kind="full", rank0_only=True)
        with self.assertRaisesRegex(Unsupported, "no options"):
            run(BUILD, save)

        def first_alone(self: Plain, model: Any, rank0_only: bool, offload_to_cpu: bool) -> Any:
            state = self.state_dict(model, "full")
            return state if self.context.rank == 0 else type(state)({}, [])

        with mock.patch.object(Plain, "full_state_dict", first_alone):
            devices = [run(BUILD, save, observe("devices:s"), rank=rank)[0].entries[0]["values"] for rank in (0, 1)]
        self.assertEqual(devices, [dict.fromkeys(("0.weight", "0.bias", "1.weight", "1.bias"), "cpu"), {}])

    def test_a_broadcast_state_dict_is_the_testees_own(self) -> None:
        save = step("state_dict", **{"as": "s"}, kind="full")
        load = step("load_state_dict", **{"from": "s"}, broadcast_from_rank0=True)
        with self.assertRaisesRegex(Unsupported, "that every rank has"):
            run(BUILD, save, load)
        asked = []
        with mock.patch.object(Plain, "broadcast_state_dict", lambda _, model, state: asked.append(len(state.items))):
            run(BUILD, save, load)
        self.assertEqual(asked, [4])

    def test_materialising_from_meta(self) -> None:
        (seen,) = run(step("build", model="model", device="meta"), step("materialize", model="model"), observe("parameters", "devices"))
        self.assertTrue(torch.equal(tensors_of(seen, "parameters")["0.weight"], DATA["parameters/model/0.weight"]))


class Mutations(unittest.TestCase):
    def mutate(self, what: str, how: str, **more: Any) -> Observation:
        forth = train()[:-1]
        return run(BUILD, SGD, observe("identity"), forth, step("mutate", parameter="0.bias", what=what, how=how, **more), observe("parameters", "gradients", "identity"))

    def test_every_way(self) -> None:
        for what, how, keeps_identity in [
            ("value", "inplace", True), ("value", "data", True), ("value", "replace", False), ("grad", "inplace", True), ("grad", "replace", True), ("grad", "none", True),
        ]:
            with self.subTest(f"{what} {how}"):
                before, after = self.mutate(what, how, **({} if how == "none" else {"fill": 3}))
                same = before.entries[0]["values"]["0.bias"] == after.entries[2]["values"]["0.bias"]
                self.assertEqual(same, keeps_identity)
                found = tensors_of(after, "parameters" if what == "value" else "gradients").get("0.bias")
                self.assertEqual(None if found is None else found.tolist(), None if how == "none" else [3.0, 3.0])

    def test_tensors_of_another_class_take_no_plain_values(self) -> None:
        class Sharded(torch.Tensor):
            pass

        with mock.patch.object(Plain, "exposed", lambda self, model, name: torch.zeros(2).as_subclass(Sharded)):
            with self.assertRaisesRegex(Unsupported, "found a Sharded"):
                self.mutate("value", "inplace", fill=3)

    def test_growing_and_values_from_the_data_file(self) -> None:
        data = {**DATA, "inputs/new": torch.tensor([5.0, 6.0])}
        (seen,) = run(BUILD, step("mutate", parameter="0.bias", what="value", how="inplace", **{"from": "new"}), observe("parameters"), data=data)
        self.assertEqual(tensors_of(seen, "parameters")["0.bias"].tolist(), [5.0, 6.0])
        grown = step("mutate", parameter="0.bias", what="value", how="replace", fill=1, grow=1)
        with self.assertRaisesRegex(StepFailed, "size"):
            run(BUILD, grown, step("forward", input=["x"]))


class Attempts(unittest.TestCase):
    def attempt(self, *steps: Any) -> list[Observation]:
        return run(BUILD, step("attempt_begin", name="a"), list(steps), step("attempt_end", name="a"), step("forward", input=["x"]), observe("output"))

    def test_an_error_ends_the_block_and_not_the_case(self) -> None:
        answer, after = self.attempt(step("forward", input=["absent"]), observe("output"))
        (entry,) = answer.entries
        self.assertEqual({k: entry["error"][k] for k in ("type", "phase", "step", "verb")}, {"type": "ValueError", "phase": "forward", "step": 2, "verb": "forward"})
        self.assertRegex(entry["error"]["message"], "neither 'inputs/absent' nor")
        self.assertIn("output", after.tensors)

    def test_without_an_error(self) -> None:
        answer, _ = self.attempt(step("mode", mode="train"))
        self.assertEqual(answer.entries, [{"what": "attempt", "name": "a", "error": None}])

    def test_scopes_opened_inside_are_left(self) -> None:
        _, after = self.attempt(step("enter", scope="no_grad"), step("forward", input=["absent"]), step("leave", scope="no_grad"))
        self.assertTrue(after.tensors["output"].requires_grad)

    def test_outside_an_attempt_the_case_fails_with_step_and_phase(self) -> None:
        with self.assertRaises(StepFailed) as failed:
            run(BUILD, step("forward", input=["x"]), step("loss", kind="sum"), step("backward", loss="loss"), step("backward", loss="loss"))
        self.assertEqual((failed.exception.step, failed.exception.report["type"], failed.exception.report["phase"]), (4, "RuntimeError", "backward"))


class Settings(unittest.TestCase):
    def test_switches_last_as_long_as_the_case(self) -> None:
        os.environ["FSDP_CTS_TEST_GONE"] = "here"
        self.addCleanup(os.environ.pop, "FSDP_CTS_TEST_GONE", None)
        seen: list[Any] = []

        class Looks(Plain):
            def set_training(self, model: Any, training: bool) -> None:
                seen.append((os.environ.get("FSDP_CTS_TEST_SET"), os.environ.get("FSDP_CTS_TEST_GONE")))

        switches = {"FSDP_CTS_TEST_SET": "1", "FSDP_CTS_TEST_GONE": None}
        message = {"models": {"model": MODEL}, "plans": {}, "program": [BUILD, step("mode", mode="eval")], "switches": switches}
        interpreter = Interpreter(Looks(), Context(0, 1, message, CaseData(DATA, 0, torch.device("cpu"))))
        interpreter.run(0), interpreter.run(1), interpreter.close()
        self.assertEqual(seen, [("1", None)])
        self.assertEqual((os.environ.get("FSDP_CTS_TEST_SET"), os.environ["FSDP_CTS_TEST_GONE"]), (None, "here"))

    def test_warnings_are_collected_once_and_observing_adds_none(self) -> None:
        class Warns(Plain):
            def set_training(self, model: Any, training: bool) -> None:
                warnings.warn("careful", FutureWarning, stacklevel=2)

            def parameters(self, model: Any) -> list:
                warnings.warn("from the observer", stacklevel=2)
                return super().parameters(model)

        program = [BUILD, step("mode", mode="eval"), step("mode", mode="eval"), observe("parameters"), observe("warnings"), observe("warnings")]
        message = {"models": {"model": MODEL}, "plans": {}, "program": program}
        interpreter = Interpreter(Warns(), Context(0, 1, message, CaseData(DATA, 0, torch.device("cpu"))))
        answers = [interpreter.run(i) for i in range(len(program))]
        interpreter.close()
        self.assertEqual(answers[4].entries[0]["warnings"], [{"category": "FutureWarning", "message": "careful"}] * 2)
        self.assertEqual(answers[5].entries[0]["warnings"], [])

    def test_what_the_sdk_does_not_know_is_said_before_acting(self) -> None:
        def reason(model: dict, *program: dict) -> str:
            return unknown_in({"models": {"m": model}, "program": list(program)}) or ""

        self.assertRegex(reason({"type": "Rnn"}), "module types .*Rnn")
        self.assertRegex(reason(MODEL, step("dance")), "verbs .*dance")
        self.assertRegex(reason(MODEL, observe("weather")), "observations .*weather")
        self.assertEqual(reason(MODEL, BUILD, observe("loss", "register:x", "state_dict:y", "trace")), "")

    def test_every_verb_of_the_language_is_known(self) -> None:
        text = (Path(__file__).resolve().parents[4] / "conformance" / "LANGUAGE.md").read_text()
        table = text.split("## 6. Verbs")[1].split("## 7.")[0]
        named = {verb for row in re.findall(r"^\| (`.*?) \|", table, re.M) for verb in re.findall(r"`(\w+)`", row)} - {"verb"}
        self.assertGreater(len(named), 30)
        self.assertIsNone(unknown_in({"models": {}, "program": [step(verb, what=[]) for verb in named]}))


if __name__ == "__main__":
    unittest.main()
