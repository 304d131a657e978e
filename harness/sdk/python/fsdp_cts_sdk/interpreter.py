"""Runs one case on one rank: verbs become calls of Operations, answers become observations."""

from __future__ import annotations

import contextlib
import os
import warnings
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from typing import Any

import torch

from fsdp_cts_sdk.context import Context
from fsdp_cts_sdk.errors import StepFailed, Unsupported, error_report, sendable, traceback_of
from fsdp_cts_sdk.modules import TYPES, types_in
from fsdp_cts_sdk.observer import Observation, Observer, observables
from fsdp_cts_sdk.operations import Operations, StateDict
from fsdp_cts_sdk.verbs import VERBS, part_of

Step = dict[str, Any]


@dataclass
class _Attempt:
    name: str
    open_scopes: int
    error: dict[str, Any] | None = None


class Interpreter:
    def __init__(self, operations: Operations, context: Context) -> None:
        operations.context = context
        self.operations = operations
        self.context = context
        self.optimizers: dict[str, tuple[str, torch.optim.Optimizer]] = {}
        self.scalers: dict[str, tuple[torch.amp.GradScaler, torch.optim.Optimizer]] = {}
        self.state_dicts: dict[str, StateDict] = {}
        self.delay_after_loss = 0.0
        self.meanwhile: list[Step] = []  # steps that wait for a layer
        context.trace.on_compute = self._interrupt
        self.observer = Observer(operations, self.optimizers)
        self._scopes: list[AbstractContextManager[Any]] = []
        self._attempts: list[_Attempt] = []
        self._settings = ExitStack()
        self._settings.enter_context(_switched(context.case.get("switches") or {}))
        self._settings.enter_context(_collected_warnings(context.warnings))

    def optimizer(self, name: str) -> torch.optim.Optimizer:
        if name not in self.optimizers:
            raise KeyError(f"no optimizer '{name}'; made are {', '.join(self.optimizers) or 'none'}")
        return self.optimizers[name][1]

    def will_run(self, step: Step) -> bool:
        """Whether the step is for this rank and not inside an attempt that has already failed."""
        if self.context.rank not in step.get("ranks", (self.context.rank,)):
            return False
        if self._attempts and self._attempts[-1].error is not None:
            return step["verb"] == "attempt_end" and step["name"] == self._attempts[-1].name
        return True

    def run(self, index: int) -> Observation | None:
        """Runs the program's step. Raises StepFailed for an exception outside an attempt."""
        step = self.context.case["program"][index]
        verb = step["verb"]
        if verb == "attempt_end":
            return self._end_attempt(step, index)
        self.context.phase = _phase(step)
        # What the observer itself causes is not the program's.
        self.context.trace.phase = None if verb == "observe" else self.context.phase
        try:
            if verb == "observe":
                with self.operations.observing():
                    return self.observer.observe(step, index)
            if verb == "attempt_begin":
                self._attempts.append(_Attempt(step["name"], len(self._scopes)))
            elif verb == "enter":
                self._enter(step)
            elif verb == "leave":
                self._scopes.pop().__exit__(None, None, None)
            else:
                VERBS[verb][1](self, step)
        except Unsupported:
            raise
        except Exception as error:
            report = error_report(error, self.context.phase)
            if not self._attempts:
                raise StepFailed(index, {**report, "traceback": traceback_of(error)}) from error
            attempt = self._attempts[-1]
            attempt.error = {**report, "step": index, "verb": verb}
            self._leave_scopes(attempt.open_scopes, error)
        return None

    def close(self) -> None:
        """Leaves what is still open, drops everything the case made, restores switches."""
        self._leave_scopes(0, None)
        self.context.models.clear()
        self.context.registers.clear()
        self.optimizers.clear()
        self.scalers.clear()
        self.state_dicts.clear()
        self._settings.close()

    def _interrupt(self, path: str) -> None:
        """A layer begins to compute: what waits for it is done now, and an error goes up through the pass."""
        due = next((step for step in self.meanwhile if step["module"] == path and step["pass"] == self.context.phase), None)
        if due is None:
            return
        self.meanwhile.remove(due)
        model = self.context.model(due.get("model", "model"))
        if due["do"] == "state_dict":
            self.operations.state_dict(model, "full")
        else:
            with self.operations.enter(model, {"scope": "summon"}):
                pass

    def _enter(self, step: Step) -> None:
        if step["scope"] == "no_grad":
            scope: AbstractContextManager[Any] = torch.no_grad()
        else:
            scope = self.operations.enter(part_of(self, step), step)
        scope.__enter__()
        self._scopes.append(scope)

    def _end_attempt(self, step: Step, index: int) -> Observation:
        attempt = self._attempts.pop()
        return Observation(step, index, [{"what": "attempt", "name": attempt.name, "error": attempt.error}])

    def _leave_scopes(self, down_to: int, error: Exception | None) -> None:
        while len(self._scopes) > down_to:
            scope = self._scopes.pop()
            # The first error is the one that counts; leaving after it may well fail.
            with contextlib.suppress(Exception):
                scope.__exit__(type(error) if error else None, error, error.__traceback__ if error else None)


def unknown_in(case: dict[str, Any]) -> str | None:
    """What the SDK itself does not know in a case, asked before anything is run."""
    types = {name for description in case["models"].values() for name in types_in(description)}
    if unknown := sorted(types - set(TYPES)):
        return f"module types this SDK does not have: {', '.join(unknown)}"
    known = {*VERBS, "observe", "attempt_begin", "attempt_end", "enter", "leave"}
    if unknown := sorted({step["verb"] for step in case["program"]} - known):
        return f"verbs this SDK does not have: {', '.join(unknown)}"
    asked = {what for step in case["program"] if step["verb"] == "observe" for what in step["what"]}
    plain = {what for what in asked if not what.startswith(("register:", "state_dict:", "devices:"))}
    if unknown := sorted(plain - observables()):
        return f"observations this SDK does not have: {', '.join(unknown)}"
    return None


def _phase(step: Step) -> str:
    if step["verb"] in ("enter", "leave"):
        return "summon" if step["scope"] == "summon" else "other"
    return VERBS[step["verb"]][0] if step["verb"] in VERBS else "other"


@contextlib.contextmanager
def _switched(switches: dict[str, str | None]):
    before = {name: os.environ.get(name) for name in switches}
    _set_environment(switches)
    try:
        yield
    finally:
        _set_environment(before)


def _set_environment(values: dict[str, str | None]) -> None:
    for name, value in values.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


@contextlib.contextmanager
def _collected_warnings(sink: list[dict[str, str]]):
    def collect(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
        sink.append({"category": category.__name__, "message": sendable(str(message))})

    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning = collect
        yield
