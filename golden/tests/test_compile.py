import unittest

import torch

from descriptions import dyadic, graph, linear, observe, step
from testee_case import TesteeCase

LAYER = graph(
    ["x"],
    [{"call": "a", "args": ["x"], "to": "h"}, {"relu": "h", "to": "r"}, {"call": "b", "args": ["r"], "to": "y"}],
    "y",
    [("a", linear(4, 4)), ("b", linear(4, 4))],
    label="Layer",
)
MODEL = graph(["x"], [{"call": "first", "args": ["x"], "to": "h"}, {"call": "second", "args": ["h"], "to": "y"}], "y", [("first", LAYER), ("second", LAYER)], label="Net")
SHAPES = {f"{layer}.{linear}.{name}": shape for layer in ("first", "second") for linear in "ab" for name, shape in (("weight", (4, 4)), ("bias", (4,)))}
DATA = {f"parameters/model/{name}": dyadic(*shape, seed=i) for i, (name, shape) in enumerate(SHAPES.items())}
DATA |= {f"inputs/x@{rank}": dyadic(2, 4, seed=20 + rank) for rank in range(2)}
PLAN = {"api": "fsdp", "units": [{"modules": [""], "use_orig_params": True, "auto_wrap": {"policy": "module_wrap", "classes": ["Layer"]}}]}
MADE = [step("build", model="model"), step("shard", model="model")]
TRAINED = [step("forward", input=["x"]), step("loss", kind="sum"), step("backward", loss="loss"), observe("gradients")]


class Compile(TesteeCase):
    def test_compiled_gradients_are_the_eager_ones(self) -> None:
        """The testee itself raises when the compiler never saw a graph."""
        eager = self.act(MODEL, PLAN, [MADE, TRAINED], DATA)
        compiled = self.act(MODEL, PLAN, [MADE, step("compile", model="model", skip_fsdp_guards=True), TRAINED], DATA)
        for name in SHAPES:
            self.assertTrue(torch.equal(self.whole(eager, "gradients", name), self.whole(compiled, "gradients", name)), name)


if __name__ == "__main__":
    unittest.main()
