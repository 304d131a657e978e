#include "harness/protocol/messages.hpp"

#include <gmock/gmock.h>

namespace fsdp_cts {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const Json hello = Json::parse(R"({"type": "hello", "protocol": 1, "token": "t", "rank": 0,
  "implementation": {"name": "n", "version": "1"}, "apis": ["fully_shard"], "backend": "gloo", "device": "cpu",
  "reduction_order": "rank", "environment": {"threads": "1"}})");

Json observation(const char* entry) {
  return {{"type", "observation"},
          {"case", 1},
          {"rank", 0},
          {"step", 2},
          {"file", "a.safetensors"},
          {"entries", Json::array({Json::parse(entry)})}};
}

std::string code_of(const Json& message) {
  try {
    check_testee_message(message);
    return "accepted";
  } catch (const MessageError& e) {
    return e.code;
  }
}

std::string complaint(const Json& message) {
  try {
    check_testee_message(message);
    return "accepted";
  } catch (const MessageError& e) {
    return e.what();
  }
}

TEST(Messages, AcceptEveryMessageOfTheProtocol) {
  EXPECT_EQ(complaint(hello), "accepted");
  for (
      const char* message :
      {R"({"type": "progress", "case": 1, "step": -1, "verb": "rendezvous"})",
       R"({"type": "done", "case": 1})", R"({"type": "done", "case": 1, "a key of a later version": []})",
       R"({"type": "error", "case": 1, "step": 3, "error": {"type": "ValueError", "message": "m", "phase": "forward"}})",
       R"({"type": "unsupported", "case": 1, "reason": "no hybrid sharding"})",
       R"({"type": "done", "case": 1, "launches": 12, "kept_bytes": 0})",
       R"({"type": "finding", "case": 1, "rank": 0, "step": 3, "code": "stream_race", "text": "t"})",
       R"({"type": "device_use", "case": 1, "rank": 0, "step": 3, "begin_bytes": 0, "peak_bytes": 512, "host_waits":
           [{"operation": "synchronize an event", "scope": "rate_limiter", "times": 2}]})",
       R"({"type": "finding", "case": 1, "rank": 0, "step": 3, "code": "use_after_free", "text": "t", "earlier":
           {"operation": "aten::mm", "scope": "", "timeline": "stream 1 of sim:0", "access": "write"}, "later":
           {"operation": "aten::add_", "timeline": "host", "access": "read"}, "buffer": "b", "bytes": 8,
           "missing": "w", "times": 2})"}) {
    EXPECT_EQ(complaint(Json::parse(message)), "accepted");
  }
}

TEST(Messages, AcceptEveryEntryOfTheProtocol) {
  for (
      const char* entry :
      {R"({"what": "loss", "tensor": "loss"})",
       R"({"what": "register:norm", "tensor": "norm", "rank": null})",
       R"({"what": "gradients", "model": "model", "items": [{"name": "0.weight", "global_shape": [4, 2], "dtype": "bfloat16",
               "sharded": true, "requires_grad": true, "none": false, "pieces": [{"tensor": "p", "offset": 4, "length": 4, "padding": 1}]},
               {"name": "0.bias", "global_shape": [4], "dtype": "float32", "sharded": true, "none": true, "pieces": []}]})",
       R"({"what": "state_dict:saved", "model": "model", "items": []})",
       R"({"what": "trace", "events": [{"op": "reduce_scatter", "phase": "backward", "dtype": "float32", "reduce_op": "avg",
               "in_numel": 8, "out_numel": 4, "group": [0, 1], "unit": null}]})",
       R"({"what": "recorded", "values": {"inner": "float16"}})",
       R"({"what": "seen_parameters", "values": {"fc": [["weight", [4, 2]], ["bias", []]]}})",
       R"({"what": "units", "model": "model", "units": [{"module": "", "class": "MLP", "settings": {}, "parameters": ["w"]}]})",
       R"({"what": "counters", "model": "model", "values": {"post_backward": 3}})",
       R"({"what": "training_state", "model": "model", "value": "IDLE"})",
       R"({"what": "warnings", "warnings": [{"category": "UserWarning", "message": "m"}]})",
       R"({"what": "identity", "model": "model", "values": {"w": "1"}})",
       R"({"what": "devices", "model": "model", "values": {"w": "cpu"}})",
       R"({"what": "memory", "values": {"peak": 4096}})",
       R"({"what": "attempt", "name": "a", "error": null})",
       R"({"what": "attempt", "name": "a", "error": {"type": "E", "message": "m", "phase": "other", "step": 1, "verb": "shard"}})"}) {
    EXPECT_EQ(complaint(observation(entry)), "accepted") << entry;
  }
}

TEST(Messages, RefuseWithCodeAndPlace) {
  EXPECT_EQ(code_of({{"type", "greetings"}}), "unknown_type");
  EXPECT_EQ(code_of({{"type", "case"}}), "unknown_type");  // a testee sends none
  EXPECT_THAT(complaint({{"type", "done"}}), HasSubstr("no key \"case\""));
  EXPECT_THAT(complaint({{"type", "progress"}, {"case", 1}, {"step", -2}, {"verb", "x"}}),
              HasSubstr("/step"));
  EXPECT_THAT(complaint(observation(R"({"what": "losses", "tensor": "t"})")), HasSubstr("/entries/0/what"));
  EXPECT_THAT(
      complaint(observation(R"({"what": "buffers", "model": "m", "items": [{"name": "x", "global_shape": [-1],
      "dtype": "float32", "sharded": false, "pieces": []}]})")),
      HasSubstr("/entries/0/items/0/global_shape/0"));
  EXPECT_THAT(complaint(observation(R"({"what": "recorded", "values": {"k": "float8"}})")),
              HasSubstr("\"float8\""));
}

TEST(Messages, TellAnotherVersionBeforeAnythingElse) {
  Json other = {{"type", "hello"}, {"protocol", 2}};
  EXPECT_EQ(code_of(other), "wrong_version");
  other["protocol"] = "1";
  EXPECT_EQ(code_of(other), "wrong_version");
  other.erase("protocol");
  EXPECT_EQ(code_of(other), "invalid_message");
}

TEST(Messages, TheRunnersOwnFitToo) {
  EXPECT_NO_THROW(check_runner_message({{"type", "bye"}}));
  EXPECT_THROW(check_runner_message(hello), MessageError);
  EXPECT_THROW(check_runner_message({{"type", "case"}, {"case", 1}}), MessageError);
}

TEST(Messages, NameTheirTensors) {
  EXPECT_THAT(tensors_named_by(Json::parse(R"([{"what": "loss", "tensor": "a"},
      {"what": "gradients", "items": [{"pieces": [{"tensor": "b"}, {"tensor": "c"}]}]}, {"what": "memory"}])")),
              ElementsAre("a", "b", "c"));
}

}  // namespace
}  // namespace fsdp_cts
