"""A module whose body is data: the `Graph` of conformance/LANGUAGE.md, section 3."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from fsdp_cts_sdk.dtypes import dtype_from_name, dtype_name
from fsdp_cts_sdk.errors import Unsupported
from fsdp_cts_sdk.recorder import Recorder

Values = dict[str, torch.Tensor]
Op = Callable[["Graph", Values], None]

# Put in between by FSDP and by checkpointing; never part of a scenario's names.
WRAPPER_PREFIXES = ("_fsdp_wrapped_module.", "_checkpoint_wrapped_module.")


def clean_name(name: str) -> str:
    """A parameter's or module's name as the scenario knows it."""
    for prefix in WRAPPER_PREFIXES:
        name = name.replace(prefix, "")
    return name


def submodule(module: nn.Module, path: str) -> Any:
    """Follows attributes, so that wrappers put in between later are found and passed through."""
    for name in path.split(".") if path else ():
        module = getattr(module, name)
    return module


class _Body:
    def __init__(self, description: dict[str, Any]) -> None:
        self.inputs: list[str] = description["inputs"]
        self.output: str | list[str] = description["output"]
        self.ops = [_compile(op) for op in description.get("forward", ())]


class Graph(nn.Module):
    """Runs its ops in order over named values. Parameters and children are looked up at every forward: what stands in the slot then
    is what an FSDP library has put there."""

    def __init__(self, description: dict[str, Any], recorder: Recorder) -> None:
        super().__init__()
        self._recorder = recorder
        self._body = _Body(description)
        for name, method in description.get("methods", {}).items():
            setattr(self, name, functools.partial(self._run, _Body(method)))
        for name, parameter in description.get("parameters", ()):
            self.register_parameter(name, nn.Parameter(torch.zeros(parameter["shape"])))
        for name, buffer in description.get("buffers", ()):
            make = torch.ones if buffer.get("fill") == "ones" else torch.zeros
            self.register_buffer(name, make(buffer["shape"], dtype=dtype_from_name(buffer.get("dtype", "float32"))))

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor | tuple[torch.Tensor, ...]:
        return self._run(self._body, *inputs)

    def _run(self, body: _Body, *inputs: torch.Tensor) -> torch.Tensor | tuple[torch.Tensor, ...]:
        if len(inputs) != len(body.inputs):
            raise TypeError(f"the graph takes {len(body.inputs)} inputs {body.inputs}, it was called with {len(inputs)}")
        values: Values = dict(zip(body.inputs, inputs))
        for op in body.ops:
            op(self, values)
        if isinstance(body.output, str):
            return values[body.output]
        return tuple(values[name] for name in body.output)

    def reset_parameters(self) -> None:
        """Own parameters get their values from the data file; FSDP calls this when it materialises a module from meta."""


def _call(op: dict[str, Any]) -> Op:
    path, args, to, recompute = op["call"], op["args"], op.get("to"), op.get("recompute", False)

    def run(graph: Graph, values: Values) -> None:
        child = submodule(graph, path)
        arguments = [values[name] for name in args]
        if isinstance(getattr(child, "_fsdp_wrapped_module", child), nn.MultiheadAttention):
            result = child(*arguments, need_weights=False)[0]  # a scenario's attention returns its output only
        elif recompute:
            result = checkpoint(child, *arguments, use_reentrant=False)
        else:
            result = child(*arguments)
        if to is not None:
            values[to] = result

    return run


def _cast(op: dict[str, Any]) -> Op:
    source, to = op["cast"], op["to"]
    if "dtype" in op:
        dtype = dtype_from_name(op["dtype"])
        return lambda graph, values: values.__setitem__(to, values[source].to(dtype))
    child = op["like_weight_of"]
    return lambda graph, values: values.__setitem__(to, values[source].to(submodule(graph, child).weight.dtype))


def _ones(op: dict[str, Any]) -> Op:
    shape, dtype, to = op["ones"], dtype_from_name(op.get("dtype", "float32")), op["to"]

    def run(graph: Graph, values: Values) -> None:
        device = next((value.device for value in values.values()), torch.device("cpu"))
        values[to] = torch.ones(shape, dtype=dtype, device=device)

    return run


def _refuse_gradient_not_finite(gradient: torch.Tensor) -> None:
    if not torch.isfinite(gradient).all():
        raise RuntimeError("a gradient is not finite")


def _finite_gradient(value: torch.Tensor) -> torch.Tensor:
    passed_on = value.view_as(value)
    if passed_on.requires_grad:
        passed_on.register_hook(_refuse_gradient_not_finite)
    return passed_on


def _record(op: dict[str, Any]) -> Op:
    source, key, to = op["record"], op["as"], op.get("to")

    def run(graph: Graph, values: Values) -> None:
        graph._recorder.dtypes[key] = dtype_name(values[source].dtype)
        if to is not None:
            values[to] = values[source]

    return run


def _record_parameters(op: dict[str, Any]) -> Op:
    path, key = op["record_parameters"], op["as"]

    def run(graph: Graph, values: Values) -> None:
        found = submodule(graph, path).named_parameters()
        graph._recorder.parameters[key] = [(clean_name(name), list(value.shape)) for name, value in found]

    return run


def _slot(kind: str) -> Callable[[dict[str, Any]], Op]:
    def make(op: dict[str, Any]) -> Op:
        name, to = op[kind], op["to"]
        return lambda graph, values: values.__setitem__(to, getattr(graph, name))

    return make


def _elementwise(kind: str, function: Callable[..., torch.Tensor]) -> Callable[[dict[str, Any]], Op]:
    def make(op: dict[str, Any]) -> Op:
        names, to = op[kind] if isinstance(op[kind], list) else [op[kind]], op["to"]
        return lambda graph, values: values.__setitem__(to, function(*(values[name] for name in names)))

    return make


_OPS: dict[str, Callable[[dict[str, Any]], Op]] = {
    "call": _call,
    "relu": _elementwise("relu", torch.relu),
    "add": _elementwise("add", torch.add),
    "mul": _elementwise("mul", torch.mul),
    "buffer": _slot("buffer"),
    "parameter": _slot("parameter"),
    "ones": _ones,
    "cast": _cast,
    "finite_gradient": _elementwise("finite_gradient", _finite_gradient),
    "record": _record,
    "record_parameters": _record_parameters,
}


def _compile(op: dict[str, Any]) -> Op:
    for kind, make in _OPS.items():
        if kind in op:
            return make(op)
    raise Unsupported(f"a Graph op is none of {', '.join(_OPS)}: {op}")
