"""The suite's command line, which does the recording."""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
STORE = ROOT / "golden" / "store"
OWN_STORE = ROOT / "out" / "golden-here"  # of `record --here`; `fsdp-cts run --golden here` knows it by that name
PASSED_ON = ("world", "jobs", "backend", "device", "report")


class NotBuilt(Exception):
    pass


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What both scripts take."""
    parser.add_argument("filters", nargs="*", metavar="FILTER", help="globs over case ids, or seed:F2MP, lane:exact, world:2")
    parser.add_argument("--store", type=Path, default=STORE, help="the golden store (default: golden/store)")
    parser.add_argument("--cli", help="the fsdp-cts program (default: FSDP_CTS_CLI, else build/release, else PATH)")
    for option in PASSED_ON:
        parser.add_argument(f"--{option}", help="as for `fsdp-cts run`")


def passed_on(arguments: argparse.Namespace) -> list[str]:
    """Filters and options as `fsdp-cts run` takes them."""
    given = [(option, getattr(arguments, option)) for option in PASSED_ON]
    return [*arguments.filters, *(word for option, value in given if value is not None for word in (f"--{option}", value))]


def gpu_forms(arguments: argparse.Namespace) -> list[str]:
    """The same for what needs an accelerator: the simulated one, whose kernels are the CPU's."""
    return passed_on(argparse.Namespace(**{**vars(arguments), "filters": ["label:gpu"], "device": "sim", "report": None}))


def find_program(asked: str | None) -> str:
    """--cli, else FSDP_CTS_CLI, else the release build, else what is on PATH."""
    chosen = asked or os.environ.get("FSDP_CTS_CLI")
    if chosen:
        if not shutil.which(chosen):
            raise NotBuilt(f"{chosen} is no program")
        return chosen
    built = ROOT / "build" / "release" / "bin" / "fsdp-cts"
    found = str(built) if built.exists() else shutil.which("fsdp-cts")
    if not found:
        raise NotBuilt("fsdp-cts is not built; run ci/build, or name the program with --cli or FSDP_CTS_CLI")
    return found


def record(program: str, store: Path, arguments: list[str]) -> int:
    """Records PyTorch into `store`; the exit status of `fsdp-cts run`."""
    command = [program, "run", *arguments, "--testee", "pytorch", "--record", str(store)]
    return subprocess.run(command, check=False).returncode


def judge(program: str, store: Path, arguments: list[str]) -> int:
    """Judges PyTorch by `store`; the exit status of `fsdp-cts run`."""
    return subprocess.run([program, "run", *arguments, "--testee", "pytorch", "--golden", str(store)], check=False).returncode
