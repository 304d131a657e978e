"""A tap that sees nothing is the suite's trouble and says so before anybody is judged."""

from __future__ import annotations

import sys
import unittest
from pathlib import Path

from fsdp_cts_sdk.rehearsal import Rehearsal
from testee_case import COMMAND, session_of

_BLIND = """
import sys
sys.argv = ["pytorch_testee"]
sys.path[0:0] = [{testee!r}, {golden!r}, {sdk!r}]
from fsdp_cts_sdk.collective_tap import CollectiveTap
CollectiveTap._note = lambda self, *arguments: None
import runpy
runpy.run_path({testee!r}, run_name="__main__")
"""


class Instruments(unittest.TestCase):
    def _ends(self, session: Rehearsal) -> list[dict[str, object]]:
        return [answer.end for answer in session.run({"models": {}, "plans": {}, "program": []}, {})]

    def test_a_blind_tap_is_told_at_the_rendezvous(self) -> None:
        testee = Path(COMMAND[1])
        paths = {"testee": str(testee), "golden": str(testee.parent), "sdk": str(testee.parents[1] / "harness" / "sdk" / "python")}
        with Rehearsal([sys.executable, "-c", _BLIND.format(**paths)], 2) as session:
            ends = self._ends(session)
        for end in ends:
            self.assertEqual(end["type"], "error", end)
            self.assertEqual(end["step"], -1)
            self.assertEqual(end["error"]["type"], "InstrumentBlind")
            self.assertIn("saw nothing", end["error"]["message"])

    def test_a_tap_that_sees_is_not_mentioned(self) -> None:
        for end in self._ends(session_of(2)):
            self.assertEqual(end["type"], "done", end)


if __name__ == "__main__":
    unittest.main()
