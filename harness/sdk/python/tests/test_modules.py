import unittest

import torch
from torch import nn

from descriptions import graph, linear, sequential
from fsdp_cts_sdk.errors import Unsupported
from fsdp_cts_sdk.modules import build_module, class_label, classes_labelled, nominal_class
from fsdp_cts_sdk.recorder import Recorder

# What conformance/LANGUAGE.md, section 3, promises: description -> parameters in order, then buffers.
PROMISED = [
    (linear(3, 5), {"weight": [5, 3], "bias": [5]}, {}),
    (linear(3, 5, bias=False), {"weight": [5, 3]}, {}),
    ({"type": "Conv2d", "in": 2, "out": 4, "kernel": 3}, {"weight": [4, 2, 3, 3], "bias": [4]}, {}),
    ({"type": "Embedding", "num": 7, "dim": 2}, {"weight": [7, 2]}, {}),
    ({"type": "LayerNorm", "dim": 6}, {"weight": [6], "bias": [6]}, {}),
    *[
        ({"type": kind, "features": 4}, {"weight": [4], "bias": [4]}, {"running_mean": [4], "running_var": [4], "num_batches_tracked": []})
        for kind in ("BatchNorm1d", "BatchNorm2d", "BatchNorm3d", "SyncBatchNorm")
    ],
    (
        {"type": "MultiheadAttention", "dim": 4, "heads": 2, "dropout": 0},
        {"in_proj_weight": [12, 4], "in_proj_bias": [12], "out_proj.weight": [4, 4], "out_proj.bias": [4]},
        {},
    ),
    ({"type": "ReLU"}, {}, {}),
    ({"type": "Identity"}, {}, {}),
    ({"type": "Dropout", "p": 0.5}, {}, {}),
    (sequential(linear(2, 3), {"type": "ReLU"}, linear(3, 1, bias=False)), {"0.weight": [3, 2], "0.bias": [3], "2.weight": [1, 3]}, {}),
    ({"type": "ModuleList", "children": [["0", linear(2, 2, bias=False)]]}, {"0.weight": [2, 2]}, {}),
    ({"type": "ModuleDict", "children": [["b", linear(2, 2, False)], ["a", linear(1, 1, False)]]}, {"b.weight": [2, 2], "a.weight": [1, 1]}, {}),
    (
        graph(
            ["x"], [], "x", [("inner", linear(2, 2))],
            parameters=[["scale", {"shape": [3]}]], buffers=[["long", {"shape": [2], "dtype": "int64", "fill": "ones"}]],
        ),
        {"scale": [3], "inner.weight": [2, 2], "inner.bias": [2]},
        {"long": [2]},
    ),
]


def build(description: dict) -> nn.Module:
    return build_module(description, Recorder())


class Builder(unittest.TestCase):
    def test_names_shapes_and_order_of_every_type(self) -> None:
        for description, parameters, buffers in PROMISED:
            module = build(description)
            with self.subTest(description["type"]):
                self.assertEqual([(n, list(p.shape)) for n, p in module.named_parameters()], list(parameters.items()))
                self.assertEqual([(n, list(b.shape)) for n, b in module.named_buffers()], list(buffers.items()))

    def test_buffers_have_the_asked_dtype_and_fill(self) -> None:
        module = build(graph([], [], [], buffers=[["b", {"shape": [2], "dtype": "int64", "fill": "ones"}], ["z", {"shape": [1], "dtype": "float16"}]]))
        self.assertTrue(torch.equal(module.b, torch.ones(2, dtype=torch.int64)))
        self.assertEqual(module.z.dtype, torch.float16)

    def test_a_tied_parameter_is_one_object_named_at_its_first_place(self) -> None:
        children = [("emb", {"type": "Embedding", "class": "Embedding", "num": 3, "dim": 2}), ("out", linear(2, 3))]
        module = build(graph(["x"], [], "x", children, tie=[["out.weight", "emb.weight"]]))
        self.assertIs(module.out.weight, module.emb.weight)
        self.assertEqual([name for name, _ in module.named_parameters()], ["emb.weight", "out.bias"])

    def test_labels_are_classes_that_a_policy_can_name(self) -> None:
        module = build(sequential(linear(1, 1, label="Special"), linear(1, 1)))
        self.assertIs(type(module[1]), nn.Linear)
        self.assertIs(type(module[0]), nominal_class("Linear", "Special"))
        self.assertEqual(classes_labelled("Special"), {type(module[0])})
        self.assertEqual([class_label(child) for child in module], ["Special", "Linear"])
        self.assertEqual(type(build(linear(1, 1, label="Special"))), type(module[0]))

    def test_torch_classes_stay_themselves(self) -> None:
        self.assertIs(type(build({"type": "MultiheadAttention", "class": "MultiheadAttention", "dim": 4, "heads": 1})), nn.MultiheadAttention)
        self.assertIsInstance(build({"type": "BatchNorm1d", "class": "Mine", "features": 2}), nn.BatchNorm1d)

    def test_the_label_survives_a_class_put_on_top(self) -> None:
        module = build(linear(1, 1, label="Special"))
        module.__class__ = type("FSDPSpecial", (type(module),), {})
        self.assertEqual(class_label(module), "Special")

    def test_unknown_types_are_refused_by_name(self) -> None:
        with self.assertRaisesRegex(Unsupported, "no module type 'Rnn'"):
            build({"type": "Rnn"})


class GraphBody(unittest.TestCase):
    def run_graph(self, description: dict, *inputs: torch.Tensor) -> tuple:
        recorder = Recorder()
        return build_module(description, recorder)(*inputs), recorder

    def test_elementwise_ops_buffers_parameters_and_ones(self) -> None:
        ops = [
            {"relu": "x", "to": "r"}, {"buffer": "b", "to": "b"}, {"add": ["r", "b"], "to": "s"}, {"parameter": "p", "to": "p"},
            {"mul": ["s", "p"], "to": "m"}, {"ones": [2], "dtype": "float32", "to": "o"}, {"add": ["m", "o"], "to": "y"},
        ]
        description = graph(["x"], ops, "y", parameters=[["p", {"shape": [2]}]], buffers=[["b", {"shape": [2], "fill": "ones"}]])
        result, _ = self.run_graph(description, torch.tensor([-1.0, 2.0]))
        self.assertEqual(result.tolist(), [1.0, 1.0])  # p is 0 until the data file says otherwise

    def test_recording_sees_the_dtype_in_the_body(self) -> None:
        ops = [
            {"record": "x", "as": "before"}, {"cast": "x", "dtype": "bfloat16", "to": "low"}, {"record": "low", "as": "after"},
            {"cast": "low", "like_weight_of": "l", "to": "x"}, {"record": "x", "as": "like"}, {"call": "l", "args": ["x"], "to": "y"},
        ]
        _, recorder = self.run_graph(graph(["x"], ops, "y", [("l", linear(2, 2))]), torch.zeros(1, 2))
        self.assertEqual(recorder.dtypes, {"before": "float32", "after": "bfloat16", "like": "float32"})

    def test_recording_parameters(self) -> None:
        ops = [{"record_parameters": "", "as": "all"}, {"record_parameters": "l", "as": "child"}]
        _, recorder = self.run_graph(graph(["x"], ops, "x", [("l", linear(2, 3))]), torch.zeros(1))
        self.assertEqual(recorder.parameters["all"], [("l.weight", [3, 2]), ("l.bias", [3])])
        self.assertEqual(recorder.parameters["child"], [("weight", [3, 2]), ("bias", [3])])

    def test_attention_returns_its_output_only(self) -> None:
        attention = {"type": "MultiheadAttention", "class": "MultiheadAttention", "dim": 4, "heads": 2}
        ops = [{"call": "a.0", "args": ["x", "x", "x"], "to": "y"}]
        listed = {"type": "ModuleList", "class": "ModuleList", "children": [["0", attention]]}
        result, _ = self.run_graph(graph(["x"], ops, "y", [("a", listed)]), torch.zeros(3, 2, 4))
        self.assertEqual(result.shape, (3, 2, 4))

    def test_several_outputs_and_wrong_inputs(self) -> None:
        description = graph(["x", "y"], [], ["y", "x"])
        result, _ = self.run_graph(description, torch.zeros(1), torch.ones(1))
        self.assertEqual([t.item() for t in result], [1.0, 0.0])
        with self.assertRaisesRegex(TypeError, "takes 2 inputs"):
            self.run_graph(description, torch.zeros(1))

    def test_an_unknown_op_is_refused(self) -> None:
        with self.assertRaisesRegex(Unsupported, "none of call"):
            self.run_graph(graph(["x"], [{"sin": "x", "to": "y"}], "y"), torch.zeros(1))


if __name__ == "__main__":
    unittest.main()
