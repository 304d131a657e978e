import itertools
import unittest

import torch

from descriptions import graph, linear, observe, step
from testee_case import TesteeCase



def recording(name: str) -> dict:
    return graph(["x"], [{"record": "x", "as": name}, {"call": "l", "args": ["x"], "to": "y"}], "y", [("l", linear(8, 8))])


BODY = [{"record": "x", "as": "model"}, {"call": "c1", "args": ["x"], "to": "h"}, {"call": "c2", "args": ["h"], "to": "y"}]
MODEL = graph(["x"], BODY, "y", [("c1", recording("c1")), ("c2", recording("c2"))])
DATA = {"inputs/x": torch.zeros(2, 8)}
for child in ("c1", "c2"):
    DATA |= {f"parameters/model/{child}.l.weight": torch.eye(8), f"parameters/model/{child}.l.bias": torch.ones(8)}

# root cast, child cast, root without parameters -> dtypes that model, c1 and c2 see; None: not reached
HALF, FULL = "float16", "float32"
TABLE = {
    (True, True, True): (HALF, HALF, HALF),
    (True, True, False): (FULL, FULL, HALF),
    (True, False, True): (HALF, HALF, HALF),
    (True, False, False): (FULL, FULL, HALF),
    (False, True, True): (FULL, HALF, HALF),
    (False, True, False): (FULL, FULL, HALF),
    (False, False, True): (FULL, FULL, None),
    (False, False, False): (FULL, FULL, FULL),
}


class Composable(TesteeCase):
    def row(self, api: str, root_cast: bool, child_cast: bool, root_without_parameters: bool) -> list[tuple[tuple, str | None]]:
        half = {"mixed_precision": {"param_dtype": "float16", "cast_root_forward_inputs": root_cast, "cast_forward_inputs": child_cast}}
        units = [{"modules": ["c2"], **half}]
        units += [{"modules": ["c1"], **half}, {"modules": [""], **half}] if root_without_parameters else [{"modules": [""]}]
        program = [
            step("build", model="model"), step("shard", model="model"), step("attempt_begin", name="a"), step("forward", input=["x"]),
            step("loss", kind="sum"), step("backward", loss="loss"), step("attempt_end", name="a"), observe("recorded", "parameters"),
        ]  # fmt: skip
        answers = self.act(MODEL, {"api": api, "units": units}, program, DATA)
        self.names = [item["name"] for item in answers[0].entry("parameters")["items"]]
        rows = []
        for answer in answers:
            seen, error = answer.entry("recorded")["values"], self.error(answer)
            rows.append((tuple(seen.get(key) for key in ("model", "c1", "c2")), error and f"{error['phase']}: {error['message']}"))
        return rows

    def test_the_eight_rows(self) -> None:
        self.assertEqual(set(TABLE), set(itertools.product((True, False), repeat=3)))
        for key, expected in TABLE.items():
            with self.subTest(key):
                for seen, error in self.row("composable", *key):
                    self.assertEqual(seen, expected)
                    if key[:2] == (False, False):
                        self.assertRegex(error or "", "^forward: mat1 and mat2 must have the same dtype")
                    else:
                        self.assertIsNone(error)
        self.assertEqual(self.names, ["c1.l.weight", "c1.l.bias", "c2.l.weight", "c2.l.bias"])

    def test_the_wrapper_differs_in_one_row(self) -> None:
        different = [key for key, expected in TABLE.items() if self.row("fsdp", *key)[0][0] != expected]
        self.assertEqual(different, [(True, False, False)])

    def test_one_application_per_module(self) -> None:
        program = [step("build", model="model"), step("attempt_begin", name="a"), step("shard", model="model"), step("attempt_end", name="a")]
        for answer in self.act(MODEL, {"api": "composable", "units": [{"modules": [""]}, {"modules": [""]}]}, program, DATA):
            self.assertRegex(self.error(answer)["message"], "^Each distinct composable distributed API can only be applied to a module once. fully_shard")


if __name__ == "__main__":
    unittest.main()
