"""Frames of the control channel: a length, then one JSON object. See harness/protocol/PROTOCOL.md, section 2."""

from __future__ import annotations

import json
import socket
import struct
from typing import Any

MAX_FRAME_BYTES = 16 * 1024 * 1024
_LENGTH = struct.Struct("<I")

Message = dict[str, Any]


class ProtocolError(Exception):
    """The other side broke the contract. There is no way to go on."""


def encode(message: Message) -> bytes:
    """The bytes of one frame. Raises ProtocolError for what may not travel: no type, NaN, more than 16 MiB."""
    if not isinstance(message.get("type"), str):
        raise ProtocolError(f"a message needs a string under 'type': {message!r:.200}")
    try:
        body = json.dumps(message, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()
    except (TypeError, ValueError) as error:
        raise ProtocolError(f"message '{message['type']}' is not JSON: {error}") from error
    if len(body) > MAX_FRAME_BYTES:
        raise ProtocolError(f"message '{message['type']}' has {len(body)} bytes, at most {MAX_FRAME_BYTES} may be sent")
    return _LENGTH.pack(len(body)) + body


def decode(body: bytes) -> Message:
    """The object of one frame's body. Raises ProtocolError for anything else than a JSON object with a type."""
    try:
        message = json.loads(body.decode("utf-8"))
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise ProtocolError(f"a frame of {len(body)} bytes is not UTF-8 JSON: {error}") from error
    if not isinstance(message, dict):
        raise ProtocolError(f"a frame holds a JSON {type(message).__name__}, expected an object")
    if not isinstance(message.get("type"), str):
        raise ProtocolError("a message has no string under 'type'")
    return message


class Channel:
    """A connected stream socket that carries frames both ways."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection

    @classmethod
    def connect(cls, address: str) -> Channel:
        """`address` is the path of a Unix socket, or `host:port`."""
        if "/" in address or ":" not in address:
            connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            connection.connect(address)
        else:
            host, _, port = address.rpartition(":")
            connection = socket.create_connection((host.strip("[]"), int(port)))
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return cls(connection)

    def send(self, message: Message) -> None:
        self._connection.sendall(encode(message))

    def receive(self) -> Message | None:
        """The next message, or None when the other side closed between two frames."""
        head = self._read(_LENGTH.size)
        if not head:
            return None
        if len(head) < _LENGTH.size:
            raise ProtocolError(f"the channel ended inside a length, after {len(head)} of {_LENGTH.size} bytes")
        (length,) = _LENGTH.unpack(head)
        if length > MAX_FRAME_BYTES:
            raise ProtocolError(f"a frame announces {length} bytes, at most {MAX_FRAME_BYTES} are allowed")
        body = self._read(length)
        if len(body) < length:
            raise ProtocolError(f"the channel ended inside a frame, after {len(body)} of {length} bytes")
        return decode(body)

    def close(self) -> None:
        self._connection.close()

    def _read(self, count: int) -> bytes:
        parts: list[bytes] = []
        while count:
            part = self._connection.recv(count)
            if not part:
                break
            parts.append(part)
            count -= len(part)
        return b"".join(parts)
