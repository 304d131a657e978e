"""A fault that is known must be convicted by drawn scenarios, and what is kept of it must be small and see it again.

    shrinks.py build/release/bin/fsdp-cts
"""

import pathlib
import subprocess
import sys
import tempfile


def run(*command):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


def main(cli):
    with tempfile.TemporaryDirectory() as folder:
        kept = pathlib.Path(folder) / "kept"
        code, text = run(cli, "generate", "--seed", 1, "--count", 8, "--fail-fast", "--shrink", 1, "--testee", "mutant:sum_for_mean",
                         "--backend", "shm", "--failures", kept)
        files = sorted(kept.glob("*.yaml"))
        if code != 1 or len(files) != 1:
            sys.exit(f"one scenario must be convicted and kept; exit code {code}, kept {len(files)}\n{text}")
        scenario = files[0].read_text()
        model = next(line for line in scenario.splitlines() if line.startswith("  model: "))
        if model.count("Linear") + model.count("gain: {") != 1 or "worlds: [2]" not in scenario:
            sys.exit(f"one parameterised layer on two ranks is enough to see a sum for a mean; kept is\n{scenario}")
        for testee, expected in (("mutant:sum_for_mean", 1), ("cpp", 0)):
            code, text = run(cli, "run", "--scenarios", files[0], "--testee", testee, "--backend", "shm", "--failures", pathlib.Path(folder) / "failures")
            if code != expected:
                sys.exit(f"the kept scenario on {testee} gives {code} in place of {expected}\n{text}\n{scenario}")


if __name__ == "__main__":
    main(sys.argv[1])
