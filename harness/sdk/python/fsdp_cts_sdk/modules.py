"""From a resolved module description to real torch.nn modules: conformance/LANGUAGE.md, section 3."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Any

from torch import nn

from fsdp_cts_sdk.errors import Unsupported
from fsdp_cts_sdk.graph import Graph, submodule
from fsdp_cts_sdk.recorder import Recorder

Description = dict[str, Any]
Children = list[tuple[str, nn.Module]]


def _attention(cls: type, d: Description, children: Children, recorder: Recorder) -> nn.Module:
    return cls(d["dim"], d["heads"], dropout=d.get("dropout", 0.0))


def _container(cls: type, d: Description, children: Children, recorder: Recorder) -> nn.Module:
    return cls([module for _, module in children]) if issubclass(cls, nn.ModuleList) else cls(OrderedDict(children))


def _graph(cls: type, d: Description, children: Children, recorder: Recorder) -> nn.Module:
    graph = cls(d, recorder)
    for name, child in children:
        graph.add_module(name, child)
    for alias, owner in d.get("tie", ()):
        owner_path, _, owner_name = owner.rpartition(".")
        alias_path, _, alias_name = alias.rpartition(".")
        setattr(submodule(graph, alias_path), alias_name, getattr(submodule(graph, owner_path), owner_name))
    return graph


Maker = Callable[[type, Description, Children, Recorder], nn.Module]

# type -> (torch class, how to make it)
TYPES: dict[str, tuple[type[nn.Module], Maker]] = {
    "Linear": (nn.Linear, lambda cls, d, *_: cls(d["in"], d["out"], bias=d.get("bias", True))),
    "Conv2d": (nn.Conv2d, lambda cls, d, *_: cls(d["in"], d["out"], d["kernel"])),
    "Embedding": (nn.Embedding, lambda cls, d, *_: cls(d["num"], d["dim"])),
    "LayerNorm": (nn.LayerNorm, lambda cls, d, *_: cls(d["dim"])),
    "BatchNorm1d": (nn.BatchNorm1d, lambda cls, d, *_: cls(d["features"])),
    "BatchNorm2d": (nn.BatchNorm2d, lambda cls, d, *_: cls(d["features"])),
    "BatchNorm3d": (nn.BatchNorm3d, lambda cls, d, *_: cls(d["features"])),
    "SyncBatchNorm": (nn.SyncBatchNorm, lambda cls, d, *_: cls(d["features"])),
    "MultiheadAttention": (nn.MultiheadAttention, _attention),
    "ReLU": (nn.ReLU, lambda cls, *_: cls()),
    "Identity": (nn.Identity, lambda cls, *_: cls()),
    "Dropout": (nn.Dropout, lambda cls, d, *_: cls(d["p"])),
    "Sequential": (nn.Sequential, _container),
    "ModuleList": (nn.ModuleList, _container),
    "ModuleDict": (nn.ModuleDict, _container),
    "Graph": (Graph, _graph),
}

_classes: dict[tuple[str, str], type[nn.Module]] = {}


def nominal_class(type_name: str, label: str) -> type[nn.Module]:
    """The Python class of modules with this type and class label, one per pair for the life of the process. A label equal to the type is
    the torch class itself, so that rules about torch's own classes apply; any other is a subclass, so that wrap policies can name it."""
    if type_name not in TYPES:
        raise Unsupported(f"no module type '{type_name}'; known are {', '.join(TYPES)}")
    base, _ = TYPES[type_name]
    if label == type_name:
        return base
    key = (type_name, label)
    if key not in _classes:
        _classes[key] = type(label, (base,), {"__module__": __name__})
    return _classes[key]


def classes_labelled(label: str) -> set[type[nn.Module]]:
    """Every class that a module with this label can have so far: what a wrap policy means by the label."""
    found = {cls for (_, known), cls in _classes.items() if known == label}
    return found | ({TYPES[label][0]} if label in TYPES else set())


def class_label(module: nn.Module) -> str:
    """The label a module was built with; a class put on top of it by an FSDP library does not count."""
    ours = set(_classes.values()) | {base for base, _ in TYPES.values()}
    return next((cls.__name__ for cls in type(module).__mro__ if cls in ours), type(module).__name__)


def build_module(description: Description, recorder: Recorder) -> nn.Module:
    """The module tree, float32, on the current default device. Values are torch's own initial ones: the caller sets them."""
    type_name = description["type"]
    cls = nominal_class(type_name, description.get("class", type_name))
    children = [(name, build_module(child, recorder)) for name, child in description.get("children", ())]
    return TYPES[type_name][1](cls, description, children, recorder)


def types_in(description: Description) -> Iterator[str]:
    yield description["type"]
    for _, child in description.get("children", ()):
        yield from types_in(child)
