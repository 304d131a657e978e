"""SDK for testees written in Python: implement Operations, call serve. The contract is harness/protocol/PROTOCOL.md."""

from fsdp_cts_sdk.context import Context
from fsdp_cts_sdk.errors import InstrumentBlind, Unsupported
from fsdp_cts_sdk.model import Model
from fsdp_cts_sdk.operations import Checkpoint, Identity, Operations, StateDict
from fsdp_cts_sdk.placement import Exposed, Parameter, Placement, flat, rows, whole
from fsdp_cts_sdk.serve import serve

__all__ = [
    "Checkpoint",
    "Context",
    "Exposed",
    "Identity",
    "InstrumentBlind",
    "Model",
    "Operations",
    "Parameter",
    "Placement",
    "StateDict",
    "Unsupported",
    "flat",
    "rows",
    "serve",
    "whole",
]
