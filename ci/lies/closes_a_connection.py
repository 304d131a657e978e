"""The false trace, told by a process that opens a connection before each case and closes it in the case: the kernel's count of what it has
sent on it is gone, and a witness who wants to know all that was sent has nothing to say."""

import socket

from false_trace import FalseTrace
from relay import tell


class ClosesAConnection(FalseTrace):
    connection: tuple[socket.socket, socket.socket] | None = None

    def from_runner(self, message: dict) -> dict | None:
        if self.connection:
            for end in self.connection:
                end.close()
        self.connection = _connection()
        return super().from_runner(message)


def _connection() -> tuple[socket.socket, socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        one = socket.create_connection(server.getsockname())
        return one, server.accept()[0]


if __name__ == "__main__":
    tell(ClosesAConnection)
