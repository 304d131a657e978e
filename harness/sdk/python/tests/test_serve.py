import sys
import unittest
from pathlib import Path

import torch

from descriptions import dyadic, linear, observe, step
from fsdp_cts_sdk.rehearsal import Rehearsal

COMMAND = [sys.executable, str(Path(__file__).parent / "plain_testee.py")]
DATA = {"parameters/model/weight": dyadic(2, 3), "parameters/model/bias": dyadic(2, seed=1), "inputs/x": dyadic(1, 3, seed=2)}
FORWARD = [step("build", model="model"), step("forward", input=["x"]), observe("output", label="here", iteration=3)]


class Serving(unittest.TestCase):
    def test_a_session(self) -> None:
        with Rehearsal(COMMAND, 1) as session:
            hello = session.hellos[0]
            self.assertEqual((hello["type"], hello["protocol"], hello["implementation"]["name"]), ("hello", 1, "plain"))
            self.assertEqual(len(hello["token"]), 16)
            self.assertTrue({"torch", "torch_git", "threads", "cpu_capability", "platform"} <= set(hello["environment"]))

            (answer,) = session.run({"models": {"model": linear(3, 2)}, "program": FORWARD}, DATA)
            self.assertEqual(answer.end, {"type": "done", "case": 1})
            self.assertEqual([(p["step"], p["verb"]) for p in answer.progress], [(-1, "rendezvous"), (0, "build"), (1, "forward"), (2, "observe")])
            (seen,) = answer.observations
            self.assertEqual((seen["rank"], seen["step"], seen["label"], seen["iteration"]), (0, 2, "here", 3))
            expected = DATA["inputs/x"] @ DATA["parameters/model/weight"].T + DATA["parameters/model/bias"]
            self.assertTrue(torch.equal(answer.value("output"), expected))

            (answer,) = session.run({"models": {"model": linear(3, 2)}, "program": [FORWARD[1]]}, DATA)
            self.assertEqual((answer.end["type"], answer.end["step"], answer.end["error"]["type"]), ("error", 0, "KeyError"))
            self.assertIn("Traceback (most recent call last):", answer.end["error"]["traceback"])
            self.assertIn("in run", answer.end["error"]["traceback"])

            control = [*FORWARD[:1], step("unshard", model="model")]
            (answer,) = session.run({"models": {"model": linear(3, 2)}, "program": control}, DATA)
            self.assertEqual((answer.end["type"], answer.end["reason"]), ("unsupported", "this testee has no 'unshard'"))

            (answer,) = session.run({"models": {"model": linear(3, 2)}, "plans": {"model": {}}, "program": FORWARD}, DATA)
            self.assertEqual((answer.end["type"], answer.end["reason"]), ("unsupported", "this testee shards nothing"))
            self.assertEqual(answer.progress, [])

            (answer,) = session.run({"models": {"model": linear(3, 2)}, "program": FORWARD, "requires": ["gpu"]}, DATA)
            self.assertEqual(answer.end["type"], "unsupported")
            self.assertIn("--device cuda", answer.end["reason"])

            moved = [step("build", model="model", device="host"), step("move", model="model"), *FORWARD[1:]]
            (answer,) = session.run({"models": {"model": linear(3, 2)}, "program": moved}, DATA)
            self.assertEqual(answer.end["type"], "done")
            self.assertEqual(session.close(), [0])
            session._processes.clear()
            session._channels.clear()


if __name__ == "__main__":
    unittest.main()
