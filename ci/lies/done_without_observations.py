"""Acts out every case, answers `done`, and never shows what came out."""

from relay import Relay, tell


class DoneWithoutObservations(Relay):
    def from_testee(self, message: dict) -> dict | None:
        return None if message["type"] == "observation" else message


if __name__ == "__main__":
    tell(DoneWithoutObservations)
