import tempfile
import unittest
from pathlib import Path

import torch
from safetensors.torch import load_file

from fsdp_cts_sdk.dtypes import SAFETENSORS_NAMES
from fsdp_cts_sdk.tensor_file import read_tensors, write_tensors


class TensorFiles(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.file = Path(folder.name) / "answer.safetensors"

    def test_the_safetensors_package_reads_every_dtype_back(self) -> None:
        tensors = {str(dtype): torch.arange(6).reshape(2, 3).to(dtype) for dtype in SAFETENSORS_NAMES}
        write_tensors(self.file, tensors)
        back = load_file(self.file)
        self.assertEqual(set(back), set(tensors))
        for name, tensor in tensors.items():
            self.assertEqual(back[name].dtype, tensor.dtype)
            self.assertTrue(torch.equal(back[name], tensor), name)

    def test_shapes_that_are_easily_lost(self) -> None:
        tensors = {
            "scalar": torch.tensor(3.5),
            "empty": torch.empty(0, 4),
            "strided": torch.arange(12.0).reshape(3, 4)[:, 1:3],
            "transposed": torch.arange(6.0).reshape(2, 3).t(),
            "of a graph": torch.ones(2, requires_grad=True) * 2,
        }
        write_tensors(self.file, tensors)
        for name, tensor in read_tensors(self.file).items():
            self.assertTrue(torch.equal(tensor, tensors[name]), name)

    def test_equal_contents_have_equal_bytes(self) -> None:
        first, second = torch.ones(3), torch.zeros(2, dtype=torch.bfloat16)
        write_tensors(self.file, {"a": first, "b": second})
        once = self.file.read_bytes()
        write_tensors(self.file, {"b": second, "a": first})
        self.assertEqual(self.file.read_bytes(), once)

    def test_a_written_tensor_can_still_be_resized(self) -> None:
        tensor = torch.ones(4)
        write_tensors(self.file, {"t": tensor})
        tensor.untyped_storage().resize_(0)

    def test_bits_survive(self) -> None:
        odd = torch.tensor([float("nan"), -0.0, float("inf"), 1e-45])
        write_tensors(self.file, {"odd": odd})
        self.assertTrue(torch.equal(read_tensors(self.file)["odd"].view(torch.int32), odd.view(torch.int32)))


if __name__ == "__main__":
    unittest.main()
