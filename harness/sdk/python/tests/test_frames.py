import socket
import struct
import unittest

from fsdp_cts_sdk.errors import error_report, traceback_of
from fsdp_cts_sdk.frames import MAX_FRAME_BYTES, Channel, ProtocolError, decode, encode


class Frames(unittest.TestCase):
    def setUp(self) -> None:
        ours, self.theirs = socket.socketpair()
        self.channel = Channel(ours)
        self.addCleanup(self.channel.close)
        self.addCleanup(self.theirs.close)

    def test_round_trip_of_several_messages(self) -> None:
        sent = [{"type": "progress", "case": 7, "step": -1, "verb": "rendezvous"}, {"type": "done", "case": 7, "text": "é ✓"}]
        other = Channel(self.theirs)
        for message in sent:
            other.send(message)
        self.assertEqual([self.channel.receive(), self.channel.receive()], sent)

    def test_length_is_little_endian_and_counts_bytes(self) -> None:
        frame = encode({"type": "é"})
        self.assertEqual(frame[:4], struct.pack("<I", len(frame) - 4))
        self.assertEqual(decode(frame[4:]), {"type": "é"})

    def test_errors_quote_bytes_that_are_no_text(self) -> None:
        error = RuntimeError("no name: " + b"\xff".decode(errors="surrogateescape"))
        sent = {"type": "error", "error": error_report(error, "shard"), "traceback": traceback_of(error)}
        with self.assertRaisesRegex(ProtocolError, "is not JSON"):
            encode({"type": "error", "text": str(error)})
        self.assertEqual(decode(encode(sent)[4:])["error"]["message"], "no name: \ufffd")

    def test_closing_between_frames_is_the_end(self) -> None:
        self.theirs.close()
        self.assertIsNone(self.channel.receive())

    def refuse(self, data: bytes, reason: str) -> None:
        self.theirs.sendall(data)
        self.theirs.shutdown(socket.SHUT_WR)
        with self.assertRaisesRegex(ProtocolError, reason):
            self.channel.receive()

    def test_cut_in_a_length(self) -> None:
        self.refuse(b"\x05\x00", "inside a length, after 2 of 4")

    def test_cut_in_a_frame(self) -> None:
        self.refuse(struct.pack("<I", 10) + b"{}", "inside a frame, after 2 of 10")

    def test_oversize_announced(self) -> None:
        self.refuse(struct.pack("<I", MAX_FRAME_BYTES + 1), "announces 16777217 bytes")

    def test_not_json(self) -> None:
        self.refuse(struct.pack("<I", 3) + b"{,}", "not UTF-8 JSON")

    def test_not_utf8(self) -> None:
        self.refuse(struct.pack("<I", 2) + b"\xff\xfe", "not UTF-8 JSON")

    def test_not_an_object(self) -> None:
        self.refuse(struct.pack("<I", 2) + b"[]", "expected an object")

    def test_without_a_type(self) -> None:
        self.refuse(struct.pack("<I", 9) + b'{"case":1', "")
        with self.assertRaisesRegex(ProtocolError, "no string under 'type'"):
            decode(b'{"case": 1}')

    def test_what_may_not_be_sent(self) -> None:
        with self.assertRaisesRegex(ProtocolError, "is not JSON"):
            encode({"type": "x", "value": float("nan")})
        with self.assertRaisesRegex(ProtocolError, "at most"):
            encode({"type": "x", "value": "x" * MAX_FRAME_BYTES})
        with self.assertRaisesRegex(ProtocolError, "needs a string under 'type'"):
            encode({"case": 1})


if __name__ == "__main__":
    unittest.main()
