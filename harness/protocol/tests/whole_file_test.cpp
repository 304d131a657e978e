// A file is there as a whole or as it was, and nothing lies beside it.
#include "harness/protocol/whole_file.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>
#include <system_error>

namespace fsdp_cts {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class WholeFile : public ::testing::Test {
 protected:
  void SetUp() override { fs::create_directories(folder); }
  void TearDown() override { fs::remove_all(folder); }

  static std::string content(const fs::path& file) {
    std::ostringstream all;
    all << std::ifstream(file, std::ios::binary).rdbuf();
    return all.str();
  }
  std::size_t files() const {
    return static_cast<std::size_t>(std::distance(fs::directory_iterator(folder), fs::directory_iterator()));
  }

  const fs::path folder = fs::path(::testing::TempDir()) / "whole_file_test";
};

TEST_F(WholeFile, ReplacesWhatWasThere) {
  write_whole_file(folder / "a.json", "first, and longer");
  write_whole_file(folder / "a.json", "second");
  EXPECT_EQ(content(folder / "a.json"), "second");
  EXPECT_EQ(files(), 1);
}

TEST_F(WholeFile, MakesFoldersOnlyWhenAsked) {
  const fs::path file = folder / "b" / "c" / "d.json";
  EXPECT_THROW(write_whole_file(file, "x"), std::system_error);
  EXPECT_EQ(files(), 0);
  write_whole_file_and_folders(file, "x");
  EXPECT_EQ(content(file), "x");
  EXPECT_THROW(write_whole_file_and_folders(file / "below", "x"), std::system_error);
}

TEST_F(WholeFile, ReadersOfTheOldOneKeepIt) {
  write_whole_file(folder / "a.json", "first");
  std::ifstream reader(folder / "a.json");
  write_whole_file(folder / "a.json", "second");
  std::string line;
  std::getline(reader, line);
  EXPECT_EQ(line, "first") << "written in place";
}

TEST_F(WholeFile, WhatCannotBeWrittenIsNamedAndLeavesNothing) {
  fs::create_directories(folder / "a.json" / "inside");  // a folder that is not empty cannot be replaced
  try {
    write_whole_file(folder / "a.json", "x");
    FAIL();
  } catch (const std::system_error& error) {
    EXPECT_THAT(error.what(), HasSubstr("cannot write " + (folder / "a.json").string()));
  }
  EXPECT_EQ(files(), 1);
}

}  // namespace
}  // namespace fsdp_cts
