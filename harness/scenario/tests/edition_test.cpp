// Editions: which expectations stand, and what a change of PyTorch does to recordings.
#include "harness/scenario/edition.hpp"

#include <gtest/gtest.h>

namespace fsdp_cts {
namespace {

constexpr Edition v2_8{2, 8}, v2_11{2, 11}, v2_14{2, 14}, v2_15{2, 15}, v2_16{2, 16};

TEST(Edition, IsMajorAndMinorOfAVersion) {
  EXPECT_EQ(edition_of("2.15.0+cu130"), v2_15);
  EXPECT_EQ(edition_of("2.15"), v2_15);
  EXPECT_EQ(edition_of("1"), std::nullopt);
  EXPECT_EQ(edition_of("new"), std::nullopt);
  EXPECT_EQ(edition_of(""), std::nullopt);
  EXPECT_LT(v2_8, v2_11);  // numbers, not text
}

TEST(Edition, VersionRanges) {
  EXPECT_TRUE(version_within("2.8.0+cu128", ">=2.8 <2.9"));
  EXPECT_FALSE(version_within("2.9.1", ">=2.8 <2.9"));
  EXPECT_TRUE(version_within("2.10.0", ">2.9"));
  EXPECT_TRUE(version_within("2.8.1", "==2.8"));
  EXPECT_FALSE(version_within("2.8.1", "==2.8.0"));
  EXPECT_FALSE(version_within("", ">=2.8"));
  for (const char* text : {"", "2.8", ">=", "~2.8", ">=new"})
    EXPECT_THROW(version_within("2.8", text), std::invalid_argument) << text;
}

Case with_expectations() {
  Case a_case;
  a_case.plans = Json::object();
  a_case.expect =
      Json::parse(R"([{"finite": {}, "until": "2.15"}, {"finite": {}, "since": "2.15"}, {"finite": {}}])");
  return a_case;
}

TEST(Edition, SinceIsInclusiveAndUntilIsNot) {
  for (const auto& [edition, bound] : {std::pair(v2_14, "until"), {v2_15, "since"}, {v2_16, "since"}}) {
    const Case a_case = in_edition(with_expectations(), edition);
    ASSERT_EQ(a_case.expect.size(), 2u) << edition.text();
    EXPECT_TRUE(a_case.expect[0].contains(bound)) << edition.text();
  }
}

TEST(Edition, ARecordingFromBeforeAChangeIsNoTruthAfterIt) {
  const Case a_case = with_expectations();
  EXPECT_TRUE(changed_between(a_case, v2_11, v2_15));
  EXPECT_TRUE(changed_between(a_case, v2_16, v2_14));
  EXPECT_FALSE(changed_between(a_case, v2_11, v2_14));
  EXPECT_FALSE(changed_between(a_case, v2_15, v2_16));
}

TEST(Edition, ReducingWithoutAReduceDtypeChangedIn215) {
  const auto changed = [](const char* mixed_precision, const char* api = "fully_shard") {
    Case a_case;
    a_case.plans = {
        {"model",
         {{"api", api}, {"units", Json::array({{{"mixed_precision", Json::parse(mixed_precision)}}})}}}};
    a_case.expect = Json::array();
    return changed_between(a_case, v2_11, v2_15);
  };
  EXPECT_TRUE(changed(R"({"param_dtype": "bfloat16"})"));
  EXPECT_TRUE(changed(R"({"param_dtype": "bfloat16", "reduce_dtype": null})"));
  EXPECT_FALSE(changed(R"({"param_dtype": "bfloat16", "reduce_dtype": "float32"})"));
  EXPECT_FALSE(changed(R"({"output_dtype": "bfloat16"})"));
  EXPECT_FALSE(changed("null"));
  EXPECT_FALSE(changed(R"({"param_dtype": "bfloat16"})", "fsdp"));
}

}  // namespace
}  // namespace fsdp_cts
