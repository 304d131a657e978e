"""dtype names as the protocol and safetensors spell them."""

from __future__ import annotations

import torch

# protocol name -> (torch dtype, safetensors name)
_TABLE: dict[str, tuple[torch.dtype, str]] = {
    "float64": (torch.float64, "F64"),
    "float32": (torch.float32, "F32"),
    "float16": (torch.float16, "F16"),
    "bfloat16": (torch.bfloat16, "BF16"),
    "int64": (torch.int64, "I64"),
    "int32": (torch.int32, "I32"),
    "int16": (torch.int16, "I16"),
    "int8": (torch.int8, "I8"),
    "uint8": (torch.uint8, "U8"),
    "bool": (torch.bool, "BOOL"),
}
_NAMES = {dtype: name for name, (dtype, _) in _TABLE.items()}
SAFETENSORS_NAMES = {dtype: stored for dtype, stored in _TABLE.values()}


def dtype_from_name(name: str) -> torch.dtype:
    if name not in _TABLE:
        raise ValueError(f"unknown dtype '{name}'; known are {', '.join(_TABLE)}")
    return _TABLE[name][0]


def optional_dtype(name: str | None) -> torch.dtype | None:
    return None if name is None else dtype_from_name(name)


def dtype_name(dtype: torch.dtype) -> str:
    if dtype not in _NAMES:
        raise ValueError(f"{dtype} has no name in the protocol; known are {', '.join(_TABLE)}")
    return _NAMES[dtype]


def optional_dtype_name(dtype: torch.dtype | None) -> str | None:
    return None if dtype is None else dtype_name(dtype)
