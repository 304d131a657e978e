#!/usr/bin/env python3
"""Mutants are patches of the library's sources; this tool lists them, makes new ones, and merges all of them into one source tree.

    patches.py list                                                   a table
    patches.py list --json                                            for programs
    patches.py apply --source impl/fsdp --into build/release/mutable  what the build does
    patches.py new gradients_lost                                     a patch from the uncommitted changes of impl/fsdp
    patches.py follow                                                 carries patches along when the library changes

In the merged tree every patched function holds the original body and those of the patches, and a number that is read at start chooses
between them: `if (::fsdp::mutants::is(17)) { body of patch 17 } else { original body }`. One build thus holds all mutants. That is
why a patch changes bodies of functions in .cpp files, and nothing else; outside of bodies it may insert lines. README.md says more.
"""

import argparse
import dataclasses
import difflib
import json
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
FIELDS = ("group", "sentence", "verdict", "code", "difference", "cases")
MAY_BE_EMPTY = ("code", "difference")
BODY = "\0"  # stands for the body of a function in a line of code outside of bodies


class Problem(Exception):
    """Something a person has to mend; the message says where and how."""


# Patches as files.


@dataclasses.dataclass
class Hunk:
    line: int  # of the patch file, from 1
    old_start: int  # of the patched file, from 1
    old: list[str]
    new: list[str]


@dataclasses.dataclass
class Patch:
    file: pathlib.Path
    number: int
    fields: dict[str, str]
    hunks: dict[str, list[Hunk]]  # by path below the source folder

    @property
    def id(self):
        return self.file.stem

    def as_json(self):
        return {"id": self.id, **self.fields, "cases": shlex.split(self.fields["cases"])}


def require_patchable(where, path):
    if not path.endswith(".cpp"):
        raise Problem(
            f"{where}: changes {path}; only .cpp files may be changed, since the programs around the library are compiled with the headers "
            "as they are. State can live in a static variable of a function."
        )


def parse_fields(file, lines):
    fields = {}
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        name, colon, value = line.partition(":")
        if not colon or name not in FIELDS or name in fields:
            raise Problem(f"{file}:{number}: expected one line each of {', '.join(FIELDS)}, as in `group: 1 reduction`, found {line!r}")
        fields[name] = value.strip()
    for name in FIELDS:
        if not fields.get(name) and (name not in MAY_BE_EMPTY or fields.get("verdict") != "pass"):
            raise Problem(f"{file}: the line `{name}: …` is missing or empty (only a patch of verdict `pass` has no code and difference)")
    return {name: fields.get(name, "") for name in FIELDS}


def parse_diff(file, lines, first_line):
    """Hunks by path. `lines` begin at line `first_line` of the file."""
    hunks, path, hunk, old_left, new_left = {}, None, None, 0, 0
    for number, line in enumerate(lines, first_line):
        if old_left > 0 or new_left > 0:
            kind, text = line[:1] or " ", line[1:]
            if kind not in " +-":
                raise Problem(f"{file}:{number}: expected a line of the hunk, found {line!r}")
            if kind in " -":
                hunk.old.append(text)
                old_left -= 1
            if kind in " +":
                hunk.new.append(text)
                new_left -= 1
        elif line.startswith("+++ "):
            path = line[4:].split("\t")[0].removeprefix("b/")
            require_patchable(f"{file}:{number}", path)
            hunks.setdefault(path, [])
        elif match := re.match(r"@@ -(\d+)(?:,(\d+))? \+\d+(?:,(\d+))? @@", line):
            if path is None:
                raise Problem(f"{file}:{number}: a hunk without `--- a/…` and `+++ b/…` before it")
            hunk = Hunk(number, int(match[1]), [], [])
            hunks[path].append(hunk)
            old_left, new_left = int(match[2] or 1), int(match[3] or 1)
        elif line.startswith(("--- ", "diff ", "index ", "\\ ")) or not line.strip():
            continue
        else:
            raise Problem(f"{file}:{number}: expected a unified diff, found {line!r}")
    if old_left > 0 or new_left > 0:
        raise Problem(f"{file}: the last hunk ends too early")
    if not hunks:
        raise Problem(f"{file}: holds no diff")
    return hunks


def parse_patch(file, number=0):
    lines = file.read_text().splitlines()
    begin = next((i for i, line in enumerate(lines) if line.startswith(("--- ", "diff "))), len(lines))
    return Patch(file, number, parse_fields(file, lines[:begin]), parse_diff(file, lines[begin:], begin + 1))


def all_patches(folder=HERE):
    """In the order of their ids, numbered from 1."""
    return [parse_patch(file, number) for number, file in enumerate(sorted(folder.glob("*.patch")), 1)]


def applied(patch, path, text):
    """The file after the patch. Context must match; it may stand on other lines than the patch says."""
    lines, result, done, shift = text.split("\n"), [], 0, 0
    for hunk in patch.hunks[path]:
        size, wanted = len(hunk.old), hunk.old_start - 1 + shift
        places = [at for at in range(done, len(lines) - size + 1) if lines[at : at + size] == hunk.old]
        if not places:
            at, expected, found = first_difference(hunk, lines, max(wanted, done))
            raise Problem(
                f"{patch.file}:{hunk.line}: does not apply to {path}: line {at + 1} is {found!r} where the patch expects {expected!r}. The "
                "library has changed: try `patches.py follow`; else make the same change by hand and write the patch anew with `patches.py new`."
            )
        at = min(places, key=lambda place: abs(place - wanted))
        shift += at - wanted
        result += lines[done:at] + hunk.new
        done = at + size
    return "\n".join(result + lines[done:])


def first_difference(hunk, lines, wanted):
    """Where the hunk would come closest to matching: line, what it expects there, what there is."""
    best = (-1, wanted, hunk.old[0] if hunk.old else "", lines[wanted] if wanted < len(lines) else "")
    for at in range(len(lines)):
        same = 0
        while same < len(hunk.old) and at + same < len(lines) and lines[at + same] == hunk.old[same]:
            same += 1
        if (same, -abs(at - wanted)) > (best[0], -abs(best[1] - best[0] - wanted)) and same < len(hunk.old):
            found = lines[at + same] if at + same < len(lines) else "the end of the file"
            best = (same, at + same, hunk.old[same], found)
    return best[1:]


# C++ as bodies of functions and what is around them.

LITERAL = re.compile(
    r"""(?P<comment>//[^\n]*|/\*.*?\*/)
      | (?P<raw>(?:u8|[uUL])?R"(?P<delimiter>[^ ()\\\t\n]*)\(.*?\)(?P=delimiter)")
      | (?P<string>"(?:\\.|[^"\\\n])*")
      | (?P<separator>(?<=[0-9a-fA-F])'(?=[0-9a-fA-F]))
      | (?P<character>'(?:\\.|[^'\\\n])+')
      | (?P<directive>^[ \t]*\#(?:\\\n|[^\n])*)""",
    re.VERBOSE | re.DOTALL | re.MULTILINE,
)
TAIL_OF_HEADER = re.compile(r"(?:\s|const\b|volatile\b|noexcept\b|override\b|final\b|&)*(?:->.*)?(?:requires\b.*)?", re.DOTALL)
ACCESS = re.compile(r"\s*(?:public|private|protected)\s*")


def code_only(text):
    """Of the same length, with blanks for comments, literals and directives."""
    return LITERAL.sub(lambda match: re.sub(r"[^\n]", " ", match[0]), text)


def without_template(header):
    header = header.strip()
    while match := re.match(r"template\s*<", header):
        depth, end = 1, match.end()
        while depth > 0 and end < len(header):
            depth += {"<": 1, ">": -1}.get(header[end], 0)
            end += 1
        header = header[end:].strip()
    return header


def is_transparent(header):
    return re.match(r"(?:inline\s+)?namespace\b|class\b|struct\b|union\b|extern\s*$", without_template(header)) is not None


def is_function(header):
    close = header.rfind(")")
    return close >= 0 and not header.lstrip().startswith("enum") and TAIL_OF_HEADER.fullmatch(header[close + 1 :]) is not None


def closing_brace(code, opening):
    depth = 0
    for at in range(opening, len(code)):
        depth += {"{": 1, "}": -1}.get(code[at], 0)
        if depth == 0:
            return at
    raise ValueError(f"line {code.count(chr(10), 0, opening) + 1}: a brace that is never closed")


def bodies_of(text):
    """(begin, end) of every function's body, without its braces. Functions in functions are part of their bodies."""
    code, bodies = code_only(text), []
    at = start = parentheses = 0
    initialisers = False  # behind the colon of a constructor
    while at < len(code):
        c = code[at]
        if c in "([":
            parentheses += 1
        elif c in ")]":
            parentheses -= 1
        elif c == ":" and parentheses == 0:
            if code[at + 1 : at + 2] == ":":
                at += 1
            elif ACCESS.fullmatch(code[start:at]):
                start = at + 1
            elif ")" in code[start:at] and not is_transparent(code[start:at]):
                initialisers = True
        elif c == ";" and parentheses == 0:
            start, initialisers = at + 1, False
        elif c == "{":
            header = code[start:at]
            if parentheses == 0 and not initialisers and is_transparent(header):
                start = at + 1
            else:
                function = header.rstrip().endswith((")", "}")) if initialisers else is_function(header)
                end = closing_brace(code, at)
                if parentheses == 0 and function:
                    bodies.append((at + 1, end))
                    start, initialisers = end + 1, False
                at = end
        elif c == "}":
            start = at + 1
        at += 1
    return bodies


class Source:
    """A file as lines outside of bodies, in which a mark stands for each body."""

    def __init__(self, text):
        self.text, self.bodies = text, bodies_of(text)
        around, done = "", 0
        self.line_numbers = []
        for begin, end in self.bodies:
            around += text[done:begin] + BODY
            done = end
        self.lines = (around + text[done:]).split("\n")
        self.first_body, line, body = [], 1, 0
        for outside in self.lines:
            self.first_body.append(body)
            self.line_numbers.append(line)
            line += 1 + sum(self.body(i).count("\n") for i in range(body, body + outside.count(BODY)))
            body += outside.count(BODY)

    def body(self, index):
        begin, end = self.bodies[index]
        return self.text[begin:end]

    def raw(self, line):
        """The line as it stands in the file, its bodies included."""
        return self.rendered(line, self.body)

    def rendered(self, line, body):
        parts = self.lines[line].split(BODY)
        first = self.first_body[line]
        return parts[0] + "".join(body(first + i) + part for i, part in enumerate(parts[1:]))


# Merging.


@dataclasses.dataclass
class Change:
    patch: Patch
    bodies: dict[int, str]  # by index in the original
    insertions: dict[int, list[str]]  # lines, by the index of the line they stand before


def pairs_of_lines(original, changed):
    """Pairs of equal lines, all of the original's among them; None if there are other differences than insertions."""
    pairs = []
    for tag, a, end, b, _ in difflib.SequenceMatcher(None, original, changed, autojunk=False).get_opcodes():
        if tag in ("replace", "delete"):
            break
        if tag == "equal":
            pairs += [(a + i, b + i) for i in range(end - a)]
    else:
        return pairs
    pairs, at = [], 0  # difflib does not find every longest common sequence
    for b, line in enumerate(changed):
        if at < len(original) and line == original[at]:
            pairs.append((at, b))
            at += 1
    return pairs if at == len(original) else None


def change_of(patch, path, source):
    changed = Source(applied(patch, path, source.text))
    pairs = pairs_of_lines(source.lines, changed.lines)
    if pairs is None:
        opcodes = difflib.SequenceMatcher(None, source.lines, changed.lines, autojunk=False).get_opcodes()
        at = next(a for tag, a, *_ in opcodes if tag in ("replace", "delete"))
        line = source.lines[at].replace(BODY, "…")
        raise Problem(
            f"{patch.file}: changes line {source.line_numbers[at]} of {path}, which is outside of any function's body: {line!r}. There a patch "
            "may insert whole lines and nothing else (signatures, initialiser lists, members and comments stay): put the fault into a body."
        )
    change = Change(patch, {}, {})
    at = 0
    for a, b in [*pairs, (len(source.lines), len(changed.lines))]:
        if b > at:
            change.insertions.setdefault(a, []).extend(changed.raw(i) for i in range(at, b))
        at = b + 1
    for a, b in pairs:
        for i in range(source.lines[a].count(BODY)):
            body = changed.body(changed.first_body[b] + i)
            if body != source.body(source.first_body[a] + i):
                change.bodies[source.first_body[a] + i] = body
    return change


def with_variants(original, variants):
    """A body that does what the selected patch's does. `variants`: (patch, body)."""
    if not variants:
        return original
    text = "\n"
    for patch, body in variants:
        text += f"// {patch.id}\nif (::fsdp::mutants::is({patch.number})) {{{body}}} else "
    return f"{text}{{{original}}}\n"


def merged(path, text, patches):
    """The file with all patches that change it; itself if none does."""
    touching = [patch for patch in patches if path in patch.hunks]
    if not touching:
        return text
    try:
        source = Source(text)
    except ValueError as unparsable:
        raise Problem(f"{path}: {unparsable}") from None
    changes = [change_of(patch, path, source) for patch in touching]

    def body(index):
        variants = [(change.patch, change.bodies[index]) for change in changes if index in change.bodies]
        return with_variants(source.body(index), variants)

    lines = ['#include "base/selected_mutant.hpp"']
    includes = set()
    for at in range(len(source.lines) + 1):
        for change in changes:
            for line in change.insertions.get(at, []):
                if line.startswith("#include") and line in includes:
                    continue
                includes.add(line)
                lines.append(line)
        if at < len(source.lines):
            lines.append(source.rendered(at, body))
    return "\n".join(lines)


SELECTED_HPP = """\
#pragma once
// Made by impl/mutants/patches.py: which of the patches this process is.
#include <string>
#include <vector>

namespace fsdp::mutants {

extern int selected;  ///< 0: none, the library as it is
extern bool notes_reached;
void note_reached(int number);
/// What is reached from now on is reached by this case.
void begin_case(const std::string& id);
/// To be called before anything else of the library. "none" selects none. False for an id that there is not.
bool select(const std::string& id);
std::vector<std::string> ids();

/// Whether this process is that patch. Asked whenever a function is entered that the patch changes: with
/// FSDP_MUTANTS_REACHED=<folder> in the environment every process writes there, into a file of its own, `case <id>` where
/// a case begins, and then the ids for which it is asked: each at once, since a testee may end in any way.
inline bool is(int number) {
  if (notes_reached) note_reached(number);
  return selected == number;
}

}  // namespace fsdp::mutants
"""

SELECTED_CPP = """\
#include "base/selected_mutant.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <fstream>
#include <mutex>

namespace fsdp::mutants {{
namespace {{

constexpr size_t kPatches = {count};
std::array<std::atomic<bool>, kPatches + 1> reached;

void write_note(const std::string& line) {{
  static std::mutex one_at_a_time;
  const std::lock_guard<std::mutex> lock(one_at_a_time);
  static std::ofstream notes(std::string(std::getenv("FSDP_MUTANTS_REACHED")) + "/" + std::to_string(::getpid()));
  notes << line << std::endl;
}}

}}  // namespace

int selected = 0;
bool notes_reached = std::getenv("FSDP_MUTANTS_REACHED") != nullptr;

void note_reached(int number) {{
  const auto index = static_cast<size_t>(number);
  if (!reached[index].exchange(true)) write_note(ids()[index - 1]);
}}

void begin_case(const std::string& id) {{
  if (!notes_reached) return;
  for (auto& flag : reached) flag = false;
  write_note("case " + id);
}}

// The patch of number 1 comes first.
std::vector<std::string> ids() {{
  return {{
{ids}  }};
}}

bool select(const std::string& id) {{
  if (id == "none") return true;
  const auto known = ids();
  const auto found = std::find(known.begin(), known.end(), id);
  if (found == known.end()) return false;
  selected = static_cast<int>(found - known.begin()) + 1;
  return true;
}}

}}  // namespace fsdp::mutants
"""


def sources_of(folder):
    """Paths below the folder, without the public headers."""
    paths = [file.relative_to(folder).as_posix() for end in ("cpp", "hpp") for file in folder.rglob(f"*.{end}")]
    return sorted(path for path in paths if not path.startswith("include/"))


def apply_all(source, into, patches):
    """Brings `into` up to date and touches nothing that is. Returns how many files were written."""
    contents = {path: (source / path).read_text() for path in sources_of(source)}
    problems = []
    for patch in patches:
        problems += [f"{patch.file}: changes {path}, which is not there" for path in patch.hunks if path not in contents]
    merged_contents = {}
    for path, text in contents.items():
        try:
            merged_contents[path] = merged(path, text, patches)
        except Problem as problem:
            problems.append(str(problem))
    if problems:
        raise Problem("\n".join(problems))
    merged_contents["base/selected_mutant.hpp"] = SELECTED_HPP
    merged_contents["base/selected_mutant.cpp"] = SELECTED_CPP.format(count=len(patches), ids="".join(f'      "{patch.id}",\n' for patch in patches))
    written = 0
    for path, text in merged_contents.items():
        file = into / path
        if file.exists() and file.read_text() == text:
            continue
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        written += 1
    for path in sources_of(into):
        if path not in merged_contents:
            (into / path).unlink()
    return written


# Making one.

TEMPLATE = {
    "group": "NUMBER AND NAME, as in `patches.py list`",
    "sentence": "WHAT IT DOES WRONG",
    "verdict": "fail",
    "code": "OF ITS CONVICTIONS",
    "difference": "WHAT CONVICTS IT FIRST",
    "cases": "ARGUMENTS OF fsdp-cts run",
}


def git(folder, *arguments):
    done = subprocess.run(["git", "-C", folder, *arguments], capture_output=True, text=True)
    if done.returncode != 0:
        raise Problem(f"git {' '.join(arguments)}: {done.stderr.strip()}")
    return done.stdout


def new_patch(name, source, folder):
    """Writes <name>.patch; a header that is there stays. Returns what to say."""
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name):
        raise Problem(f"an id is made of small letters, digits and underscores: {name!r} is not")
    diff = git(source, "diff", "HEAD", "--relative", "--no-color", "--no-ext-diff", "--src-prefix=a/", "--dst-prefix=b/", "--", ".")
    diff = "".join(line for line in diff.splitlines(keepends=True) if not line.startswith(("diff ", "index ")))
    if not diff:
        raise Problem(f"{source} has no uncommitted changes to make a patch of")
    file = folder / f"{name}.patch"
    fields = parse_patch(file).fields if file.exists() else TEMPLATE
    patch = Patch(file, 0, fields, parse_diff(file, diff.splitlines(), 1))
    for path in patch.hunks:
        change_of(patch, path, Source(git(source, "show", f"HEAD:./{path}")))
    file.write_text("".join(f"{name}: {fields[name]}".rstrip() + "\n" for name in FIELDS) + diff)
    filled_in = "" if fields is not TEMPLATE else "Fill in its first lines. "
    return f"wrote {file}. {filled_in}{source} is as you left it; `git checkout HEAD -- {source}` restores it."


def follow(patches, source, since):
    """Writes patches anew that applied to the library of that commit and no longer do: the library's change and the patch's are merged.
    Returns what to say; raises Problem with what is left to be done by hand."""
    written, problems = [], []
    for patch in patches:
        contents = {path: (source / path).read_text() for path in patch.hunks if (source / path).exists()}
        try:
            if contents.keys() == patch.hunks.keys() and all(applied(patch, path, text) for path, text in contents.items()):
                continue
        except Problem:
            pass
        try:
            diff = "".join(diff_of(path, contents[path], carried_over(patch, path, contents[path], source, since)) for path in patch.hunks)
        except (Problem, KeyError) as problem:
            problems.append(str(problem) if isinstance(problem, Problem) else f"{patch.file}: changes {problem}, which is not there")
            continue
        patch.file.write_text("".join(f"{name}: {patch.fields[name]}".rstrip() + "\n" for name in FIELDS) + diff)
        written.append(f"wrote {patch.file}")
    if problems:
        raise Problem("\n".join(written + problems))
    return "\n".join(written) or "all patches apply"


def carried_over(patch, path, now, source, since):
    """The file as it is now, with the patch's change of what it was."""
    before = git(source, "show", f"{since}:./{path}")
    with tempfile.TemporaryDirectory() as folder:
        files = [pathlib.Path(folder, name) for name in ("now", "before", "patched")]
        for file, text in zip(files, (now, before, applied(patch, path, before)), strict=True):
            file.write_text(text)
        merged_files = subprocess.run(["git", "merge-file", "-p", *files], capture_output=True, text=True)
    if merged_files.returncode != 0:
        raise Problem(f"{patch.file}: the library has changed where the patch changes {path}: make the same fault by hand (`patches.py new {patch.id}`)")
    return merged_files.stdout


def diff_of(path, before, after):
    lines = difflib.unified_diff(before.splitlines(True), after.splitlines(True), f"a/{path}", f"b/{path}")
    return "".join(lines)


def table(patches):
    columns = ("group", "verdict", "code", "sentence")
    rows = [(str(patch.number), patch.id, *(patch.fields[column] for column in columns)) for patch in patches]
    widths = [max((len(row[i]) for row in rows), default=0) for i in range(5)]
    return "".join("  ".join([*(cell.ljust(width) for cell, width in zip(row, widths)), row[5]]) + "\n" for row in rows)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--patches", type=pathlib.Path, default=HERE, help="folder of the patches (default: that of this program)")
    commands = parser.add_subparsers(dest="command", required=True)
    listing = commands.add_parser("list", help="all mutants")
    listing.add_argument("--json", action="store_true", help="for programs")
    applying = commands.add_parser("apply", help="merge all patches into a copy of the sources")
    applying.add_argument("--source", type=pathlib.Path, required=True, help="the library: impl/fsdp")
    applying.add_argument("--into", type=pathlib.Path, required=True, help="folder of the copy")
    making = commands.add_parser("new", help="make a patch of the uncommitted changes of the library")
    making.add_argument("id", help="what the mutant is called; that of an existing one writes its diff anew")
    making.add_argument("--source", type=pathlib.Path, default=HERE.parent / "fsdp", help="the library (default: %(default)s)")
    following = commands.add_parser("follow", help="carry patches along that a change of the library has left behind")
    following.add_argument("--source", type=pathlib.Path, default=HERE.parent / "fsdp", help="the library (default: %(default)s)")
    following.add_argument("--since", default="HEAD", metavar="COMMIT", help="when they still applied (default: %(default)s)")
    arguments = parser.parse_args()
    try:
        if arguments.command == "new":
            print(new_patch(arguments.id, arguments.source, arguments.patches))
            return
        patches = all_patches(arguments.patches)
        if arguments.command == "follow":
            print(follow(patches, arguments.source, arguments.since))
        elif arguments.command == "apply":
            apply_all(arguments.source, arguments.into, patches)
        elif arguments.json:
            print(json.dumps([patch.as_json() for patch in patches], indent=1))
        else:
            print(table(patches), end="")
    except Problem as problem:
        sys.exit(f"patches.py: {problem}")


if __name__ == "__main__":
    main()
