// What a damaged copy of a checkpoint lacks, and that the checkpoint itself lacks nothing.
#include "harness/runner/checkpoints.hpp"

#include <gmock/gmock.h>
#include <unistd.h>

#include <fstream>
#include <map>

namespace fsdp_cts {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;
namespace fs = std::filesystem;

class CopyDamaged : public ::testing::Test {
 protected:
  CopyDamaged()
      : folder_(fs::path(::testing::TempDir()) / ("checkpoints_test." + std::to_string(::getpid()))) {
    fs::create_directories(saved() / "inner");
    std::ofstream(saved() / "a") << "1234";
    std::ofstream(saved() / "inner" / "b") << "123456789";
    std::ofstream(saved() / "z") << "12";
  }
  ~CopyDamaged() override { fs::remove_all(folder_); }

  fs::path saved() const { return folder_ / "saved"; }
  fs::path copy() const { return folder_ / "copy"; }

  static std::map<std::string, std::uintmax_t> sizes(const fs::path& folder) {
    std::map<std::string, std::uintmax_t> result;
    for (const auto& entry : fs::recursive_directory_iterator(folder))
      if (entry.is_regular_file()) result[fs::relative(entry.path(), folder)] = entry.file_size();
    return result;
  }
  std::map<std::string, std::uintmax_t> after(const Damage& damage) const {
    copy_damaged(saved(), damage, copy());
    return sizes(copy());
  }

 private:
  fs::path folder_;
};

TEST_F(CopyDamaged, LacksTheFileThatIsMeant) {
  EXPECT_THAT(after({"first", "removed"}), ElementsAre(Pair("inner/b", 9), Pair("z", 2)));
  EXPECT_THAT(after({"last", "removed"}), ElementsAre(Pair("a", 4), Pair("inner/b", 9)));
  EXPECT_THAT(after({"largest", "removed"}), ElementsAre(Pair("a", 4), Pair("z", 2)));
}

TEST_F(CopyDamaged, EndsAtHalf) {
  EXPECT_THAT(after({"largest", "truncated"}), ElementsAre(Pair("a", 4), Pair("inner/b", 4), Pair("z", 2)));
}

TEST_F(CopyDamaged, GoesOnBehindItsEnd) {
  EXPECT_THAT(after({"largest", "extended"}), ElementsAre(Pair("a", 4), Pair("inner/b", 17), Pair("z", 2)));
}

TEST_F(CopyDamaged, HasAnotherLastByte) {
  EXPECT_THAT(after({"largest", "altered"}), ElementsAre(Pair("a", 4), Pair("inner/b", 9), Pair("z", 2)));
  const auto read = [](const fs::path& file) {
    std::ifstream stream(file, std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(stream), {});
  };
  const std::string was = read(saved() / "inner/b"), is = read(copy() / "inner/b");
  EXPECT_EQ(is.substr(0, 8), was.substr(0, 8));
  EXPECT_NE(is.back(), was.back());
}

TEST_F(CopyDamaged, LeavesTheCheckpointAndNothingOfAnOlderCopy) {
  fs::create_directories(copy());
  std::ofstream(copy() / "older") << "1";
  EXPECT_THAT(after({"last", "truncated"}), ElementsAre(Pair("a", 4), Pair("inner/b", 9), Pair("z", 1)));
  EXPECT_THAT(sizes(saved()), ElementsAre(Pair("a", 4), Pair("inner/b", 9), Pair("z", 2)));
}

}  // namespace
}  // namespace fsdp_cts
