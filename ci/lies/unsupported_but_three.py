"""Acts out three cases and answers `unsupported` to all others."""

from relay import Relay, tell


class UnsupportedButThree(Relay):
    def from_runner(self, message: dict) -> dict | None:
        if message["type"] != "case" or self.cases <= 3:
            return message
        self.say({"type": "unsupported", "case": message["case"], "reason": "not yet"})
        return None


if __name__ == "__main__":
    tell(UnsupportedButThree)
