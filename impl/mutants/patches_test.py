"""Tests of patches.py, on a library of two files."""

import contextlib
import io
import pathlib
import re
import subprocess
import tempfile
import unittest
import unittest.mock

import patches

UNIT = """\
#include "flat/unit.hpp"

#include <utility>

namespace fsdp::flat {
namespace {

// A brace { in a comment, and one in a string: see below.
const char* const kText = "}{";
constexpr int kSizes[] = {1'000, 2};

class Sum {
 public:
  explicit Sum(int begin) : total_{begin}, steps_(0) {}
  void add(int value) override { total_ += value; }
  int total() const noexcept { return total_; }

 private:
  int total_ = 0;
  int steps_;
};

}  // namespace

int twice(int value) {
  if (value == '}') return 0;
  return value * 2;
}

Unit::Unit(int rank)
    : rank_(rank),
      ranks_{4} {
  ready_ = true;
}

template <class T>
auto Unit::length(const T& of) const -> decltype(of.size()) {
  return of.size();
}

}  // namespace fsdp::flat
"""

LAYOUT = """\
#include "base/layout.hpp"

int aligned(int value) { return (value + 7) / 8 * 8; }
"""

HEADER = """\
group: 1 reduction
sentence: Something is wrong.
verdict: fail
code: value
difference: a value is another one
cases: 'F2MP/*' --world 2
"""


class OfALibrary(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.source, self.into, self.patches = (self.folder / name for name in ("library", "merged", "patches"))
        self.patches.mkdir()
        self.write("flat/unit.cpp", UNIT)
        self.write("flat/unit.hpp", "#pragma once\n")
        self.write("base/layout.cpp", LAYOUT)
        self.write("include/fsdp/public.hpp", "#pragma once\n")

    def write(self, path, text):
        file = self.source / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def git(self, *arguments):
        identity = ("-c", "user.name=nobody", "-c", "user.email=nobody@localhost")
        return subprocess.run(["git", "-C", self.source, *identity, *arguments], check=True, capture_output=True, text=True).stdout

    def patch(self, name, *replacements, path="flat/unit.cpp", header=HEADER):
        """A patch that replaces texts of a file."""
        before = (self.source / path).read_text()
        after = before
        for old, new in replacements:
            self.assertIn(old, after)
            after = after.replace(old, new)
        lines = (text.splitlines(keepends=True) for text in (before, after))
        diff = "".join(patches.difflib.unified_diff(*lines, f"a/{path}", f"b/{path}"))
        (self.patches / f"{name}.patch").write_text(header + diff)

    def apply(self):
        return patches.apply_all(self.source, self.into, patches.all_patches(self.patches))

    def merged(self, path="flat/unit.cpp"):
        """Without indentation."""
        self.apply()
        return re.sub(r"\n\s*", "\n", (self.into / path).read_text())

    def refused(self):
        with self.assertRaises(patches.Problem) as caught:
            self.apply()
        return str(caught.exception)


class Merging(OfALibrary):
    def test_two_mutants_of_one_function_are_two_variants(self):
        self.patch("a_thrice", ("value * 2", "value * 3"))
        self.patch("b_always", ("  if (value == '}') return 0;\n", ""))
        self.assertIn(
            """int twice(int value) {
// a_thrice
if (::fsdp::mutants::is(1)) {
if (value == '}') return 0;
return value * 3;
} else // b_always
if (::fsdp::mutants::is(2)) {
return value * 2;
} else {
if (value == '}') return 0;
return value * 2;
}
}
""",
            self.merged(),
        )

    def test_inline_method_of_a_class_in_an_anonymous_namespace(self):
        self.patch("lost", ("{ total_ += value; }", "{}"))
        merged = "void add(int value) override {\n// lost\nif (::fsdp::mutants::is(1)) {} else { total_ += value; }\n}"
        self.assertIn(merged, self.merged())

    def test_body_of_a_constructor(self):
        self.patch("never_ready", ("  ready_ = true;\n", "  ready_ = false;\n"))
        merged = "ranks_{4} {\n// never_ready\nif (::fsdp::mutants::is(1)) {\nready_ = false;\n} else {\nready_ = true;\n}\n}"
        self.assertIn(merged, self.merged())

    def test_insertions_outside_of_bodies_stand_where_they_were_put(self):
        helper = "class Wrong%s {\n public:\n  int value = %s;\n};\n\n"
        more = ("#include <utility>\n", "#include <utility>\n#include <vector>\n")
        self.patch("a", more, ("}  // namespace\n", helper % ("A", 1) + "}  // namespace\n"), ("return value * 2", "return WrongA().value"))
        self.patch("b", more, ("}  // namespace\n", helper % ("B", 2) + "}  // namespace\n"), ("return value * 2", "return WrongB().value"))
        merged = self.merged()
        self.assertEqual(merged.count("#include <vector>"), 1)
        for name in "AB":
            self.assertIn(re.sub(r"\n\s*", "\n", helper % (name, "AB".index(name) + 1)), merged)
        self.assertLess(merged.index("class WrongB"), merged.index("}  // namespace\n"))

    def test_only_files_that_a_patch_changes_get_variants(self):
        self.patch("unaligned", ("(value + 7) / 8 * 8", "value"), path="base/layout.cpp")
        self.apply()
        self.assertTrue((self.into / "base/layout.cpp").read_text().startswith('#include "base/selected_mutant.hpp"\n'))
        self.assertEqual((self.into / "flat/unit.cpp").read_text(), UNIT)
        self.assertFalse((self.into / "include").exists())

    def test_a_patch_applies_on_other_lines_too(self):
        self.patch("thrice", ("value * 2", "value * 3"))
        self.write("flat/unit.cpp", UNIT.replace("#include <utility>\n", "#include <map>\n#include <utility>\n"))
        self.assertIn("return value * 3;", self.merged())

    def test_nothing_is_written_that_is_up_to_date_and_nothing_stays_that_is_gone(self):
        self.patch("thrice", ("value * 2", "value * 3"))
        self.write("flat/gone.hpp", "#pragma once\n")
        self.assertEqual(self.apply(), 6)
        self.assertEqual(self.apply(), 0)
        (self.source / "flat/gone.hpp").unlink()
        self.patch("thrice", ("value * 2", "value * 4"))
        self.assertEqual(self.apply(), 1)
        self.assertFalse((self.into / "flat/gone.hpp").exists())

    def test_numbers_follow_the_order_of_ids(self):
        for name in ("b", "a"):
            self.patch(name, ("value * 2", f"value * 3  /* {name} */"))
        self.assertIn('"a",\n"b",\n', self.merged("base/selected_mutant.cpp"))
        self.assertRegex(self.merged(), r"// a\nif \(::fsdp::mutants::is\(1\)\)")


class Refusals(OfALibrary):
    def test_a_patch_that_no_longer_applies(self):
        self.patch("thrice", ("value * 2", "value * 3"))
        self.write("flat/unit.cpp", UNIT.replace("value * 2", "2 * value"))
        refusal = self.refused()
        self.assertIn("thrice.patch:9: does not apply to flat/unit.cpp: line 27 is '  return 2 * value;'", refusal)
        self.assertIn("where the patch expects '  return value * 2;'", refusal)

    def test_a_changed_signature(self):
        self.patch("wide", ("int twice(int value)", "long twice(int value)"))
        self.assertIn("wide.patch: changes line 25 of flat/unit.cpp, which is outside of any function's body", self.refused())
        self.assertIn("'int twice(int value) {…}'", self.refused())
        self.assertIn("put the fault into a body", self.refused())

    def test_a_changed_initialiser_list(self):
        self.patch("first", ("rank_(rank)", "rank_(0)"))
        self.assertIn("changes line 31 of flat/unit.cpp", self.refused())

    def test_a_removed_member(self):
        self.patch("no_steps", ("  int steps_;\n", ""))
        self.assertIn("changes line 20 of flat/unit.cpp", self.refused())

    def test_a_patch_of_a_header(self):
        self.patch("header", ("#pragma once\n", "#pragma once\nint more;\n"), path="flat/unit.hpp")
        self.assertIn("header.patch:8: changes flat/unit.hpp; only .cpp files may be changed", self.refused())

    def test_a_patch_of_a_file_that_is_not_there(self):
        self.patch("thrice", ("value * 2", "value * 3"))
        (self.source / "flat/unit.cpp").unlink()
        self.assertIn("thrice.patch: changes flat/unit.cpp, which is not there", self.refused())

    def test_an_incomplete_header(self):
        self.patch("nameless", ("value * 2", "value * 3"), header=HEADER.replace("code: value\n", ""))
        self.assertIn("nameless.patch: the line `code: …` is missing or empty", self.refused())

    def test_all_problems_are_shown_at_once(self):
        self.patch("wide", ("int twice(int value)", "long twice(int value)"))
        self.patch("wider", ("int aligned(int value)", "long aligned(int value)"), path="base/layout.cpp")
        self.assertEqual(len(self.refused().splitlines()), 2)


class Making(OfALibrary):
    def setUp(self):
        super().setUp()
        self.git("init", "--quiet")
        self.git("add", ".")
        self.git("commit", "--quiet", "-m", "A library")

    def test_a_new_patch_asks_for_its_header_and_leaves_the_sources(self):
        self.write("flat/unit.cpp", UNIT.replace("value * 2", "value * 3"))
        said = patches.new_patch("thrice", self.source, self.patches)
        self.assertIn("Fill in its first lines", said)
        self.assertIn("git checkout HEAD", said)
        self.assertIn("value * 3", (self.source / "flat/unit.cpp").read_text())
        self.assertTrue((self.patches / "thrice.patch").read_text().startswith("group: NUMBER AND NAME"))
        self.git("checkout", "HEAD", "--", ".")
        self.assertIn("return value * 3;", self.merged())

    def test_the_header_of_an_existing_patch_stays(self):
        self.patch("thrice", ("value * 2", "value * 3"))
        self.write("flat/unit.cpp", UNIT.replace("value * 2", "value * 4"))
        patches.new_patch("thrice", self.source, self.patches)
        text = (self.patches / "thrice.patch").read_text()
        self.assertTrue(text.startswith(HEADER))
        self.assertIn("+  return value * 4;", text)

    def test_what_cannot_be_merged_is_refused_at_once(self):
        self.write("flat/unit.cpp", UNIT.replace("int twice(int value)", "long twice(int value)"))
        with self.assertRaisesRegex(patches.Problem, "put the fault into a body"):
            patches.new_patch("wide", self.source, self.patches)
        self.assertEqual(list(self.patches.iterdir()), [])

    def follow(self):
        return patches.follow(patches.all_patches(self.patches), self.source, "HEAD")

    def test_a_patch_follows_a_change_beside_it_and_keeps_its_header(self):
        self.patch("thrice", ("value * 2", "value * 3"))
        self.write("flat/unit.cpp", UNIT.replace("int twice(int value) {\n", "int twice(int value) {\n  ++value;\n"))
        self.assertIn("try `patches.py follow`", self.refused())
        self.assertIn("wrote", self.follow())
        text = (self.patches / "thrice.patch").read_text()
        self.assertTrue(text.startswith(HEADER))
        self.assertIn(" ++value;", text)
        self.assertIn("++value;\nif (value == '}') return 0;\nreturn value * 3;", self.merged())
        self.assertEqual(self.follow(), "all patches apply")

    def test_a_patch_of_lines_that_changed_is_left_to_a_person_and_others_follow(self):
        self.patch("always_ready", ("ready_ = true", "ready_ = false"))
        self.patch("thrice", ("value * 2", "value * 3"))
        before = (self.patches / "thrice.patch").read_text()
        self.write("flat/unit.cpp", UNIT.replace("value * 2", "value * 8").replace(": rank_(rank)", ": rank_(rank + 0)"))
        with self.assertRaisesRegex(patches.Problem, "(?s)wrote .*always_ready.*thrice.*by hand"):
            self.follow()
        self.assertEqual((self.patches / "thrice.patch").read_text(), before)

    def test_no_change_is_no_patch(self):
        with self.assertRaisesRegex(patches.Problem, "no uncommitted changes"):
            patches.new_patch("nothing", self.source, self.patches)


class Listing(OfALibrary):
    def listed(self, *arguments):
        output = io.StringIO()
        line = ["patches.py", "--patches", str(self.patches), "list", *arguments]
        with unittest.mock.patch("sys.argv", line), contextlib.redirect_stdout(output):
            patches.main()
        return output.getvalue()

    def test_fields_and_words_of_the_cases(self):
        self.patch("thrice", ("value * 2", "value * 3"))
        self.assertEqual(
            patches.json.loads(self.listed("--json")),
            [
                {
                    "id": "thrice",
                    "group": "1 reduction",
                    "sentence": "Something is wrong.",
                    "verdict": "fail",
                    "code": "value",
                    "difference": "a value is another one",
                    "cases": ["F2MP/*", "--world", "2"],
                }
            ],
        )
        self.assertEqual(self.listed(), "1  thrice  1 reduction  fail  value  Something is wrong.\n")


if __name__ == "__main__":
    unittest.main()
