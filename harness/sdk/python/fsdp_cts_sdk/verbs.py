"""One function per verb: conformance/LANGUAGE.md, section 6. `observe`, scopes and attempts are the interpreter's own."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F

from fsdp_cts_sdk.dtypes import dtype_from_name
from fsdp_cts_sdk.errors import Unsupported
from fsdp_cts_sdk.model import Model, build_model
from fsdp_cts_sdk.mutation import mutate
from fsdp_cts_sdk.operations import Checkpoint
from fsdp_cts_sdk.sleep import sleep
from fsdp_cts_sdk.trace import trace_computation

if TYPE_CHECKING:
    from fsdp_cts_sdk.interpreter import Interpreter

Step = dict[str, Any]


def _model(run: Interpreter, step: Step) -> Model:
    return run.context.model(step.get("model", "model"))


def part_of(run: Interpreter, step: Step) -> Model:
    """The step's model, or what `module` names of it."""
    return _model(run, step).part(step.get("module", ""))


def _restride(run: Interpreter, step: Step) -> None:
    model, name = _model(run, step), step["name"]
    slot = next((slot for slot in (*model.parameter_slots, *model.buffer_slots) if slot.name == name), None)
    if slot is None:
        raise KeyError(f"model '{model.instance}' has no parameter or buffer '{name}'")
    slot.tensor.data = slot.tensor.detach().transpose(-2, -1).contiguous().transpose(-2, -1)


def _build(run: Interpreter, step: Step) -> None:
    case, instance = run.context.case, step["model"]
    # "cpu" stands for the testee's own device; it is where models live unless a case says otherwise.
    named = {"meta": torch.device("meta"), "host": torch.device("cpu")}
    device = named.get(step.get("device", "cpu"), run.operations.device)
    plan = case["plans"].get(instance)
    run.context.models[instance] = build_model(
        instance, case["models"][instance], plan, run.context.data, device, run.context.recorder
    )
    if any(step["verb"] == "meanwhile" or (step["verb"] == "observe" and "trace" in step["what"]) for step in case["program"]):
        trace_computation(run.context.models[instance].module, run.context.trace)


def _values(run: Interpreter, name: str) -> tuple[torch.Tensor, ...]:
    """A register, else an input of the data file."""
    if name in run.context.registers:
        return run.context.registers[name]
    return (run.context.data.input(name),)


def _forward(run: Interpreter, step: Step) -> None:
    inputs = [tensor for name in step["input"] for tensor in _values(run, name)]
    if "chunk" in step:
        index, count = step["chunk"]
        inputs = [tensor.chunk(count)[index] for tensor in inputs]
    if step.get("host", False):
        inputs = [tensor.cpu() for tensor in inputs]
    into = step.get("output", "output")
    for name in into if isinstance(into, list) else [into]:
        run.context.registers.pop(name, None)  # what an earlier forward gave takes no memory beside this one
    with torch.set_grad_enabled(step.get("grad", True) and torch.is_grad_enabled()):
        model, module = _model(run, step), step.get("module", "")
        if "method" in step:
            result = run.operations.call_method(model, module, step["method"], inputs)
        else:
            result = run.operations.forward(model, module, inputs)
    outputs = (result,) if isinstance(result, torch.Tensor) else tuple(result)
    if not isinstance(into, list):  # one name holds them all, as inputs of another module
        run.context.registers[into] = outputs
        return
    if len(outputs) != len(into):
        raise ValueError(f"the module returns {len(outputs)} outputs and the step names {len(into)}")
    for name, output in zip(into, outputs):
        run.context.registers[name] = (output,)


def _loss(run: Interpreter, step: Step) -> None:
    outputs = [run.context.register(name) for name in step.get("of", ["output"])]
    output = sum(outputs[1:], start=outputs[0])
    kind = step["kind"]
    if kind == "sum":
        loss = output.sum()
    elif kind == "dot":
        loss = (output * _values(run, step["with"])[0]).sum()
    elif kind == "mse":
        loss = F.mse_loss(output, _values(run, step["with"])[0])
    elif kind == "cross_entropy":
        target = _values(run, step["with"])[0]
        loss = F.cross_entropy(output.reshape(-1, output.shape[-1]), target.reshape(-1), reduction="sum")
    else:
        raise Unsupported(f"no loss '{kind}'; known are sum, dot, mse, cross_entropy")
    run.context.registers[step.get("into", "loss")] = (loss,)
    sleep(run.delay_after_loss, run.operations.device)


def _leaf(run: Interpreter, step: Step) -> None:
    (tensor,) = _values(run, step["input"])
    run.context.registers[step["into"]] = (tensor.detach().clone().requires_grad_(),)


def _take_gradient(run: Interpreter, step: Step) -> None:
    gradient = run.context.register(step["of"]).grad
    if gradient is None:
        raise ValueError(f"'{step['of']}' has no gradient")
    run.context.registers[step["into"]] = (gradient.detach().clone(),)


def _step_in_backward(run: Interpreter, step: Step) -> None:
    """The optimizer is given the one parameter whose gradient has just come: all others have none by now."""
    instance, optimizer = run.optimizers[step.get("optimizer", "optimizer")]
    model, calls = run.context.model(instance), run.context.gradient_hooks
    calls.setdefault(instance, 0)

    def hook(received: torch.Tensor) -> None:
        calls[instance] += 1
        optimizer.step()
        received.grad = None

    for parameter in run.operations.parameters(model):
        if parameter.requires_grad:
            run.operations.hook_gradient(model, parameter.name, hook)


def _optimizer(run: Interpreter, step: Step) -> None:
    model = _model(run, step)
    name = step.get("as", "optimizer")
    run.optimizers[name] = (model.instance, run.operations.make_optimizer(model, step))


def _backward(run: Interpreter, step: Step) -> None:
    run.operations.backward(run.context.register(step.get("loss", "loss")), step.get("create_graph", False))


def _scaler(run: Interpreter, step: Step) -> None:
    instance, optimizer = run.optimizers[step.get("optimizer", "optimizer")]
    names = ("init_scale", "growth_factor", "backoff_factor", "growth_interval")
    settings = {name: step[name] for name in names if name in step}
    made = run.operations.make_scaler(run.context.model(instance), settings)
    run.scalers[step.get("as", "scaler")] = (made, optimizer)


def _scaler_of(run: Interpreter, step: Step) -> tuple[torch.amp.GradScaler, torch.optim.Optimizer]:
    return run.scalers[step.get("scaler", "scaler")]


def _scale_loss(run: Interpreter, step: Step) -> None:
    scaler, _ = _scaler_of(run, step)
    run.context.registers[step.get("into", "scaled")] = (scaler.scale(run.context.register(step.get("loss", "loss"))),)


def _unscale(run: Interpreter, step: Step) -> None:
    scaler, optimizer = _scaler_of(run, step)
    scaler.unscale_(optimizer)


def _scaler_step(run: Interpreter, step: Step) -> None:
    scaler, optimizer = _scaler_of(run, step)
    scaler.step(optimizer)


def _update_scale(run: Interpreter, step: Step) -> None:
    scaler, _ = _scaler_of(run, step)
    scaler.update()
    run.context.registers[step.get("into", "scale")] = (torch.tensor(scaler.get_scale()),)


def _zero_grad(run: Interpreter, step: Step) -> None:
    set_to_none = step.get("set_to_none", True)
    if "optimizer" in step:
        run.optimizer(step["optimizer"]).zero_grad(set_to_none)
    else:
        run.operations.zero_grad(_model(run, step), set_to_none)


def _set_requires_grad(run: Interpreter, step: Step) -> None:
    model, match = _model(run, step), re.compile(step.get("match", ""))
    for slot in model.parameter_slots:
        if match.search(slot.name):
            run.operations.set_requires_grad(model, slot.name, step["value"])


def _state_dict(run: Interpreter, step: Step) -> None:
    model = part_of(run, step)
    if "rank0_only" in step or "offload_to_cpu" in step:
        state = run.operations.full_state_dict(model, step.get("rank0_only", False), step.get("offload_to_cpu", False))
    else:
        state = run.operations.state_dict(model, step.get("kind", "full"))
    run.state_dicts[step["as"]] = state
    run.observer.remember_state_dict(step["as"], model.instance, state.items)


def _load_state_dict(run: Interpreter, step: Step) -> None:
    load = run.operations.broadcast_state_dict if step.get("broadcast_from_rank0", False) else run.operations.load_state_dict
    load(part_of(run, step), run.state_dicts[step["from"]])


def _optimizer_state_dict(run: Interpreter, step: Step) -> None:
    instance, optimizer = run.optimizers[step.get("optimizer", "optimizer")]
    model = run.context.model(instance)
    state = run.operations.optimizer_state_dict(model, optimizer, step.get("kind", "full"))
    run.state_dicts[step["as"]] = state
    run.observer.remember_state_dict(step["as"], instance, state.items)


def _load_optimizer_state_dict(run: Interpreter, step: Step) -> None:
    instance, optimizer = run.optimizers[step.get("optimizer", "optimizer")]
    run.operations.load_optimizer_state_dict(run.context.model(instance), optimizer, run.state_dicts[step["from"]])


def _checkpoint(run: Interpreter, step: Step, which: str) -> Checkpoint:
    optimizer = run.optimizer(step["optimizer"]) if "optimizer" in step else None
    return Checkpoint(step["format"], run.context.case["checkpoints"][which], _model(run, step), optimizer)


def _foreach_mul(run: Interpreter, step: Step) -> None:
    """One operation over all copies; the result is what became of them, flattened, one behind the other."""
    tensors = [_values(run, name)[0].clone() for _ in range(step.get("copies", 1)) for name in step["of"]]
    torch._foreach_mul_(tensors, step["by"])
    run.context.registers[step.get("into", "product")] = (torch.cat([tensor.flatten() for tensor in tensors]),)


def _clip_grad_norm(run: Interpreter, step: Step) -> None:
    norm = run.operations.clip_grad_norm(part_of(run, step), step["max_norm"], float(step.get("norm_type", 2.0)))
    run.context.registers[step.get("into", "norm")] = (norm,)


def _delay(run: Interpreter, step: Step) -> None:
    seconds, at = step["milliseconds"] / 1000, step.get("at", "now")
    if at == "now":
        sleep(seconds, run.operations.device)
    elif at == "after_loss":
        run.delay_after_loss = seconds
    else:
        run.operations.delay(seconds, at)


def _control(run: Interpreter, step: Step) -> None:
    run.operations.control(_model(run, step), step)


Verb = Callable[["Interpreter", Step], None]

CONTROLS = (
    "set_requires_gradient_sync",
    "set_requires_all_reduce",
    "set_reshard_after_backward",
    "set_reshard_after_forward",
    "set_is_last_backward",
    "set_unshard_in_backward",
    "set_unshard_async_op",
    "set_gradient_divide_factor",
    "set_force_sum_reduction_for_comms",
    "set_all_reduce_hook",
    "set_post_optim_event",
    "unshard",
    "wait_unshard",
    "reshard",
    "set_forward_prefetch",
    "set_backward_prefetch",
)

# verb -> (phase it belongs to, what it does)
VERBS: dict[str, tuple[str, Verb]] = {
    "build": ("construction", _build),
    "move": ("construction", lambda run, step: run.operations.move(_model(run, step))),
    "cast": ("other", lambda run, step: run.operations.cast(_model(run, step), dtype_from_name(step["dtype"]), step.get("match"))),
    "materialize": ("construction", lambda run, step: run.operations.materialize(_model(run, step))),
    "shard": ("construction", lambda run, step: run.operations.shard(_model(run, step))),
    "compile": ("construction", lambda run, step: run.operations.compile(_model(run, step), step)),
    "optimizer": ("optimizer", _optimizer),
    "zero_grad": ("optimizer", _zero_grad),
    "forward": ("forward", _forward),
    "loss": ("forward", _loss),
    "backward": ("backward", _backward),
    "register_forward_method": (
        "other",
        lambda run, step: run.operations.register_forward_method(_model(run, step), step.get("module", ""), step["method"]),
    ),
    "scaler": ("construction", _scaler),
    "scale_loss": ("forward", _scale_loss),
    "unscale": ("optimizer", _unscale),
    "scaler_step": ("optimizer", _scaler_step),
    "update_scale": ("optimizer", _update_scale),
    "leaf": ("other", _leaf),
    "take_gradient": ("other", _take_gradient),
    "step_in_backward": ("optimizer", _step_in_backward),
    "register_comm_hook": ("other", lambda run, step: run.operations.control(part_of(run, step), step)),
    "step": ("optimizer", lambda run, step: run.optimizer(step.get("optimizer", "optimizer")).step()),
    "mode": ("other", lambda run, step: run.operations.set_training(part_of(run, step), step["mode"] == "train")),
    "meanwhile": ("other", lambda run, step: run.meanwhile.append(step)),
    "mutate": ("other", lambda run, step: mutate(run.operations, step)),
    "set_requires_grad": ("other", _set_requires_grad),
    "set_buffer": ("other", lambda run, step: run.operations.set_buffer(_model(run, step), step["name"], step["dtype"])),
    "restride": ("other", _restride),
    "state_dict": ("state_dict", _state_dict),
    "load_state_dict": ("state_dict", _load_state_dict),
    "optimizer_state_dict": ("state_dict", _optimizer_state_dict),
    "load_optimizer_state_dict": ("state_dict", _load_optimizer_state_dict),
    "save_checkpoint": ("state_dict", lambda run, step: run.operations.save_checkpoint(_checkpoint(run, step, "save"))),
    "load_checkpoint": ("state_dict", lambda run, step: run.operations.load_checkpoint(_checkpoint(run, step, "load"))),
    "zero_parameters": ("summon", lambda run, step: run.operations.zero_parameters(_model(run, step))),
    "foreach_mul": ("other", _foreach_mul),
    "clip_grad_norm": ("optimizer", _clip_grad_norm),
    "delay": ("other", _delay),
    "end_process": ("other", lambda run, step: os.kill(os.getpid(), signal.SIGKILL)),
    **{verb: ("other", _control) for verb in CONTROLS},
}
