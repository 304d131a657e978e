"""A golden store as it lies on disk: index/<scenario>.json, blobs/<2 hex>/<sha256>.{safetensors,json}, MANIFEST.json."""

from __future__ import annotations

import json
import math
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# safetensors dtype -> (bytes per element, struct code; bfloat16 is the upper half of a float32)
_DTYPES = {
    "F64": (8, "d"), "F32": (4, "f"), "F16": (2, "e"), "BF16": (2, None),
    "I64": (8, "q"), "I32": (4, "i"), "I16": (2, "h"), "I8": (1, "b"), "U8": (1, "B"), "BOOL": (1, "?"),
}  # fmt: skip


@dataclass(frozen=True)
class Tensor:
    dtype: str
    shape: tuple[int, ...]
    data: bytes

    def values(self) -> tuple[float, ...]:
        size, code = _DTYPES[self.dtype]
        count = len(self.data) // size
        if code is not None:
            return struct.unpack(f"<{count}{code}", self.data)
        widened = b"".join(b"\0\0" + self.data[i : i + 2] for i in range(0, len(self.data), 2))
        return struct.unpack(f"<{count}f", widened)


class Store:
    def __init__(self, root: Path) -> None:
        self.root = root
        self.cases: dict[str, dict[str, Any]] = {}
        for file in sorted((root / "index").rglob("*.json")):
            self.cases |= json.loads(file.read_text())["cases"]

    def _blob(self, case: str, part: str) -> bytes:
        name: str = self.cases[case][part]["file"]
        return (self.root / "blobs" / name[:2] / name).read_bytes()

    def directory(self, case: str) -> dict[str, Any]:
        """Facts, and which tensors are absent."""
        return json.loads(self._blob(case, "directory"))

    def tensors(self, case: str) -> dict[str, Tensor]:
        bytes_ = self._blob(case, "tensors")
        (length,) = struct.unpack_from("<Q", bytes_)
        header = json.loads(bytes_[8 : 8 + length])
        header.pop("__metadata__", None)
        data = bytes_[8 + length :]
        return {
            name: Tensor(entry["dtype"], tuple(entry["shape"]), data[slice(*entry["data_offsets"])]) for name, entry in header.items()
        }


@dataclass(frozen=True)
class Drift:
    case: str
    what: str  # one line for a person


def compare(stored: Store, fresh: Store, case: str) -> Drift | None:
    """The first difference between two recordings of a case, which were made with the same kernels."""
    if case not in stored.cases:
        return Drift(case, "is not in the store; record it")
    before, now = stored.cases[case], fresh.cases[case]
    if before["fingerprint"] != now["fingerprint"]:
        return Drift(case, "has changed since it was recorded (models, plans, program or data); record it again")
    if before["directory"] != now["directory"]:
        return Drift(case, "facts or absent gradients differ: " + _first_difference(stored.directory(case), fresh.directory(case)))
    if before["tensors"] == now["tensors"]:
        return None
    old, new = stored.tensors(case), fresh.tensors(case)
    if old.keys() != new.keys():
        return Drift(case, f"other tensors: {', '.join(sorted(old.keys() ^ new.keys())[:3])}")
    for name in old:
        if text := _tensor_difference(old[name], new[name]):
            return Drift(case, f"{name}: {text}")
    return None


def _tensor_difference(old: Tensor, new: Tensor) -> str | None:
    if (old.dtype, old.shape) != (new.dtype, new.shape):
        return f"{old.dtype}{list(old.shape)} has become {new.dtype}{list(new.shape)}"
    if old.data == new.data:
        return None
    different = [(i, a, b) for i, (a, b) in enumerate(zip(old.values(), new.values())) if a != b and not (math.isnan(a) and math.isnan(b))]
    if not different:
        return "the same values in other bits"
    index, a, b = max(different, key=lambda each: abs(each[1] - each[2]))
    return f"{len(different)} of {math.prod(old.shape)} elements differ, most at {index}: stored {a!r}, now {b!r}"


def _first_difference(before: Any, now: Any, path: str = "") -> str:
    if isinstance(before, dict) and isinstance(now, dict):
        for key in sorted(before.keys() | now.keys()):
            if before.get(key) != now.get(key):
                return _first_difference(before.get(key), now.get(key), f"{path}/{key}")
    if isinstance(before, list) and isinstance(now, list) and len(before) == len(now):
        for i, (a, b) in enumerate(zip(before, now)):
            if a != b:
                return _first_difference(a, b, f"{path}/{i}")
    return f"{path or '/'}: stored {json.dumps(before)[:200]}, now {json.dumps(now)[:200]}"
