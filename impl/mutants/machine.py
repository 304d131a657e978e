#!/usr/bin/env python3
"""Mutants made by rule: small faults all over the library's sources, one patch each, as somebody might make by accident.

    machine.py --source impl/fsdp --into build/mutation/patches
    machine.py --source impl/fsdp --into build/mutation/patches --sample 60 --seed 1

The patches are of the form that patches.py merges. What they do wrong is known, whether anybody would notice is not: ci/mutation builds and runs
them, and its table says who convicts each. A fault changes one line of one function's body:

    drop_call        a statement that is a call is left out
    drop_assignment  a statement that assigns is left out; the resets of flags are among them
    negate           the condition of an `if` is turned round
    off_by_one       ± 1 is left out
    swap             rank for size, and size for rank
    drop_cast        `.to(…)` is left out
"""

import argparse
import difflib
import pathlib
import random
import re
import sys

import patches

# A statement of its own on one line. What declares, returns or throws is left alone: without it nothing would compile.
STATEMENT = re.compile(
    r"^(?P<indent>\s+)(?!return\b|throw\b|const\b|auto\b|if\b|for\b|while\b|else\b|using\b|delete\b|case\b|std::|default\b|static\b|break\b)"
    r"(?P<rest>[\w:.*>\[\]()&-]+(?:\(.*\))?;|[\w.>\[\]()*-]+ [+|-]?= [^=].*;)$"
)
CONDITION = re.compile(r"\bif \((?P<condition>.+?)\) (?=\S)|\bif \((?P<condition_at_end>.+)\)$")
RANK_OR_SIZE = re.compile(r"(?<=[.>])(?:rank|size)\(\)|(?<=settings_\.)ranks?\b|(?<=unit_\.)ranks?\b")
GROUP = re.compile(r"(?:group|shard|replicate|world_|replicas|post_forward|group_)(?:\(\))?(?:\.|->)$")
NOTHING = "static_cast<void>(0);"


def balanced(text):
    return text.count("(") == text.count(")") and text.count("{") == text.count("}") and text.count("[") == text.count("]")


def without(text, begin, end):
    return text[:begin] + text[end:]


def faults_of(line, before):
    """(rule, line with the fault) for each way to get this line of code wrong. `before`: the line above."""
    if not balanced(line):
        return
    statement = STATEMENT.match(line)
    if statement and before.rstrip().endswith((";", "{", "}", ")", ":", "else")):
        rule = "drop_assignment" if re.match(r"[\w.>\[\]()*-]+ [+|-]?= ", statement["rest"]) else "drop_call"
        yield rule, statement["indent"] + NOTHING
    for found in CONDITION.finditer(line):
        condition = found["condition"] or found["condition_at_end"]
        if not balanced(condition) or ";" in condition or re.match(r"(?:const\s+)?auto\b", condition):
            continue
        yield "negate", line.replace(f"if ({condition})", f"if (!({condition}))", 1)
    for found in re.finditer(r" [+-] 1\b(?![.\w])", line):
        yield "off_by_one", without(line, *found.span())
    for found in RANK_OR_SIZE.finditer(line):
        if found[0].endswith("()") and not GROUP.search(line[: found.start()]):
            continue
        other = {"rank()": "size()", "size()": "rank()", "rank": "ranks", "ranks": "rank"}[found[0]]
        yield "swap", line[: found.start()] + other + line[found.end() :]
    for found in re.finditer(r"\.to\([^()]*(?:\([^()]*\))?[^()]*\)", line):
        yield "drop_cast", without(line, *found.span())


def machine_patches(source):
    """(id, text of the patch) of every fault, in order of files and lines."""
    for path in patches.sources_of(source):
        if not path.endswith(".cpp") or path.startswith("comm/nccl"):
            continue  # nothing here runs NCCL
        text = (source / path).read_text()
        lines, code = text.split("\n"), patches.code_only(text).split("\n")
        inside = [False] * len(lines)
        for begin, end in patches.bodies_of(text):
            for number in range(text.count("\n", 0, begin) + 1, text.count("\n", 0, end)):
                inside[number] = True
        made = {}
        for number, line in enumerate(lines):
            if not inside[number] or line.strip() != code[number].strip():
                continue  # comments and text on the line: what a rule would change there is no code
            for rule, changed in faults_of(line, code[number - 1]):
                place = f"{path.removesuffix('.cpp').replace('/', '_')}_{number + 1}_{rule}"
                made[place] = made.get(place, 0) + 1
                name = place if made[place] == 1 else f"{place}_{made[place]}"
                with_fault = lines[:number] + [changed] + lines[number + 1 :]
                diff = difflib.unified_diff(lines, with_fault, f"a/{path}", f"b/{path}", lineterm="")
                yield name, "".join(
                    f"{field}\n"
                    for field in [
                        f"group: {rule}",
                        f"sentence: {path}:{number + 1}: `{line.strip()}` becomes `{changed.strip()}`",
                        "verdict: fail",
                        "code: any",
                        "difference: whatever the suite sees",
                        "cases: --quick",
                        *diff,
                    ]
                )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source", type=pathlib.Path, required=True, help="the library: impl/fsdp")
    parser.add_argument("--into", type=pathlib.Path, required=True, help="folder of the patches; others there are removed")
    parser.add_argument("--sample", type=int, help="only so many, drawn by chance")
    parser.add_argument("--seed", type=int, default=1, help="of the draw (default 1)")
    arguments = parser.parse_args()
    made = dict(machine_patches(arguments.source))
    if arguments.sample is not None and arguments.sample < len(made):
        made = {name: made[name] for name in sorted(random.Random(arguments.seed).sample(sorted(made), arguments.sample))}
    arguments.into.mkdir(parents=True, exist_ok=True)
    for file in arguments.into.glob("*.patch"):
        if file.stem not in made:
            file.unlink()
    for name, text in made.items():
        file = arguments.into / f"{name}.patch"
        if not file.exists() or file.read_text() != text:
            file.write_text(text)
    counts = {}
    for text in made.values():
        rule = text.split("\n", 1)[0].removeprefix("group: ")
        counts[rule] = counts.get(rule, 0) + 1
    print(f"{len(made)} mutants: " + ", ".join(f"{count} {rule}" for rule, count in sorted(counts.items())))


if __name__ == "__main__":
    sys.exit(main())
