"""Exceptions as the protocol reports them."""

from __future__ import annotations

import re
import traceback


# Below the protocol's limit for texts, which is 65,536 characters.
LONGEST_MESSAGE = 60_000


class Unsupported(Exception):
    """The case is not for this testee. May depend on the case only, so that all ranks agree: best said by `Operations.unsupported`, before
    anything is done; an operation that raises this ends the case as unsupported too, if it does so on every rank at the same step."""


class InstrumentBlind(Exception):
    """Raised at the rendezvous: what the testee watches the implementation with sees nothing, so its answers would accuse somebody else."""


class StepFailed(Exception):
    """An exception outside an attempt: which step, and the report for the runner."""

    def __init__(self, step: int, report: dict[str, str]) -> None:
        super().__init__(f"step {step}: {report['type']}: {report['message']}")
        self.step = step
        self.report = report


def sendable(message: str) -> str:
    """What a frame can carry of the message of an error or a warning: U+FFFD for lone surrogates, which stand for bytes that are no text."""
    return re.sub("[\ud800-\udfff]", "\ufffd", message[:LONGEST_MESSAGE])


def error_report(error: BaseException, phase: str) -> dict[str, str]:
    """`phase` is the verb's; what fails while a library initialises itself lazily is recognised by the functions it passed through."""
    frame = error.__traceback__
    while frame is not None:
        if frame.tb_frame.f_code.co_name.lstrip("_") == "lazy_init":
            phase = "lazy_init"
        frame = frame.tb_next
    return {"type": type(error).__name__, "message": sendable(str(error)), "phase": phase}


def traceback_of(error: BaseException) -> str:
    """Where it was raised, for a person; the end of a long one, which is nearest to the cause."""
    return sendable("".join(traceback.format_exception(error))[-LONGEST_MESSAGE:])
