"""The smallest testee: one rank, nothing sharded. Everything is the SDK's default."""

import sys

from fsdp_cts_sdk import Identity, Operations, serve


class Plain(Operations):
    def identity(self) -> Identity:
        return Identity("plain", "1", [])

    def unsupported(self, case: dict) -> str | None:
        return "this testee shards nothing" if case["plans"] else None


if __name__ == "__main__":
    sys.exit(serve(Plain()))
