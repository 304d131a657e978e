#!/usr/bin/env python3
"""Runs the suite on faulty variants of the C++ library and asserts that each is convicted of what it does wrong, and correct ones acquitted.

    convict.py --bin build/release/bin                     all of them, as a table
    convict.py --bin build/release/bin --mutant stale_gather
    convict.py --bin build/release/bin --mutant 'stream_*' --repeat 20
    convict.py --bin build/release/bin --whole --convictions out/convictions

Each runs on the cases that its patch names, until --cases of them have failed; see README.md. A mutant is convicted when the suite's run on it fails
and at least --cases cases have the verdict and code that it must receive. A correct variant is acquitted when every case of the selection passes. With --repeat each must
be convicted, or acquitted, every time; runs after the first are of its first convicting cases alone. Exit code 0: all as they should be.
"""

import argparse
import collections
import fnmatch
import json
import pathlib
import subprocess
import sys

import patches
from suite import Suite


def records_of(suite, mutant, selection):
    """Exit code of the run and its case records."""
    backend = [] if "--backend" in selection else ["--backend", "shm"]  # the faster one
    return suite.cases([*selection, *backend, "--testee", f"mutant:{mutant}"])


def fault(mutant, status, records, cases):
    """What is not as it should be, in a sentence; nothing if all is well."""
    if mutant["verdict"] == "pass":
        wrong = [r for r in records if r["verdict"] not in ("pass", "skipped")]
        if wrong or status != 0:
            first = f"; first: {wrong[0]['id']}: {wrong[0]['verdict']} {wrong[0]['code']}: {wrong[0]['summary']}" if wrong else ""
            return f"is correct, and {len(wrong)} of {len(records)} cases say otherwise (exit code {status}){first}"
        return None
    if status != 1:
        return f"must make the run fail with exit code 1, and it gave {status}"
    convicting = [r for r in records if (r["verdict"], r["code"]) == (mutant["verdict"], mutant["code"])]
    if len(convicting) < cases:
        return f"must be convicted of {mutant['verdict']}/{mutant['code']} by {cases} cases, and it was by {len(convicting)}; {tally(records)}"
    return None


def judged(suite, mutant, selection, cases):
    """As records_of; ends where enough cases convict, since each that fails costs new ranks."""
    found = records_of(suite, mutant["id"], [*selection, "--max-failures", str(cases)])
    return records_of(suite, mutant["id"], selection) if fault(mutant, *found, cases) else found


def first_convicting(mutant, records, selection, cases):
    """Arguments of `fsdp-cts run` for what says enough of it, so that a repetition costs less."""
    convicting = [r["id"] for r in records if (r["verdict"], r["code"]) == (mutant["verdict"], mutant["code"])]
    kept = [each for option, value in zip(selection, selection[1:]) if option in ("--device", "--backend") for each in (option, value)]
    return kept + convicting[:cases]


def note(folder, mutant, records):
    """The cases that found something wrong, whatever they called it, and the clauses of the lines that did: methods.py and clauses.py read it."""
    folder.mkdir(parents=True, exist_ok=True)
    convicting = [r for r in records if r["verdict"] in ("fail", "crash", "hang")]
    clauses = {clause for r in convicting for clause in words(r.get("divergence", {}).get("clause", []))}
    noted = {"mutant": mutant, "cases": [r["id"] for r in convicting], "clauses": sorted(clauses)}
    (folder / f"{mutant}.json").write_text(json.dumps(noted, indent=1) + "\n")


def noted_in(folder):
    """What `note` wrote, one map a mutant."""
    files = sorted(folder.glob("*.json"))
    if not files:
        sys.exit(f"{folder} holds no convictions; convict.py --convictions writes them")
    return [json.loads(file.read_text()) for file in files]


def cases_of_the_suite(bin_folder):
    """Rows of `fsdp-cts list --json`."""
    return json.loads(subprocess.run([bin_folder / "fsdp-cts", "list", "--json"], capture_output=True, text=True, check=True).stdout)


def words(one_or_many):
    return [one_or_many] if isinstance(one_or_many, str) else one_or_many


def tally(records):
    counts = collections.Counter(r["verdict"] if r["verdict"] == "pass" else f"{r['verdict']}/{r['code']}" for r in records)
    return ", ".join(f"{count} {verdict}" for verdict, count in counts.most_common())


def convicted(suite, mutant, arguments):
    """Tries one and says in two lines what came of it; whether that is as it should be."""
    selection = arguments.selection or mutant["cases"]
    whole = arguments.whole or mutant["verdict"] == "pass" or "--max-failures" in selection
    status, records = records_of(suite, mutant["id"], selection) if whole else judged(suite, mutant, selection, arguments.cases)
    wrong = fault(mutant, status, records, arguments.cases)
    times = 0 if wrong else 1
    if not wrong and mutant["verdict"] != "pass":
        selection = first_convicting(mutant, records, selection, arguments.cases)
    for _ in range(arguments.repeat - 1):
        again = fault(mutant, *records_of(suite, mutant["id"], selection), arguments.cases)
        times += again is None
        wrong = wrong or again
    often = f"{times} of {arguments.repeat}; " if arguments.repeat > 1 else ""
    print(f"{'FAULT' if wrong else 'ok':6}{mutant['id']:32}{mutant['group']:26}{often}{wrong or tally(records)}", flush=True)
    if arguments.convictions:
        note(arguments.convictions, mutant["id"], records)
    first = next((r for r in records if (r["verdict"], r["code"]) == (mutant["verdict"], mutant["code"])), None)
    if first and mutant["verdict"] != "pass":
        print(f"      {first['id']}: {first['summary']}", flush=True)
    return wrong is None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=pathlib.Path, required=True, help="folder of fsdp-cts and fsdp_testee_mutants")
    parser.add_argument("--mutant", action="append", help="only this one, or those of a pattern as 'stream_*'; may be given several times")
    parser.add_argument("--cases", type=int, default=2, help="how many cases must convict (default 2)")
    parser.add_argument("--whole", action="store_true", help="judge all cases that a patch names, not only as many as convict it")
    parser.add_argument("--repeat", type=int, default=1, help="how often each is tried (default 1)")
    parser.add_argument("--convictions", type=pathlib.Path, help="folder that gets one file per mutant: what convicted it")
    parser.add_argument("selection", nargs="*", help="arguments of `fsdp-cts run` (default: the mutant's own)")
    arguments = parser.parse_args()
    known = {patch.id: patch.as_json() for patch in patches.all_patches()}
    named = {pattern: fnmatch.filter(known, pattern) for pattern in arguments.mutant or ["*"]}
    unknown = [pattern for pattern, names in named.items() if not names]
    if unknown:
        sys.exit(f"no such mutant: {', '.join(unknown)}; there are {', '.join(known)}")
    chosen = list(dict.fromkeys(name for names in named.values() for name in names))
    with Suite(arguments.bin) as suite:
        wrong = [name for name in chosen if not convicted(suite, known[name], arguments)]
    often = f" {arguments.repeat} times of {arguments.repeat}" if arguments.repeat > 1 else ""
    print(f"{len(chosen) - len(wrong)} of {len(chosen)} mutants as they should be{often}" + (f"; not so: {', '.join(wrong)}" if wrong else ""))
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
