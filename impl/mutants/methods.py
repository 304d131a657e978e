#!/usr/bin/env python3
"""Which mutants does each upstream method convict? A method that convicts none would not notice a faulty implementation.

    methods.py --bin build/release/bin --convictions build/release/convictions [--table build/release/convictions/methods.md]

    methods.py --compare BEFORE AFTER [--table table.md]

Reads what `convict.py --convictions` left behind, and the list of all cases. Convictions by a method's base cases, those that stand for
upstream's, are counted apart from those by its twins and further values: a method whose base cases convict nobody is seen through by ours alone.
Exit code 0: every mutant was tried, and every method that can run on this machine and uses the library convicts at least one. With --compare, of two folders of convictions side
by side: every mutant is convicted by at least as many methods after as before.
"""

import argparse
import collections
import pathlib
import sys

import convict
import patches

# They ask LibTorch and shard nothing, as upstream's do, so that no fault of the library can show in them.
WITHOUT_LIBRARY = {
    "UOP/TestMultiTensorApply/test_multi_tensor_apply_size0_tensors_cpu",
    "UOP/TestMultiTensorApply/test_multi_tensor_apply_size0_tensors_cuda",
}


def method_of(case):
    """F2MP/Class/method of F2MP/Class/method#twin[axis=value,...]."""
    return case.split("[")[0].split("#")[0]


def convictions(folder):
    """Methods that convict each mutant, with how many of their cases do."""
    return {noted["mutant"]: collections.Counter(map(method_of, noted["cases"])) for noted in convict.noted_in(folder)}


def compare(before, after, table):
    lines = ["| mutant | methods before | methods after | cases before | cases after | methods that no longer convict it |", "|---|---|---|---|---|---|"]
    blinded = []
    for mutant in sorted(before | after):
        old, new = before.get(mutant, collections.Counter()), after.get(mutant, collections.Counter())
        lost = sorted(set(old) - set(new))
        lines.append(f"| {mutant} | {len(old)} | {len(new)} | {old.total()} | {new.total()} | {', '.join(lost)} |")
        if len(new) < len(old):
            blinded.append(mutant)
    print("\n".join(lines))
    if table:
        table.write_text("\n".join(lines) + "\n")
    print(f"\n{len(before | after)} mutants; convicted by fewer methods than before: {', '.join(blinded) or 'none'}")
    sys.exit(1 if blinded else 0)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=pathlib.Path, help="folder of fsdp-cts")
    parser.add_argument("--convictions", type=pathlib.Path, help="folder that convict.py wrote")
    parser.add_argument("--compare", type=pathlib.Path, nargs=2, metavar=("BEFORE", "AFTER"), help="two folders that convict.py wrote")
    parser.add_argument("--table", type=pathlib.Path, help="where to write the table, in Markdown")
    arguments = parser.parse_args()
    if arguments.compare:
        compare(*map(convictions, arguments.compare), arguments.table)
    if not arguments.bin or not arguments.convictions:
        parser.error("--bin and --convictions are needed, or --compare")
    listed = convict.cases_of_the_suite(arguments.bin)
    runnable = collections.defaultdict(bool)
    for case in listed:
        runnable[method_of(case["id"])] |= case["runnable"]
    of_upstream = {case["id"] for case in listed if case["seed_cases"] > 0}
    base = collections.defaultdict(lambda: collections.defaultdict(int))  # method, mutant: convicting cases
    twins = collections.defaultdict(lambda: collections.defaultdict(int))
    noted_all = convict.noted_in(arguments.convictions)
    untried = {patch.id for patch in patches.all_patches()} - {noted["mutant"] for noted in noted_all}
    if untried:
        sys.exit(f"not tried: {', '.join(sorted(untried))}; `ctest -R '^mutants'` tries all")
    for noted in noted_all:
        for case in noted["cases"]:
            (base if case in of_upstream else twins)[method_of(case)][noted["mutant"]] += 1
    lines = ["| method | mutants its base cases convict (cases) | mutants its twins and further values convict (cases) |", "|---|---|---|"]
    for method in sorted(runnable):
        none = "shards nothing" if method in WITHOUT_LIBRARY else "none" if runnable[method] else "does not run on this machine"
        by_base, by_twins = (", ".join(f"{name} ({count})" for name, count in sorted(by[method].items())) for by in (base, twins))
        lines.append(f"| {method} | {by_base or none} | {by_twins or none} |")
    if arguments.table:
        arguments.table.write_text("\n".join(lines) + "\n")
    here = [method for method in sorted(runnable) if runnable[method] and method not in WITHOUT_LIBRARY]
    wrong = [method for method in sorted(WITHOUT_LIBRARY) if method not in runnable or base[method] or twins[method]]
    if wrong:
        sys.exit(f"methods.py says of {', '.join(wrong)} that they use no library; they are not there, or convict a mutant")
    vacuous = [method for method in here if not base[method] and not twins[method]]
    twins_only = [method for method in here if not base[method] and twins[method]]
    print(
        f"{len(runnable)} methods, {len(here)} use the library and run here; {len(here) - len(vacuous)} convict a mutant, "
        f"{sum(bool(base[m]) for m in here)} of them by a base case; {len(vacuous)} convict none"
    )
    for method in twins_only:
        print(f"  convicts by twins and further values alone: {method}")
    for method in vacuous:
        print(f"  convicts nobody: {method}")
    sys.exit(1 if vacuous else 0)


if __name__ == "__main__":
    main()
