#!/usr/bin/env python3
"""Every code block of impl/README.md must stand, line by line, in a program that is built and run.

A block may be indented less than in the program. Which programs count hangs on the block's language.
"""

import sys
import textwrap
from pathlib import Path

SAMPLES = Path(__file__).resolve().parent
IMPL = SAMPLES.parent
SOURCES = {
    "cpp": sorted(SAMPLES.glob("*.cpp")),
    "cmake": [IMPL / "tests" / "outside" / "CMakeLists.txt"],
    "sh": sorted(SAMPLES.glob("*.sh")),
}


def code_blocks(text: str):
    """Line number, language and text of each fenced block."""
    language, start, lines = None, 0, []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.startswith("```"):
            lines.append(line)
        elif language is None:
            language, start, lines = line[3:].strip(), number, []
        else:
            yield start, language, "\n".join(lines)
            language = None
    if language is not None:
        yield start, language, "the block has no end"


def stands_in(block: str, source: str) -> bool:
    wanted = textwrap.dedent(block).strip("\n").splitlines()
    lines = source.splitlines()
    return bool(wanted) and any(
        textwrap.dedent("\n".join(lines[at : at + len(wanted)])).splitlines() == wanted
        for at in range(len(lines) - len(wanted) + 1)
    )


def faults(readme: str) -> list[str]:
    found = []
    blocks = list(code_blocks(readme))
    if not blocks:
        found.append("no code block at all")
    for line, language, block in blocks:
        if language not in SOURCES:
            found.append(f"line {line}: a block must be one of {', '.join(SOURCES)}, not '{language}'")
        elif not any(stands_in(block, path.read_text()) for path in SOURCES[language]):
            names = ", ".join(str(path.relative_to(IMPL)) for path in SOURCES[language])
            found.append(f"line {line}: the block stands in none of {names}:\n{textwrap.indent(block, '    ')}")
    return found


def main() -> int:
    found = faults((IMPL / "README.md").read_text())
    for fault in found:
        print(f"README.md: {fault}", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
