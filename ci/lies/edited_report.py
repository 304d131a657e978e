#!/usr/bin/env python3
"""A report of a failed run, edited so that it looks better: what `fsdp-cts verify` sees, and what it cannot see.

    edited_report.py --build build/release

The hash in a report's footer has no key. It shows an edit that did not compute it again; of one that did it shows what does not fit
together: cases that are gone, counts and exit code. A verdict that was turned round with everything beside it cannot be told from an honest one; ci/gate
therefore never reads a report that it did not make itself. Exit code 0: all as said.
"""

import argparse
import hashlib
import json
import pathlib
import subprocess
import sys
import tempfile


def hashed(lines: list[dict]) -> str:
    *body, footer = lines
    text = "".join(json.dumps(line, separators=(",", ":"), ensure_ascii=False) + "\n" for line in body)
    footer = {**footer, "sha256": hashlib.sha256(text.encode()).hexdigest()}
    return text + json.dumps(footer, separators=(",", ":"), ensure_ascii=False) + "\n"


def recounted(lines: list[dict]) -> list[dict]:
    header, *cases, footer = lines
    verdicts: dict[str, int] = {}
    for case in cases:
        verdicts[case["verdict"]] = verdicts.get(case["verdict"], 0) + 1
    return [{**header, "cases": len(cases)}, *cases, {**footer, "cases": len(cases), "verdicts": verdicts, "faults": [], "exit_code": 0}]


def passed(case: dict) -> dict:
    return {**case, "verdict": "pass", "code": "pass"} if case["type"] == "case" and case["verdict"] == "fail" else case


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", required=True, type=pathlib.Path)
    program = parser.parse_args().build / "bin/fsdp-cts"
    faults = []
    with tempfile.TemporaryDirectory() as folder:
        report = pathlib.Path(folder) / "report.ndjson"
        run = [program, "run", "--level", "c1mp.w2", "--testee", "mutant:flat_root_inputs_not_cast", "--report", report, "--failures", folder]
        status = subprocess.run(run, capture_output=True).returncode
        lines = [json.loads(line) for line in report.read_text().splitlines()]
        if status != 1 or not any(line.get("verdict") == "fail" for line in lines):
            sys.exit(f"the run on a faulty variant was to fail (exit code {status})")

        def check(name: str, text: str, due: int, says: str) -> None:
            report.write_text(text)
            done = subprocess.run([program, "verify", report, "--level", "c1mp.w2"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            print(f"{name}: exit code {done.returncode}\n{done.stdout}")
            if done.returncode != due or says not in done.stdout:
                faults.append(f"{name}: due were exit code {due} and '{says}'")

        check("as it was", hashed(lines), 1, "level: none: not everything is as expected")
        check("verdicts edited", report.read_text().replace('"verdict":"fail"', '"verdict":"pass"'), 2, "tampered")
        check("verdicts edited, hash computed again", hashed([passed(line) for line in lines]), 2, "verdict_counts")
        check("exit code edited, hash computed again", hashed([*lines[:-1], {**lines[-1], "faults": [], "exit_code": 0}]), 2, "exit_code")
        without = [line for line in lines if line.get("verdict") != "fail"]
        check("failures taken out, counted and hashed again", hashed(recounted(without)), 1, "cases of")
        check("everything turned round: the hash is no signature", hashed(recounted([passed(line) for line in lines])), 0, "level: c1mp.w2")
    for fault in faults:
        print(f"NOT AS IT SHOULD BE: {fault}")
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
