// A corpus of files that lie. Each must be refused with its own code; where the rules agree with the format's
// own reader, that reader refuses the file too. Stricter than it on purpose: duplicate names, unknown fields,
// leading white space, `__metadata__: null`, element types the suite does not use.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <functional>

#include "harness/protocol/safetensors.hpp"

namespace fsdp_cts {
namespace {

std::string with_length(std::uint64_t length, const std::string& rest) {
  std::string bytes(8, '\0');
  std::memcpy(bytes.data(), &length, 8);
  return bytes + rest;
}

std::string file_of(const std::string& header, std::size_t data_bytes) {
  return with_length(header.size(), header + std::string(data_bytes, 'x'));
}

const std::string one_float = R"("a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]})";

std::string one(const std::string& fields) {
  return R"({"a":{)" + fields + "}}";
}

struct Lie {
  const char* name;
  std::string bytes;
  const char* code;
};

std::vector<Lie> lies() {
  const std::string both = R"("dtype":"F32","shape":[1])";
  return {
      {"EmptyFile", "", "too_short"},
      {"CutInTheLength", "1234567", "too_short"},
      {"LengthBeyondTheLimit", with_length(100'000'001, std::string(64, ' ')), "header_too_large"},
      {"LengthOfAllOnes", with_length(~0ull, "{}"), "header_too_large"},
      {"LengthBeyondTheFile", with_length(50, "{}"), "header_beyond_file"},
      {"NoHeader", file_of("", 0), "header_start"},
      {"LeadingSpace", file_of(" {" + one_float + "}", 4), "header_start"},
      {"ByteOrderMark", file_of("\xEF\xBB\xBF{" + one_float + "}", 4), "header_start"},
      {"HeaderIsAList", file_of("[]", 0), "header_start"},
      {"InvalidUtf8", file_of("{\"\xFF\":1}", 4), "header_utf8"},
      {"OverlongUtf8", file_of("{\"\xC0\x80\":1}", 4), "header_utf8"},
      {"SurrogateInUtf8", file_of("{\"\xED\xA0\x80\":1}", 4), "header_utf8"},
      {"CutUtf8", file_of("{\"\xE2\x82", 4), "header_utf8"},
      {"CutJson", file_of("{" + one_float, 4), "header_json"},
      {"JunkBehindTheObject", file_of("{" + one_float + "}x", 4), "header_json"},
      {"SecondObject", file_of("{}{}", 0), "header_json"},
      {"ZeroByteHidesTheRest", file_of("{" + one_float + "}" + std::string(2, '\0'), 4), "header_json"},
      {"RawControlCharacter", file_of("{\"a\n\":1}", 4), "header_json"},
      {"LoneSurrogateEscape", file_of(R"({"\ud800":1})", 4), "header_json"},
      {"DeepNesting", file_of(R"({"a":)" + std::string(200'000, '[') + "}", 0), "entry_type"},
      {"TensorTwice", file_of("{" + one_float + "," + one_float + "}", 4), "duplicate_tensor"},
      {"TensorTwiceByEscape", file_of("{" + one_float + R"(,"\u0061":{}})", 4), "duplicate_tensor"},
      {"FieldTwice", file_of(one(both + R"(,"data_offsets":[0,4],"dtype":"F32")"), 4), "duplicate_field"},
      {"MetadataTwice", file_of(R"({"__metadata__":{},"__metadata__":{}})", 0), "duplicate_metadata"},
      {"MetadataKeyTwice", file_of(R"({"__metadata__":{"k":"1","k":"2"}})", 0), "duplicate_metadata"},
      {"MetadataNumber", file_of(R"({"__metadata__":{"k":1}})", 0), "metadata_type"},
      {"MetadataNested", file_of(R"({"__metadata__":{"k":{}}})", 0), "metadata_type"},
      {"MetadataNull", file_of(R"({"__metadata__":null})", 0), "metadata_type"},
      {"EntryIsANumber", file_of(R"({"a":5})", 0), "entry_type"},
      {"EntryIsAList", file_of(R"({"a":["F32",[1],[0,4]]})", 4), "entry_type"},
      {"NoDtype", file_of(one(R"("shape":[1],"data_offsets":[0,4])"), 4), "field_missing"},
      {"NoOffsets", file_of(one(both), 4), "field_missing"},
      {"UnknownField", file_of(one(both + R"(,"data_offsets":[0,4],"strides":[1])"), 4), "field_unknown"},
      {"DtypeIsANumber", file_of(one(R"("dtype":32,"shape":[1],"data_offsets":[0,4])"), 4), "dtype_type"},
      {"DtypeUnknown", file_of(one(R"("dtype":"F31","shape":[1],"data_offsets":[0,4])"), 4), "dtype_unknown"},
      {"DtypeForeign", file_of(one(R"("dtype":"F8_E4M3","shape":[4],"data_offsets":[0,4])"), 4),
       "dtype_unsupported"},
      {"ShapeIsANumber", file_of(one(R"("dtype":"F32","shape":1,"data_offsets":[0,4])"), 4), "shape_type"},
      {"ShapeHasAFraction", file_of(one(R"("dtype":"F32","shape":[1.0],"data_offsets":[0,4])"), 4),
       "shape_type"},
      {"ShapeIsNested", file_of(one(R"("dtype":"F32","shape":[[1]],"data_offsets":[0,4])"), 4), "shape_type"},
      {"ShapeIsNegative", file_of(one(R"("dtype":"F32","shape":[-1,-1],"data_offsets":[0,4])"), 4),
       "shape_negative"},
      {"ShapeOverflows",
       file_of(one(R"("dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0])"), 0),
       "shape_overflow"},
      {"ShapeOverflowsBeforeAZero",
       file_of(one(R"("dtype":"F32","shape":[4294967296,4294967296,0],"data_offsets":[0,0])"), 0),
       "shape_overflow"},
      {"DimensionBeyond63Bits",
       file_of(one(R"("dtype":"F32","shape":[0,18446744073709551615],"data_offsets":[0,0])"), 0),
       "shape_overflow"},
      {"OneOffset", file_of(one(both + R"(,"data_offsets":[0])"), 4), "offsets_type"},
      {"ThreeOffsets", file_of(one(both + R"(,"data_offsets":[0,4,4])"), 4), "offsets_type"},
      {"NegativeOffset", file_of(one(both + R"(,"data_offsets":[-4,0])"), 4), "offsets_type"},
      {"OffsetBeyond64Bits", file_of(one(both + R"(,"data_offsets":[0,18446744073709551616])"), 4),
       "offsets_type"},
      {"OffsetsReversed", file_of(one(both + R"(,"data_offsets":[4,0])"), 4), "offsets_reversed"},
      {"OffsetsOverlap",
       file_of("{" + one_float + R"(,"b":{"dtype":"F32","shape":[1],"data_offsets":[2,6]}})", 6),
       "offsets_overlap"},
      {"SameBytesTwice",
       file_of("{" + one_float + R"(,"b":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", 4),
       "offsets_overlap"},
      {"HoleAtTheStart", file_of(one(both + R"(,"data_offsets":[4,8])"), 8), "offsets_hole"},
      {"HoleInTheMiddle",
       file_of("{" + one_float + R"(,"b":{"dtype":"F32","shape":[1],"data_offsets":[8,12]}})", 12),
       "offsets_hole"},
      {"SizeNotThatOfTheShape", file_of(one(R"("dtype":"F32","shape":[2],"data_offsets":[0,4])"), 4),
       "size_mismatch"},
      {"SizeNotThatOfTheDtype", file_of(one(R"("dtype":"F16","shape":[1],"data_offsets":[0,4])"), 4),
       "size_mismatch"},
      {"DataMissing", file_of("{" + one_float + "}", 3), "data_missing"},
      {"DataTrailing", file_of("{" + one_float + "}", 5), "data_trailing"},
      {"DataWithoutTensors", file_of("{}", 1), "data_trailing"},
  };
}

std::string code_of(const std::function<void()>& read) {
  try {
    read();
  } catch (const SafetensorsError& error) {
    EXPECT_NE(std::string(error.what()).find(error.code), std::string::npos) << "a message names its code";
    return error.code;
  }
  return "accepted";
}

class Hostile : public testing::TestWithParam<Lie> {};

TEST_P(Hostile, IsRefusedWithItsCode) {
  const std::string path = testing::TempDir() + "hostile-" + std::to_string(::getpid()) + ".safetensors";
  std::ofstream(path, std::ios::binary) << GetParam().bytes;
  EXPECT_EQ(code_of([&] { parse_safetensors(GetParam().bytes, "memory"); }), GetParam().code);
  EXPECT_EQ(code_of([&] { read_safetensors(path); }), GetParam().code);
  ::unlink(path.c_str());
}

INSTANTIATE_TEST_SUITE_P(Corpus, Hostile, testing::ValuesIn(lies()),
                         [](const auto& lie) { return lie.param.name; });

TEST(HostilePaths, FoldersPipesAndGiantsAreRefused) {
  EXPECT_EQ(code_of([] { read_safetensors(testing::TempDir()); }), "not_regular_file");
  const std::string path = testing::TempDir() + "hostile-path-" + std::to_string(::getpid());
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  EXPECT_EQ(code_of([&] { read_safetensors(path); }), "not_regular_file");
  ::unlink(path.c_str());
  std::ofstream(path) << file_of("{}", 0);
  ASSERT_EQ(::truncate(path.c_str(), (off_t{4} << 30) + 1), 0);
  EXPECT_EQ(code_of([&] { read_safetensors(path); }), "file_too_large");
  ::unlink(path.c_str());
}

TEST(Benign, WhatTheFormatAllowsIsAccepted) {
  for (const std::string& bytes :
       {file_of("{}", 0), file_of(R"({"__metadata__":{"k":"v"}})", 0), file_of("{" + one_float + "}   ", 4),
        file_of(R"({"b":{"shape":[1],"data_offsets":[4,8],"dtype":"F32"},)" + one_float + "}", 8),
        file_of(R"({"":{"dtype":"F32","shape":[0,4294967296],"data_offsets":[0,0]},)" + one_float + "}", 4)})
    EXPECT_EQ(code_of([&] { parse_safetensors(bytes, "memory"); }), "accepted") << bytes.substr(8);
}

}  // namespace
}  // namespace fsdp_cts
