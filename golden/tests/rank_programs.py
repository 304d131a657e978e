"""Programs of one rank or two, each rank a process of its own that has PyTorch when it begins: importing it takes longer than any of them."""

from __future__ import annotations

import contextlib
import io
import multiprocessing
import os
import sys
import tempfile
import textwrap
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

GOLDEN = Path(__file__).resolve().parents[1]

_processes = multiprocessing.get_context("forkserver")
_processes.set_forkserver_preload(["torch.distributed.fsdp", "torch.distributed.device_mesh", "torch.distributed.optim"])


def outputs_of(program: str, *arguments: str, ranks: int = 2, **environment: str) -> list[str]:
    """What each rank prints. The program finds the path of a rendezvous file and `arguments` in sys.argv, and RANK and `environment` in its environment: too
    late for what PyTorch reads while it is imported."""
    with tempfile.TemporaryDirectory() as folder, ProcessPoolExecutor(ranks, _processes) as pool:
        environments = [{**environment, "RANK": str(rank), "LOCAL_RANK": str(rank), "GLOO_SOCKET_IFNAME": "lo"} for rank in range(ranks)]
        outputs = [pool.submit(_output_of, textwrap.dedent(program), [f"{folder}/rendezvous", *arguments], each) for each in environments]
        return [output.result(timeout=300) for output in outputs]


def _output_of(program: str, arguments: list[str], environment: dict[str, str]) -> str:
    os.environ.update(environment)
    sys.path[0:0] = [str(GOLDEN), str(GOLDEN.parent / "harness" / "sdk" / "python")]
    sys.argv = ["program", *arguments]
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(compile(program, "program", "exec"), {"__name__": "__main__"})
    return printed.getvalue()
