#!/usr/bin/env python3
"""Which scenarios hold an implementation to each clause, and which mutants are convicted of breaking it?

    clauses.py --bin build/release/bin --convictions build/release/convictions [--table build/release/convictions/clauses.md]

Reads what `convict.py --convictions` left behind, the list of all cases, and conformance/clauses.md. A mutant counts for the clauses of the line that it
first breaks in a case; one that crashes or hangs counts for none. A clause that no mutant breaks is not shown to be held: either a mutant is missing, or
unbroken.txt says why there is none.
Exit code 0: every clause that a case of this machine carries convicts a mutant or stands in unbroken.txt, and that list names no other.
"""

import argparse
import collections
import pathlib
import re
import sys

import convict

HERE = pathlib.Path(__file__).resolve().parent


def clauses_of(document):
    """Ids in the order of the document."""
    return re.findall(r"^\| ([A-Z][A-Z0-9]*(?:-[A-Z0-9]+)+) \|", document.read_text(), re.MULTILINE)


def reasons_of(file):
    """`CLAUSE: reason` lines; # begins a comment."""
    lines = [line for line in file.read_text().splitlines() if line.strip() and not line.startswith("#")]
    return dict(map(str.strip, line.split(":", 1)) for line in lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=pathlib.Path, required=True, help="folder of fsdp-cts")
    parser.add_argument("--convictions", type=pathlib.Path, required=True, help="folder that convict.py wrote")
    parser.add_argument("--table", type=pathlib.Path, help="where to write the table, in Markdown")
    parser.add_argument("--unbroken", type=pathlib.Path, default=HERE / "unbroken.txt", help="clauses without a mutant, and why")
    arguments = parser.parse_args()
    scenarios, here = collections.defaultdict(set), set()
    for case in convict.cases_of_the_suite(arguments.bin):
        for clause in case["clauses"]:
            scenarios[clause].add(case["scenario"])
            if case["runnable"]:
                here.add(clause)
    mutants = collections.defaultdict(set)
    for noted in convict.noted_in(arguments.convictions):
        for clause in noted["clauses"]:
            mutants[clause].add(noted["mutant"])
    reasons = reasons_of(arguments.unbroken)
    lines = ["| clause | scenarios that carry it | mutants convicted of breaking it |", "|---|---|---|"]
    for clause in clauses_of(HERE.parent.parent / "conformance" / "clauses.md"):
        carriers = sorted(scenarios[clause])
        shown = ", ".join(carriers[:3]) + (f" and {len(carriers) - 3} more" if len(carriers) > 3 else "") or "none: a law, held in every case"
        lines.append(f"| {clause} | {shown} | {', '.join(sorted(mutants[clause])) or 'none: ' + reasons.get(clause, '?')} |")
    if arguments.table:
        arguments.table.write_text("\n".join(lines) + "\n")
    unbroken = sorted(clause for clause in here if not mutants[clause])
    missing = [clause for clause in unbroken if clause not in reasons]
    stale = [clause for clause in reasons if clause not in unbroken]
    print(f"{len(scenarios)} clauses are carried by scenarios, {len(here)} of them on this machine; {len(here) - len(unbroken)} of these convict a mutant")
    for clause in missing:
        print(f"  broken by no mutant, and {arguments.unbroken.name} does not say why: {clause} ({', '.join(sorted(scenarios[clause])[:3])})")
    for clause in stale:
        print(f"  stands in {arguments.unbroken.name} and is broken by {', '.join(sorted(mutants[clause])) or 'nothing, nor carried here'}: {clause}")
    sys.exit(1 if missing or stale else 0)


if __name__ == "__main__":
    main()
