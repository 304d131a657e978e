#!/usr/bin/env python3
"""Runs ci/gate on a lying testee and asserts that the gate says no, in the right words.

    convict.py --build build/release --level c1mp.w2 --says 'is unsupported' --testee 'python ci/lies/unsupported.py …'

The gate must end with --exit-code and every --says (a regular expression) must be found in what it prints. Exit code 0: convicted.
"""

import argparse
import pathlib
import re
import subprocess
import sys
import tempfile


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", required=True, help="a build with bin/fsdp-cts")
    parser.add_argument("--testee", required=True, help="the command of the liar")
    parser.add_argument("--level", required=True)
    parser.add_argument("--says", action="append", default=[], help="what the gate must say, a regular expression")
    parser.add_argument("--exit-code", type=int, default=1, help="with which the gate must end")
    parser.add_argument("more", nargs="*", help="further arguments of the gate")
    arguments = parser.parse_args()
    gate = pathlib.Path(__file__).resolve().parents[1] / "gate"
    with tempfile.TemporaryDirectory() as out:
        command = [gate, "--build", arguments.build, "--out", out, "--level", arguments.level, "--testee", arguments.testee, *arguments.more]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    print(done.stdout)
    faults = [f"the gate said nothing that matches '{each}'" for each in arguments.says if not re.search(each, done.stdout)]
    if done.returncode != arguments.exit_code:
        faults.append(f"the gate ended with {done.returncode}, due is {arguments.exit_code}")
    for fault in faults:
        print(f"NOT CONVICTED: {fault}")
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
