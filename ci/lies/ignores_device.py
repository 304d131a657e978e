"""Computes on the CPU, whatever --device says."""

import os
import sys


def main() -> None:
    command = sys.argv[1:]
    if "--device" in command:
        at = command.index("--device")
        del command[at : at + 2]
    os.execv(command[0], command)


if __name__ == "__main__":
    main()
