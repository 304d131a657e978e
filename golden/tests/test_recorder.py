"""golden/record and golden/check, with a stand-in for the command line that "records" a store prepared beforehand."""

import hashlib
import json
import shutil
import stat
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import torch

from fsdp_cts_sdk.tensor_file import write_tensors

GOLDEN = Path(__file__).resolve().parents[1]
MAKER = {"name": "pytorch", "version": "2.11.0", "torch_git": "70d99e9", "cpu_capability": "AVX2"}


def add_blob(root: Path, content: bytes, extension: str) -> dict[str, str | int]:
    name = hashlib.sha256(content).hexdigest() + extension
    (root / "blobs" / name[:2]).mkdir(parents=True, exist_ok=True)
    (root / "blobs" / name[:2] / name).write_bytes(content)
    return {"file": name, "bytes": len(content)}


def make_store(root: Path, values: dict[str, torch.Tensor], recorded: str = "float16", method: str = "method", **maker: str) -> None:
    """One case. Of a store that is there it becomes another."""
    root.mkdir(parents=True, exist_ok=True)
    write_tensors(root / "tensors", values)
    facts = {"none": [], "facts": [{"step": 1, "value": {"recorded": recorded}}]}
    entry = {
        "fingerprint": "f",
        "made_by": {**MAKER, **maker},
        "tensors": add_blob(root, (root / "tensors").read_bytes(), ".safetensors"),
        "directory": add_blob(root, json.dumps(facts).encode(), ".json"),
    }
    index = root / "index" / "SEED" / "Class" / f"{method}.json"
    index.parent.mkdir(parents=True, exist_ok=True)
    index.write_text(json.dumps({"scenario": f"SEED/Class/{method}", "cases": {f"SEED/Class/{method}[world=2]": entry}}))


class Scripts(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name)
        self.store, self.fresh = self.root / "store", self.root / "fresh"
        self.program = self.root / "fsdp-cts"
        self.log = self.root / "arguments"
        self.cli_ends_with(0)

    def cli_ends_with(self, recording: int, judging: int = 0) -> None:
        self.program.write_text(
            f"#!{sys.executable}\nimport shutil, sys\nopen({str(self.log)!r}, 'a').write(' '.join(sys.argv[1:]) + chr(10))\n"
            f"if '--record' not in sys.argv: sys.exit({judging})\n"
            f"shutil.copytree({str(self.fresh)!r}, sys.argv[sys.argv.index('--record') + 1], dirs_exist_ok=True)\nsys.exit({recording})\n"
        )
        self.program.chmod(self.program.stat().st_mode | stat.S_IXUSR)

    def script(self, name: str, *arguments: str) -> tuple[int, str]:
        command = [sys.executable, str(GOLDEN / name), "--store", str(self.store), "--cli", str(self.program), *arguments]
        ended = subprocess.run(command, capture_output=True, text=True)
        return ended.returncode, ended.stdout + ended.stderr

    def compare(self, stored: torch.Tensor, now: torch.Tensor, **maker: str) -> tuple[int, str]:
        make_store(self.store, {"4/parameters/model/weight": stored})
        make_store(self.fresh, {"4/parameters/model/weight": now}, **maker)
        return self.script("check")

    def test_no_drift(self) -> None:
        status, text = self.compare(torch.ones(3), torch.ones(3))
        self.assertEqual((status, "1 cases recorded again, 0 drifted" in text), (0, True), text)
        self.assertIn("run --quick --testee pytorch --record", (self.root / "arguments").read_text())

    def test_a_changed_bit_is_drift(self) -> None:
        for dtype in (torch.float32, torch.bfloat16, torch.float16, torch.float64, torch.int64):
            with self.subTest(dtype):
                shutil.rmtree(self.store, ignore_errors=True), shutil.rmtree(self.fresh, ignore_errors=True)
                before = torch.tensor([1, 2, 3]).to(dtype)
                now = before.clone()
                now[2] = 4
                status, text = self.compare(before, now)
                self.assertEqual(status, 1, text)
                self.assertRegex(text, r"4/parameters/model/weight: 1 of 3 elements differ, most at 2: stored 3(\.0)?, now 4(\.0)?")

    def test_other_shapes_and_signs_are_drift(self) -> None:
        self.assertRegex(self.compare(torch.zeros(3), torch.zeros(1, 3))[1], r"F32\[3\] has become F32\[1, 3\]")
        shutil.rmtree(self.store), shutil.rmtree(self.fresh)
        self.assertRegex(self.compare(torch.zeros(1), -torch.zeros(1))[1], "the same values in other bits")

    def test_on_another_kind_of_processor_the_suite_judges(self) -> None:
        for verdict in (0, 1):
            with self.subTest(verdict):
                shutil.rmtree(self.store, ignore_errors=True), shutil.rmtree(self.fresh, ignore_errors=True)
                self.cli_ends_with(0, judging=verdict)
                status, text = self.compare(torch.ones(2), torch.ones(2) + 1e-6, cpu_capability="AVX512")
                self.assertEqual((status, "cpu_capability AVX2 -> AVX512" in text), (verdict, True), text)
                self.assertIn(f"run --quick --testee pytorch --golden {self.store}", (self.root / "arguments").read_text())

    def test_of_recordings_from_two_processors_those_from_this_one_are_compared(self) -> None:
        one = torch.ones(2)
        make_store(self.store, {"weight": one}, method="elsewhere", cpu_capability="AVX512"), make_store(self.store, {"weight": one}, method="here")
        for other, drift in (("elsewhere", 0), ("here", 1)):
            with self.subTest(other):
                shutil.rmtree(self.fresh, ignore_errors=True)
                for method in ("elsewhere", "here"):
                    make_store(self.fresh, {"weight": one + 1e-6 if method == other else one}, method=method)
                status, text = self.script("check")
                self.assertEqual((status, f"1 cases recorded again, {drift} drifted" in text), (drift, True), text)
                self.assertIn("1 cases were recorded elsewhere (cpu_capability AVX512 -> AVX2)", text)

    def test_changed_facts_and_cases_are_drift(self) -> None:
        make_store(self.store, {}), make_store(self.fresh, {}, recorded="float32")
        self.assertRegex(self.script("check")[1], '/facts/0/value/recorded: stored "float16", now "float32"')
        shutil.rmtree(self.fresh), make_store(self.fresh, {})
        index = self.fresh / "index/SEED/Class/method.json"
        original = index.read_text()
        index.write_text(original.replace('"f"', '"g"'))
        self.assertRegex(self.script("check")[1], "has changed since it was recorded")
        index.write_text(original.replace("world=2", "world=4"))
        status, text = self.script("check")
        self.assertEqual((status, "is not in the store" in text), (1, True))

    def test_nothing_to_compare_is_no_success(self) -> None:
        self.assertEqual(self.script("check")[0], 2)
        make_store(self.store, {})
        self.fresh.mkdir()
        self.assertEqual(self.script("check")[0], 2)

    def test_recording_everything_replaces_the_store(self) -> None:
        make_store(self.store, {"old": torch.ones(1)}), make_store(self.fresh, {"new": torch.ones(1)})
        (self.store / "index" / "stale.json").write_text("{}")
        self.assertEqual(self.script("record", "--world", "2", "--jobs", "1")[0], 0)
        self.assertFalse((self.store / "index" / "stale.json").exists())
        on_the_cpu, of_gpu_forms = (self.root / "arguments").read_text().splitlines()
        self.assertIn("run --world 2 --jobs 1 --testee pytorch --record", on_the_cpu)
        self.assertIn("run label:gpu --world 2 --jobs 1 --device sim --testee pytorch --record", of_gpu_forms)

    def test_recording_on_one_device_records_on_no_other(self) -> None:
        make_store(self.store, {"old": torch.ones(1)}), make_store(self.fresh, {"new": torch.ones(1)})
        self.assertEqual(self.script("record", "--device", "cuda")[0], 0)
        self.assertEqual(len((self.root / "arguments").read_text().splitlines()), 1)

    def test_recording_a_part_amends_the_store(self) -> None:
        make_store(self.store, {"old": torch.ones(1)}), make_store(self.fresh, {"new": torch.ones(1)})
        (self.store / "index" / "other.json").write_text("{}")
        self.assertEqual(self.script("record", "seed:F2MP")[0], 0)
        self.assertTrue((self.store / "index" / "other.json").exists())
        self.assertIn(f"run seed:F2MP --testee pytorch --record {self.store}", (self.root / "arguments").read_text())

    def test_a_recording_that_went_wrong_leaves_the_store_alone(self) -> None:
        self.program.write_text(self.program.read_text().replace("sys.exit(0)", "sys.exit(1)"))
        make_store(self.store, {"old": torch.ones(1)}), make_store(self.fresh, {"new": torch.ones(1)})
        before = sorted(self.store.rglob("*.safetensors"))
        status, text = self.script("record")
        self.assertEqual((status, sorted(self.store.rglob("*.safetensors"))), (1, before))
        self.assertIn("is as it was", text)

    def test_without_a_program(self) -> None:
        self.program.unlink()
        self.assertEqual(self.script("record")[0], 2)


if __name__ == "__main__":
    unittest.main()
