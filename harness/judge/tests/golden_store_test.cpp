// The store gives back what it was given, and says four different things when it cannot.
#include "harness/judge/golden_store.hpp"

#include <gtest/gtest.h>

#include <fstream>

#include "harness/judge/recording.hpp"
#include "harness/judge/tests/hand_made.hpp"
#include "harness/protocol/sha256.hpp"

namespace fsdp_cts {
namespace {

namespace fs = std::filesystem;

class GoldenStoreTest : public ::testing::Test {
 protected:
  void SetUp() override {
    root_ = fs::path(::testing::TempDir()) /
            ("golden-" + std::string(::testing::UnitTest::GetInstance()->current_test_info()->name()));
    fs::remove_all(root_);
    made_.a_case.expect = Json::parse(R"([{"equal": {"what": ["recorded"], "to": ["golden"]}}])");
    GoldenStore(root_).save(made_.a_case, made_.golden.evidence, hello_);
  }
  void TearDown() override { fs::remove_all(root_); }

  std::string problem() const {
    const OwnedTruth truth = GoldenStore(root_).load(made_.a_case);
    if (!truth.problem) return "";
    EXPECT_EQ(truth.problem->kind, VerdictKind::setup_error);
    EXPECT_NE(
        truth.problem->summary.find("fsdp-cts run 'T/Class/test' --testee pytorch --record golden/store"),
        std::string::npos)
        << truth.problem->summary;
    return truth.problem->code;
  }
  fs::path blob(const std::string& extension) const {
    for (const auto& file : fs::recursive_directory_iterator(root_ / "blobs")) {
      if (file.path().extension() == extension) return file.path();
    }
    return {};
  }

  const Json hello_{{"implementation", {{"name", "pytorch"}, {"version", "2.11.0"}}},
                    {"environment", {{"torch_git", "70d99e9"}, {"composable", "a rebuilt front door"}}},
                    {"reduction_order", "ring"}};
  HandMade made_;
  fs::path root_;
};

TEST_F(GoldenStoreTest, WhatNeedsAnAcceleratorIsRecordedOnTheSimulatedOne) {
  made_.a_case.requires_ = {"gpu"};
  EXPECT_EQ(record_command(made_.a_case),
            "fsdp-cts run 'T/Class/test' --testee pytorch --device sim --record golden/store");
}

TEST_F(GoldenStoreTest, SaysWhoMadeItAndInWhichForm) {
  EXPECT_EQ(GoldenStore(root_).version_of(made_.a_case), "2.11.0");
  EXPECT_EQ(GoldenStore(root_).makers_of({made_.a_case}), std::set<std::string>{"pytorch 2.11.0"});
  made_.a_case.id = "T/Class/test[other=1,world=2]";
  EXPECT_EQ(GoldenStore(root_).version_of(made_.a_case), "");
  made_.a_case.cpu_form = "nothing is offloaded";
  made_.a_case.plans = {{"model", {{"api", "composable"}}}};
  GoldenStore(root_).save(made_.a_case, made_.golden.evidence, hello_);
  std::ifstream stream(root_ / "index" / (made_.a_case.scenario + ".json"));
  const Json entry = Json::parse(stream).at("cases").at(made_.a_case.id);
  EXPECT_EQ(entry.at("made_by"),
            (Json{{"name", "pytorch"}, {"version", "2.11.0"}, {"torch_git", "70d99e9"}}));
  EXPECT_EQ(entry.at("cpu_form"), "nothing is offloaded");
  EXPECT_EQ(entry.at("composable"), "a rebuilt front door");
}

TEST_F(GoldenStoreTest, MakersAreThoseOfTheCasesAskedFor) {
  Case later = made_.a_case;
  later.id = "T/Class/test[other=1,world=2]";
  EXPECT_EQ(GoldenStore(root_).makers_of({later}), std::set<std::string>{});
  Json hello = hello_;
  hello["implementation"]["version"] = "2.15.0";
  GoldenStore(root_).save(later, made_.golden.evidence, hello);
  EXPECT_EQ(GoldenStore(root_).makers_of({later}), std::set<std::string>{"pytorch 2.15.0"});
  EXPECT_EQ(GoldenStore(root_).makers_of({made_.a_case, later}),
            (std::set<std::string>{"pytorch 2.11.0", "pytorch 2.15.0"}));
  std::ofstream(root_ / "index" / (later.scenario + ".json")) << "{";
  EXPECT_EQ(GoldenStore(root_).makers_of({later}), std::set<std::string>{});
}

TEST_F(GoldenStoreTest, TakesPyTorchAndOneVersionOfIt) {
  const GoldenStore store(root_);
  Json hello = hello_;
  EXPECT_EQ(store.objection(hello), std::nullopt);
  hello["implementation"]["version"] = "2.15.0";
  EXPECT_NE(store.objection(hello), std::nullopt);
  EXPECT_EQ(GoldenStore(root_ / "elsewhere").objection(hello), std::nullopt);
  hello["implementation"]["name"] = "ours";
  EXPECT_NE(GoldenStore(root_ / "elsewhere").objection(hello), std::nullopt);
}

TEST_F(GoldenStoreTest, GivesBackWhatWasRecorded) {
  const OwnedTruth truth = GoldenStore(root_).load(made_.a_case);
  ASSERT_FALSE(truth.problem) << truth.problem->summary;
  EXPECT_EQ(truth.reduction_order, "ring");
  ASSERT_EQ(truth.evidence.values.size(), made_.golden.evidence.values.size());
  for (const auto& [place, value] : made_.golden.evidence.values) {
    EXPECT_EQ(truth.evidence.values.at(place).tensor.bytes, value.tensor.bytes) << describe(place);
    EXPECT_EQ(truth.evidence.values.at(place).tensor.shape, value.tensor.shape) << describe(place);
  }
  EXPECT_EQ(truth.evidence.facts.size(), 1u);
  EXPECT_EQ(
      made_.judged(R"([{"equal": {"what": ["loss", "parameters"], "to": ["golden"]}, "model": "model"}])")
          .kind,
      VerdictKind::pass);
}

class EachBlob : public GoldenStoreTest, public testing::WithParamInterface<const char*> {};
INSTANTIATE_TEST_SUITE_P(GoldenStore, EachBlob, testing::Values(".safetensors", ".json"));

TEST_P(EachBlob, MissingIndexEntryOrBlob) {
  fs::remove(blob(GetParam()));
  EXPECT_EQ(problem(), "golden_missing");
  made_.a_case.id = "T/Class/test[other=1,world=2]";
  EXPECT_EQ(problem(), "golden_missing");
  fs::remove_all(root_);
  EXPECT_EQ(problem(), "golden_missing");
}

TEST_P(EachBlob, Truncated) {
  fs::resize_file(blob(GetParam()), fs::file_size(blob(GetParam())) - 1);
  EXPECT_EQ(problem(), "golden_truncated");
}

TEST_P(EachBlob, Altered) {
  const auto size = fs::file_size(blob(GetParam()));
  std::fstream stream(blob(GetParam()), std::ios::in | std::ios::out | std::ios::binary);
  stream.seekp(static_cast<std::streamoff>(size - 1));
  stream.put('\x7f');
  stream.close();
  EXPECT_EQ(problem(), "golden_altered");
}

TEST_F(GoldenStoreTest, AnIndexThatCannotBeRead) {
  std::ofstream(root_ / "index" / "T" / "Class" / "test.json") << "{";
  EXPECT_EQ(problem(), "golden_altered");
}

TEST_F(GoldenStoreTest, OtherVersionOfTheCase) {
  made_.a_case.data["seed"] = 43;
  EXPECT_EQ(problem(), "golden_other_version");
}

TEST_F(GoldenStoreTest, EqualContentIsStoredOnceAndUnnamedBlobsGo) {
  GoldenStore store(root_);
  Case twin = made_.a_case;
  twin.id = "T/Class/test[twin=1,world=2]";
  store.save(twin, made_.golden.evidence, hello_);
  const auto blobs = [&] {
    int count = 0;
    for (const auto& file : fs::recursive_directory_iterator(root_ / "blobs"))
      count += file.is_regular_file();
    return count;
  };
  EXPECT_EQ(blobs(), 2);
  Evidence other = made_.golden.evidence;
  set_element(other.values.begin()->second.tensor, 0, 5);
  store.save(made_.a_case, other, hello_);
  store.save(twin, other, hello_);
  EXPECT_EQ(blobs(), 3) << "the facts are still the same";
  EXPECT_EQ(store.prune(), 1);
  EXPECT_EQ(blobs(), 2);
  EXPECT_FALSE(store.load(twin).problem);
}

TEST_F(GoldenStoreTest, TheManifestCountsTheWholeStore) {
  GoldenStore store(root_);
  Case larger = made_.a_case;
  larger.world = 4;
  larger.id = "T/Class/test[world=4]";
  store.save(larger, made_.golden.evidence, hello_);
  store.write_manifest({{"backend", "other"}}, "all");
  store.write_manifest({{"backend", "gloo"}}, "some more");
  EXPECT_EQ(
      store.manifest(),
      (Json{{"backend", "gloo"}, {"commands", {"all", "some more"}}, {"worlds", {2, 4}}, {"cases", 2}}));
}

TEST(Recording, WhatAllRanksAgreeOnIsKeptOnce) {
  Evidence evidence;
  for (int rank = 0; rank < 2; ++rank) {
    evidence.values[{3, "loss", "model", "", rank}].tensor = make_tensor(DType::float32, {}, {1.0 * rank});
    evidence.values[{3, "output", "model", "", rank}].tensor = make_tensor(DType::float32, {}, {7});
    evidence.values[{3, "gradients", "model", "w", rank}].none = true;
  }
  const Recording recording = to_recording(evidence, HandMade().a_case);
  EXPECT_EQ(recording.tensors.size(), 3u);
  EXPECT_EQ(recording.directory["none"].size(), 1u);
  const Evidence back = from_recording(recording);
  EXPECT_TRUE(back.values.at({3, "gradients", "model", "w", {}}).none);
  EXPECT_EQ(back.values.at({3, "loss", "model", "", 1}).tensor.element(0), 1);
  EXPECT_EQ(back.values.at({3, "output", "model", "", {}}).tensor.element(0), 7);
  EXPECT_THROW(from_recording({{{"nonsense", HostTensor{}}}, Json::object()}), std::invalid_argument);
}

TEST(Recording, KeepsTheFactsThatAreCompared) {
  HandMade made;
  EXPECT_TRUE(to_recording(made.golden.evidence, made.a_case).directory["facts"].empty());
  made.a_case.expect = Json::parse(R"([{"equal": {"what": ["recorded"], "to": ["reference"]}}])");
  EXPECT_TRUE(to_recording(made.golden.evidence, made.a_case).directory["facts"].empty());
  made.a_case.expect = Json::parse(R"([{"equal": {"what": ["recorded"], "to": ["reference", "golden"]}}])");
  EXPECT_EQ(to_recording(made.golden.evidence, made.a_case).directory["facts"].size(), 1u);
}

TEST(Sha256, KnownAnswer) {
  EXPECT_EQ(sha256("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

}  // namespace
}  // namespace fsdp_cts
