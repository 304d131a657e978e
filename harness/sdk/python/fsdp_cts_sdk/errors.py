"""Exceptions as the protocol reports them."""

from __future__ import annotations


class Unsupported(Exception):
    """The case is not for this testee. May depend on the case only, so that all ranks agree."""


class StepFailed(Exception):
    """An exception outside an attempt: which step, and the report for the runner."""

    def __init__(self, step: int, report: dict[str, str]) -> None:
        super().__init__(f"step {step}: {report['type']}: {report['message']}")
        self.step = step
        self.report = report


def error_report(error: BaseException, phase: str) -> dict[str, str]:
    """`phase` is the verb's; what fails while a library initialises itself lazily is told by the functions it passed through."""
    traceback = error.__traceback__
    while traceback is not None:
        if traceback.tb_frame.f_code.co_name.lstrip("_") == "lazy_init":
            phase = "lazy_init"
        traceback = traceback.tb_next
    return {"type": type(error).__name__, "message": str(error), "phase": phase}
