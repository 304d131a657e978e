"""`python golden/pytorch_testee`: one rank of real PyTorch, speaking the testee protocol."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytorch_testee.testee import PyTorchTestee

GOLDEN = Path(__file__).resolve().parents[1]
sys.path[0:1] = [str(GOLDEN), str(GOLDEN.parent / "harness" / "sdk" / "python")]


def main() -> int:
    parser = argparse.ArgumentParser(prog="pytorch_testee", description="Real PyTorch FSDP as a testee; started by fsdp-cts, one process per rank.")
    parser.add_argument("--backend", help="backend of torch.distributed, or shm: the suite's own (default: gloo, on CUDA nccl)")
    parser.add_argument("--c10d-module", type=Path, help="what --backend shm is made of")
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda", "sim"], help="where models live (default: cpu)")
    parser.add_argument("--sim-package", type=Path, help="folder of the package fsdp_sim, for --device sim")
    parser.add_argument("--without-wait", metavar="FILE:LINE[+FILE:LINE…]", help="with --device sim: PyTorch's FSDP as if these lines did not wait")
    arguments = parser.parse_args()

    if arguments.backend is None:
        arguments.backend = "nccl" if arguments.device == "cuda" else "gloo"
    if arguments.without_wait and arguments.device != "sim":
        parser.error("--without-wait needs --device sim")

    from fsdp_cts_sdk import serve
    from fsdp_cts_sdk.fork_server import serve_forks
    from pytorch_testee.shm_backend import NotThere

    # All that takes time to import, what PyTorch itself puts off until the first module runs included: once, and not in every rank.
    import torch._dynamo
    import torch.distributed.checkpoint.state_dict

    from pytorch_testee import testee as _

    serve_forks()
    try:
        testee = _testee(arguments)
    except NotThere as reason:
        print(f"pytorch_testee: {reason}", file=sys.stderr)
        return 2
    return serve(testee)


def _testee(arguments: argparse.Namespace) -> PyTorchTestee:
    import torch

    from pytorch_testee import shm_backend
    from pytorch_testee.testee import PyTorchTestee

    over_shm = arguments.backend == "shm"
    if arguments.device == "sim":
        from pytorch_testee import simulation

        device = simulation.begin(arguments.sim_package, arguments.without_wait)
        if over_shm:
            simulation.carry_collectives_by(shm_backend.register(arguments.c10d_module, torch.device("cpu")))
        return simulation.SimulatedTestee(arguments.backend, device)
    device = torch.device(arguments.device)
    if device.type == "cuda":
        device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")) % torch.cuda.device_count())
        torch.cuda.set_device(device)
    if over_shm:
        shm_backend.register(arguments.c10d_module, device)
    return PyTorchTestee(arguments.backend, device)


if __name__ == "__main__":
    status = main()
    # Everything of a case is gone by now; taking PyTorch itself down would cost every rank a part of a second.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)
