#include "harness/protocol/safetensors.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <system_error>

namespace fsdp_cts {
namespace {

class SafetensorsFile : public testing::Test {
 protected:
  SafetensorsFile() {
    std::string pattern = (std::filesystem::temp_directory_path() / "safetensors-XXXXXX").string();
    folder = ::mkdtemp(pattern.data());
  }
  ~SafetensorsFile() override { std::filesystem::remove_all(folder); }
  std::filesystem::path folder;
};

TensorMap sample() {
  return {{"bytes", make_tensor(DType::int8, {3}, {1, 2, 3})},
          {"wide", make_tensor(DType::float64, {2}, {0.5, -1})},
          {"half", make_tensor(DType::bfloat16, {1, 2}, {1, 2})},
          {"scalar", make_tensor(DType::int64, {}, {7})},
          {"nothing", make_tensor(DType::float32, {0, 4}, {})}};
}

void expect_same(const TensorMap& actual, const TensorMap& expected) {
  ASSERT_EQ(actual.size(), expected.size());
  for (const auto& [name, tensor] : expected) {
    ASSERT_TRUE(actual.count(name)) << name;
    EXPECT_EQ(actual.at(name).dtype, tensor.dtype) << name;
    EXPECT_EQ(actual.at(name).shape, tensor.shape) << name;
    EXPECT_EQ(actual.at(name).bytes, tensor.bytes) << name;
  }
}

TEST_F(SafetensorsFile, WhatIsWrittenIsReadBack) {
  write_safetensors(folder / "x.safetensors", sample());
  expect_same(read_safetensors(folder / "x.safetensors"), sample());
  expect_same(parse_safetensors(serialize_safetensors(sample()), "memory"), sample());
}

TEST_F(SafetensorsFile, HeaderAndTensorsBeyondTheFirstRead) {
  TensorMap tensors;
  for (int i = 0; i < 2000; ++i)
    tensors["a rather long tensor name " + std::to_string(i)] =
        make_tensor(DType::int32, {2}, {1.0 * i, -1.0 * i});
  tensors["large"] = make_tensor(DType::float32, {100'000}, std::vector<double>(100'000, 0.25));
  write_safetensors(folder / "large.safetensors", tensors);
  expect_same(read_safetensors(folder / "large.safetensors"), tensors);
}

TEST_F(SafetensorsFile, NothingIsLeftBesideTheFile) {
  write_safetensors(folder / "x.safetensors", sample());
  write_safetensors(folder / "x.safetensors", {});
  EXPECT_TRUE(read_safetensors(folder / "x.safetensors").empty());
  std::vector<std::filesystem::path> found;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    found.push_back(entry.path().filename());
  EXPECT_THAT(found, testing::ElementsAre("x.safetensors"));
}

TEST_F(SafetensorsFile, AFailedWriteLeavesTheOldFileAndNoRemains) {
  write_safetensors(folder / "x.safetensors", sample());
  std::filesystem::create_directory(folder / "x");
  std::ofstream(folder / "x" / "occupied") << "1";
  EXPECT_THROW(write_safetensors(folder / "x", sample()), std::system_error);  // a folder cannot be replaced
  EXPECT_THROW(write_safetensors(folder / "absent" / "x", sample()), std::system_error);
  expect_same(read_safetensors(folder / "x.safetensors"), sample());
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder), {}), 2);
}

TEST_F(SafetensorsFile, UnreadablePathsAreSystemErrors) {
  EXPECT_THROW(read_safetensors(folder / "absent"), std::system_error);
}

TEST(Serialize, BytesAreDeterministicAlignedAndSorted) {
  const std::string bytes = serialize_safetensors(sample());
  EXPECT_EQ(bytes, serialize_safetensors(sample()));
  const std::string header = bytes.substr(8, bytes.find_last_of('}') - 7);
  EXPECT_EQ(header, R"({"bytes":{"data_offsets":[28,31],"dtype":"I8","shape":[3]},)"
                    R"("half":{"data_offsets":[24,28],"dtype":"BF16","shape":[1,2]},)"
                    R"("nothing":{"data_offsets":[24,24],"dtype":"F32","shape":[0,4]},)"
                    R"("scalar":{"data_offsets":[0,8],"dtype":"I64","shape":[]},)"
                    R"("wide":{"data_offsets":[8,24],"dtype":"F64","shape":[2]}})");
  EXPECT_EQ((bytes.size() - 31) % 8, 0u);
}

TEST(Serialize, RefusesATensorWhoseBytesDoNotFitItsShape) {
  EXPECT_THROW(serialize_safetensors({{"x", HostTensor{DType::float32, {2}, std::vector<std::byte>(4)}}}),
               std::invalid_argument);
}

}  // namespace
}  // namespace fsdp_cts
