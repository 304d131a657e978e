"""Runs of the suite, for programs that need many of them."""

import collections
import json
import os
import pathlib
import queue
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import threading


def cases_in(report):
    """Case records of an NDJSON report."""
    return [record for record in map(json.loads, report.read_text().splitlines()) if record["type"] == "case"]


def entered_in(notes):
    """By case: the mutants whose functions it entered, of the notes that a run of `mutant:none` left in the folder FSDP_MUTANTS_REACHED."""
    entered = collections.defaultdict(set)
    for file in notes.iterdir():
        case = None
        for line in file.read_text().splitlines():
            if line.startswith("case "):
                case = line.removeprefix("case ")
            elif case:
                entered[case].add(line)
    return entered


class Suite:
    """`fsdp-cts run`s that follow one another in one process, which loads the libraries of ranks and reference once; a second at the same time, from
    another thread, gets a process of its own. The processes end with the `with` block."""

    def __init__(self, bin_folder, **variables):
        self._command = [bin_folder / "fsdp-cts", "batch", "-"]
        self._environment = {**os.environ, **variables}
        self._idle = queue.SimpleQueue()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        while not self._idle.empty():
            self._idle.get().communicate()

    def run(self, arguments, limit=None):
        """Exit code and output of one with these arguments. No exit code past the limit, in seconds. Ends the program where there can be none."""
        process = self._process()
        timer = threading.Timer(limit or threading.TIMEOUT_MAX, process.terminate)
        timer.daemon = True
        timer.start()
        process.stdin.write(shlex.join(map(str, arguments)) + "\n")
        process.stdin.flush()
        output = ""
        for line in process.stdout:
            if ended := re.fullmatch(r"batch: line \d+ ended with exit code (\d+)\n", line):
                timer.cancel()
                self._idle.put(process)
                return int(ended[1]), output
            output += line
        timer.cancel()
        process.communicate()
        if limit and process.returncode == 128 + signal.SIGTERM:
            return None, output
        sys.exit(f"fsdp-cts ended within `run {shlex.join(map(str, arguments))}` (exit code {process.returncode}):\n{output}")

    def cases(self, arguments):
        """Exit code and case records of one with these arguments, which leaves nothing else behind."""
        with tempfile.TemporaryDirectory() as folder:
            report = pathlib.Path(folder) / "report.ndjson"
            status, output = self.run([*arguments, "--report", report, "--failures", folder])
            if not report.exists():
                sys.exit(f"`fsdp-cts run {shlex.join(map(str, arguments))}` left no report (exit code {status}):\n{output}")
            return status, cases_in(report)

    def _process(self):
        try:
            return self._idle.get_nowait()
        except queue.Empty:
            return subprocess.Popen(
                self._command, env=self._environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
            )
