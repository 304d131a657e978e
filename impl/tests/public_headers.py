#!/usr/bin/env python3
"""Public headers may include only each other, the standard library and LibTorch; fsdp/fsdp.hpp includes them all.

usage: public_headers.py FOLDER     the folder that users have on their include path
"""

import re
import sys
from pathlib import Path

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.MULTILINE)
STANDARD = re.compile(r"[a-z_0-9]+")  # no folder, no suffix
LIBTORCH = ("ATen/", "c10/", "torch/")
UMBRELLA = "fsdp/fsdp.hpp"


def faults(root: Path) -> list[str]:
    headers = {path.relative_to(root).as_posix(): path.read_text() for path in sorted(root.rglob("*.hpp"))}
    found = [] if headers else [f"there are no headers in {root}"]
    for name, text in headers.items():
        if not text.startswith("#pragma once\n"):
            found.append(f"{name}: its first line is not #pragma once")
        for mark, included in INCLUDE.findall(text):
            if mark == '"':
                allowed = included in headers
            else:
                allowed = STANDARD.fullmatch(included) or included.startswith(LIBTORCH)
            if not allowed:
                found.append(f"{name}: {included} is no public header, nor of the standard library or LibTorch")
    gathered = {included for _, included in INCLUDE.findall(headers.get(UMBRELLA, ""))}
    found += [f"{UMBRELLA} does not include {name}" for name in sorted(set(headers) - gathered - {UMBRELLA})]
    return found


def main() -> int:
    found = faults(Path(sys.argv[1]))
    for fault in found:
        print(fault, file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
