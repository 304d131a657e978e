"""Ends with exit code 0 in the third case, as a program that has finished well."""

import os

from relay import Relay, tell


class ExitsInThirdCase(Relay):
    def from_runner(self, message: dict) -> dict | None:
        if message["type"] == "case" and self.cases == 3:
            os._exit(0)
        return message


if __name__ == "__main__":
    tell(ExitsInThirdCase)
