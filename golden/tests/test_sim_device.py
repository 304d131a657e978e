"""The simulated accelerator in one process: several devices, and autocast. Programs of their own, since the device stays registered for good."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import unittest

from rank_programs import outputs_of

PACKAGE = os.environ.get("FSDP_CTS_SIM_PACKAGE")


def output_of(program: str, **environment: str) -> list[str]:
    (printed,) = outputs_of(_begun(program), ranks=1, **environment)
    return printed.splitlines()


def _begun(program: str) -> str:
    return f"import sys\nsys.path.insert(0, {PACKAGE!r})\nimport torch, fsdp_sim\n" + textwrap.dedent(program)


def output_of_new_process(program: str, **environment: str) -> list[str]:
    """For what a process reads when it begins."""
    done = subprocess.run(
        [sys.executable, "-c", _begun(program)],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=300,
    )
    if done.returncode:
        raise AssertionError(done.stdout + done.stderr)
    return done.stdout.splitlines()


@unittest.skipUnless(PACKAGE, "the build has made no package fsdp_sim")
class Devices(unittest.TestCase):
    def test_as_many_as_asked_for(self) -> None:
        program = """
            print(torch.sim.device_count())
            for act in (lambda: torch.ones(1, device="sim:2"), lambda: torch.sim.set_device(2), lambda: torch.sim.Stream(2), lambda: torch.ones(1).to("sim:2")):
                try:
                    act()
                except RuntimeError as error:
                    print("invalid device ordinal" in str(error))
        """
        self.assertEqual(output_of(program, FSDP_SIM_DEVICES="2"), ["2"] + ["True"] * 4)

    def test_a_model_over_two_trains_as_on_one(self) -> None:
        program = """
            from torch import nn

            def trained(first, second):
                torch.manual_seed(0)
                a, b = nn.Linear(8, 8).to(first), nn.Linear(8, 8).to(second)
                optimizer = torch.optim.SGD([*a.parameters(), *b.parameters()], lr=0.1)
                x = torch.ones(2, 8).to(first)
                for _ in range(3):
                    b(a(x).relu().to(second)).square().sum().backward()
                    optimizer.step()
                    optimizer.zero_grad()
                return [parameter.detach().cpu() for parameter in [*a.parameters(), *b.parameters()]]

            print(all(map(torch.equal, trained("sim:0", "sim:1"), trained("cpu", "cpu"))))
            print([finding["text"] for finding in fsdp_sim.drain_findings()])
        """
        self.assertEqual(output_of(program), ["True", "[]"])

    def test_operators_with_several_outputs_leave_the_heap_whole(self) -> None:
        program = """
            loss = torch.ops.aten.nll_loss_forward
            for _ in range(60):
                loss(torch.ones(48, 23).to("sim"), torch.zeros(48, dtype=torch.int64).to("sim"), None, 1, -100)
                [bytearray(size) for size in range(1, 4000, 7)]
                [torch.empty(size) for size in range(1, 600)]
            print("whole")
        """
        # With the C library's own checks of its heap, where it has them.
        self.assertEqual(output_of_new_process(program, LD_PRELOAD="libc_malloc_debug.so.0", MALLOC_CHECK_="3"), ["whole"])

    def test_streams_and_memory_are_a_devices_own(self) -> None:
        program = """
            x = torch.ones(64, device="sim:1")
            side = torch.sim.Stream(1)
            torch.sim.synchronize(1)
            with torch.sim.stream(side):
                print(torch.sim.current_stream(1) == side, torch.sim.current_stream(0) == side)
                x.add_(1)
            x.add_(1)
            print([finding["code"] for finding in fsdp_sim.drain_findings()])
            print(torch.sim.memory_allocated(0), torch.sim.memory_allocated(1) > 0)
            torch.sim.synchronize(1)
            try:
                x + torch.ones(64, device="sim:0")
            except RuntimeError as error:
                print(str(error).splitlines()[0][:84])
        """
        said = "Expected all tensors to be on the same device, but found at least two devices, sim:1"
        self.assertEqual(output_of(program), ["True False", "['stream_race']", "0 True", said])


# What each operator that autocast casts gives, on both devices.
_AUTOCAST = """
    from torch import nn
    from torch.nn import functional as F

    torch.manual_seed(0)
    x, w, b, image, kernel = torch.randn(4, 8), torch.randn(6, 8), torch.randn(6), torch.randn(2, 3, 8, 8), torch.randn(4, 3, 3, 3)
    target = torch.randint(6, (4,))
    calls = {
        "linear": lambda d: F.linear(x.to(d), w.to(d), b.to(d)),
        "mm": lambda d: x.to(d) @ w.to(d).t(),
        "conv2d": lambda d: F.conv2d(image.to(d), kernel.to(d)),
        "attention": lambda d: F.scaled_dot_product_attention(*[image[:, :, :4].to(d)] * 3),
        "layer_norm": lambda d: F.layer_norm(x.to(d), (8,)),
        "softmax": lambda d: F.linear(x.to(d), w.to(d)).softmax(-1),
        "cross_entropy": lambda d: F.cross_entropy(F.linear(x.to(d), w.to(d)), target.to(d)),
        "mse_loss": lambda d: F.mse_loss(F.linear(x.to(d), w.to(d)), torch.zeros(4, 6).to(d).bfloat16()),
        "cat": lambda d: torch.cat([F.linear(x.to(d), w.to(d)), torch.ones(1, 6).to(d)]),
        "double": lambda d: F.linear(x.double().to(d), w.double().to(d)),
    }
    for name, call in calls.items():
        with torch.autocast("cpu", dtype=DTYPE):
            expected = call("cpu")
        with torch.autocast("sim", dtype=DTYPE):
            actual = call("sim")
        if actual.dtype != expected.dtype or not torch.equal(actual.cpu(), expected):
            print(name, actual.dtype, expected.dtype)

    def trained(device):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.LayerNorm(32), nn.Linear(32, 6)).to(device)
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
        for _ in range(3):
            with torch.autocast(device, dtype=DTYPE):
                loss = F.cross_entropy(model(x.to(device)), target.to(device))
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        return [loss.detach().cpu(), *[parameter.detach().cpu() for parameter in model.parameters()]]

    print(all(map(torch.equal, trained("sim"), trained("cpu"))), torch.is_autocast_enabled("sim"))
    print([finding["text"] for finding in fsdp_sim.drain_findings()])
"""


@unittest.skipUnless(PACKAGE, "the build has made no package fsdp_sim")
class Autocast(unittest.TestCase):
    def test_values_are_the_cpus(self) -> None:
        for dtype in ("torch.bfloat16", "torch.float16"):
            with self.subTest(dtype):
                self.assertEqual(output_of(_AUTOCAST.replace("DTYPE", dtype)), ["True False", "[]"])


if __name__ == "__main__":
    unittest.main()
