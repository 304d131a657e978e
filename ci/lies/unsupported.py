"""Offers nothing at all: every case is answered `unsupported`."""

from relay import Relay, tell


class Unsupported(Relay):
    def from_runner(self, message: dict) -> dict | None:
        if message["type"] != "case":
            return message
        self.say({"type": "unsupported", "case": message["case"], "reason": "not yet"})
        return None


if __name__ == "__main__":
    tell(Unsupported)
