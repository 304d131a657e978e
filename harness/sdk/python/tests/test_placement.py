import itertools
import unittest

import torch

from fsdp_cts_sdk.observer import _item
from fsdp_cts_sdk.operations import pieces
from fsdp_cts_sdk.placement import Exposed, flat, rows, whole


class Placements(unittest.TestCase):
    def reassemble(self, shape: tuple[int, ...], exposed: list[Exposed]) -> torch.Tensor:
        back = torch.full(shape, -1.0).reshape(-1)
        for item in exposed:
            for offset, elements in pieces(item.value, item):
                back[offset : offset + elements.numel()] = elements
        return back.reshape(shape)

    def test_slices_of_every_dimension_make_the_whole_again(self) -> None:
        shape = (4, 3, 6)
        tensor = torch.arange(72.0).reshape(shape)
        for dim, parts in itertools.product(range(3), (1, 2, 3)):
            chunks, first, exposed = tensor.chunk(parts, dim), 0, []
            for chunk in chunks:
                exposed.append(Exposed("t", chunk, rows(shape, dim, first, chunk.size(dim))))
                first += chunk.size(dim)
            self.assertTrue(torch.equal(self.reassemble(shape, exposed), tensor), f"dim {dim}, {parts} parts")

    def test_flat_stretches(self) -> None:
        tensor = torch.arange(10.0).reshape(5, 2)
        cut = [Exposed("t", tensor.reshape(-1)[:7], flat((5, 2), 0, 7)), Exposed("t", tensor.reshape(-1)[7:], flat((5, 2), 7, 3))]
        self.assertTrue(torch.equal(self.reassemble((5, 2), cut), tensor))

    def test_columns_of_a_whole_are_said_not_to_be_contiguous(self) -> None:
        whole_tensor = torch.arange(6.0).reshape(2, 3)
        for columns, said in ((whole_tensor[:, 1:], {False}), (whole_tensor[:, 1:].contiguous(), set())):
            item = _item("p", Exposed("p", columns, rows((2, 3), 1, 1, 2)), {})
            self.assertEqual({item["contiguous"]} if "contiguous" in item else set(), said)

    def test_nothing_and_everything(self) -> None:
        self.assertEqual(rows((5, 2), 0, 5, 0).extents, ())
        self.assertEqual(flat((5, 2), 0, 0).extents, ())
        self.assertFalse(whole(()).sharded)
        self.assertEqual([e.length for e in whole(()).extents], [1])


if __name__ == "__main__":
    unittest.main()
