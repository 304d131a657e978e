#!/usr/bin/env python3
"""Which mutants does each upstream method convict? A method that convicts none would not notice a faulty implementation.

    methods.py --bin build/release/bin --convictions build/release/convictions [--table build/release/convictions/methods.md]

Reads what `convict.py --convictions` left behind, and the list of all cases. Exit code 0: every method that can run on this machine and has
any FSDP in it convicts at least one mutant.
"""

import argparse
import collections
import json
import pathlib
import subprocess
import sys


def method_of(case):
    """F2MP/Class/method of F2MP/Class/method#twin[axis=value,...]."""
    return case.split("[")[0].split("#")[0]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=pathlib.Path, required=True, help="folder of fsdp-cts")
    parser.add_argument("--convictions", type=pathlib.Path, required=True, help="folder that convict.py wrote")
    parser.add_argument("--table", type=pathlib.Path, help="where to write the table, in Markdown")
    arguments = parser.parse_args()
    mutants = collections.defaultdict(lambda: collections.defaultdict(int))
    for file in sorted(arguments.convictions.glob("*.json")):
        noted = json.loads(file.read_text())
        for case in noted["cases"]:
            mutants[method_of(case)][noted["mutant"]] += 1
    listed = json.loads(subprocess.run([arguments.bin / "fsdp-cts", "list", "--json"], capture_output=True, text=True, check=True).stdout)
    runnable = collections.defaultdict(bool)
    for case in listed:
        runnable[method_of(case["id"])] |= case["runnable"]
    lines = ["| method | mutants it convicts (cases) |", "|---|---|"]
    for method in sorted(runnable):
        names = ", ".join(f"{name} ({count})" for name, count in sorted(mutants[method].items()))
        lines.append(f"| {method} | {names or ('none' if runnable[method] else 'does not run on this machine')} |")
    if arguments.table:
        arguments.table.write_text("\n".join(lines) + "\n")
    vacuous = [method for method in sorted(runnable) if runnable[method] and not mutants[method]]
    print(f"{len(runnable)} methods; {sum(bool(mutants[m]) for m in runnable)} convict a mutant; {len(vacuous)} convict none")
    for method in vacuous:
        print(f"  convicts nobody: {method}")
    sys.exit(1 if vacuous else 0)


if __name__ == "__main__":
    main()
