"""The verb `mutate`: user code that changes a parameter or its gradient behind the library's back."""

from __future__ import annotations

from typing import Any

import torch

from fsdp_cts_sdk.errors import Unsupported
from fsdp_cts_sdk.operations import Operations, pieces


def mutate(operations: Operations, step: dict[str, Any]) -> None:
    """New values are shaped like what is exposed now, `grow` more in every dimension. A gradient that is absent can only be replaced."""
    model = operations.context.model(step.get("model", "model"))
    name, how = step["parameter"], step["how"]
    parameter = operations.exposed(model, name)
    if step["what"] == "value":
        target, replace = parameter, lambda new: operations.replace(model, name, new)
    elif step["what"] == "grad":
        target, replace = parameter.grad, lambda new: setattr(parameter, "grad", new)
    else:
        raise Unsupported(f"mutate changes 'value' or 'grad', not '{step['what']}'")
    if how == "none":
        parameter.grad = None
    elif how == "replace":
        replace(_new_values(operations, step, parameter if target is None else target))
    elif target is None:
        return
    elif how == "inplace":
        with torch.no_grad():
            target.copy_(_new_values(operations, step, target))
    elif how == "data":
        target.data = _new_values(operations, step, target)
    else:
        raise Unsupported(f"mutate knows inplace, data, replace and none, not '{how}'")


def _new_values(operations: Operations, step: dict[str, Any], like: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        if "fill" not in step and "from" not in step:
            return like.detach().clone()
        return operations.with_local(like, _new_local_values(operations, step, operations.local(like)))


def _new_local_values(operations: Operations, step: dict[str, Any], like: torch.Tensor) -> torch.Tensor:
    if "fill" in step:
        shape = [size + step.get("grow", 0) for size in like.shape]
        return torch.full(shape, float(step["fill"]), dtype=like.dtype, device=like.device)
    source = operations.context.data.input(step["from"]).to(like.dtype)
    if source.shape == like.shape:
        return source.clone()
    return _own_part(operations, step, source, like)


def _own_part(operations: Operations, step: dict[str, Any], source: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """The data file has the whole tensor, this rank exposes a part of it."""
    model = operations.context.model(step.get("model", "model"))
    parameter = next(p for p in operations.parameters(model) if p.name == step["parameter"])
    exposed = parameter.as_value() if step["what"] == "value" or parameter.gradient is None else parameter.as_gradient()
    flat = source.reshape(-1)
    parts = [flat[offset : offset + part.numel()] for offset, part in pieces(exposed.value, exposed)]
    return torch.cat(parts).reshape(like.shape) if parts else like.new_empty(like.shape)
