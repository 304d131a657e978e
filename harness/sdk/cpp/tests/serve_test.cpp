#include "harness/sdk/cpp/serve.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <thread>

#include "harness/protocol/channel.hpp"
#include "harness/protocol/messages.hpp"
#include "harness/sdk/cpp/tests/case_in_memory.hpp"

namespace fsdp_cts::sdk {
namespace {

class ScriptedTestee : public Testee {
 public:
  Identity identity() const override {
    return {"scripted", "7", {"fsdp"}, "gloo", "cpu", "ring", {{"extra", "yes"}}};
  }
  std::optional<std::string> unsupported(const Case& a_case) const override {
    return a_case.id == "foreign" ? std::optional<std::string>("not ours") : std::nullopt;
  }
  void act(const Case& a_case, Outbox& outbox) override {
    outbox.progress(-1, "rendezvous");
    seen_switch = std::getenv("FSDP_CTS_TEST_SWITCH") ? std::getenv("FSDP_CTS_TEST_SWITCH") : "";
    if (a_case.id == "failing") throw FailedStep{4, {"ValueError", "wrong", "backward"}};
    Observation observation;
    observation.step = 2;
    observation.label = "here";
    observation.iteration = 5;
    observation.tensors["loss"] = to_host(at::full({}, 1.5f));
    observation.entries.push_back({{"what", "loss"}, {"tensor", "loss"}});
    outbox.observation(observation, 3, "rank3-step2");
  }
  std::string seen_switch;
};

// A runner's end, with the testee on a thread.
class Serving : public testing::Test {
 protected:
  void SetUp() override {
    int ends[2];
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    runner.emplace(ends[0]);
    thread = std::thread([this, end = ends[1]] { status = serve_descriptor(testee, end, 3, "secret"); });
    hello = receive();
  }
  void TearDown() override {
    runner.reset();
    if (thread.joinable()) thread.join();
  }
  Json receive() {
    const std::optional<Json> message = runner->receive();
    if (!message) throw std::runtime_error("the testee closed its end");
    check_testee_message(*message);
    return *message;
  }

  ScriptedTestee testee;
  std::optional<Channel> runner;
  std::thread thread;
  int status = -1;
  Json hello;
};

TEST_F(Serving, SaysHelloFirst) {
  EXPECT_EQ(hello["type"], "hello");
  EXPECT_EQ(hello["token"], "secret");
  EXPECT_EQ(hello["rank"], 3);
  EXPECT_EQ(hello["reduction_order"], "ring");
  EXPECT_EQ(hello["environment"]["extra"], "yes");
  EXPECT_THAT(hello["environment"]["libtorch"].get<std::string>(), testing::StartsWith("2.11"));
}

TEST_F(Serving, ActsObservesAndIsDone) {
  CaseInMemory c;
  runner->send(c.message());
  EXPECT_EQ(receive()["verb"], "rendezvous");
  const Json observation = receive();
  EXPECT_EQ(observation["rank"], 3);
  EXPECT_EQ(observation["label"], "here");
  EXPECT_EQ(observation["iteration"], 5);
  const TensorMap tensors =
      read_safetensors(std::filesystem::path(c.parsed().scratch) / observation["file"].get<std::string>());
  EXPECT_EQ(tensors.at("loss").element(0), 1.5);
  EXPECT_EQ(receive()["type"], "done");
  runner->send({{"type", "bye"}});
  thread.join();
  EXPECT_EQ(status, 0);
}

TEST_F(Serving, ReportsErrorsAndGoesOn) {
  CaseInMemory c;
  c.set("id", "failing");
  runner->send(c.message());
  receive();
  const Json error = receive();
  EXPECT_EQ(error["type"], "error");
  EXPECT_EQ(error["step"], 4);
  EXPECT_EQ(error["error"]["type"], "ValueError");
  EXPECT_EQ(error["error"]["phase"], "backward");
  c.set("id", "foreign");
  runner->send(c.message());
  const Json unsupported = receive();
  EXPECT_EQ(unsupported["type"], "unsupported");
  EXPECT_EQ(unsupported["reason"], "not ours");
}

TEST_F(Serving, SwitchesLastForTheirCaseOnly) {
  setenv("FSDP_CTS_TEST_SWITCH", "before", 1);
  CaseInMemory c;
  c.set("switches", {{"FSDP_CTS_TEST_SWITCH", "1"}});
  runner->send(c.message());
  for (int i = 0; i < 3; ++i) receive();
  EXPECT_EQ(testee.seen_switch, "1");
  c.set("switches", {{"FSDP_CTS_TEST_SWITCH", nullptr}});
  runner->send(c.message());
  for (int i = 0; i < 3; ++i) receive();
  EXPECT_EQ(testee.seen_switch, "");
  EXPECT_STREQ(std::getenv("FSDP_CTS_TEST_SWITCH"), "before");
}

TEST_F(Serving, EndsWhenTheRunnerIsGoneAndRefusesWhatItDoesNotKnow) {
  runner->send({{"type", "surprise"}});
  thread.join();
  EXPECT_EQ(status, 1);
}

TEST_F(Serving, AClosedSocketIsTheEnd) {
  runner.reset();
  thread.join();
  EXPECT_EQ(status, 0);
}

TEST(ServingOperations, FailsWithTheStepAndItsPhase) {
  class Plain : public Operations {
    Identity identity() const override { return {"plain", "1", {}, "none", "cpu", "unspecified", {}}; }
  } operations;
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
  Channel runner(ends[0]);
  std::thread thread([&operations, end = ends[1]] {
    const std::unique_ptr<Testee> testee = rank_testee(operations, 0);
    serve_descriptor(*testee, end, 0, "");
  });
  runner.receive();
  CaseInMemory c;
  c.steps({{{"verb", "backward"}, {"loss", "loss"}}});
  runner.send(c.message());
  std::vector<Json> messages;
  for (int i = 0; i < 3; ++i) messages.push_back(*runner.receive());
  c.set("requires", {"gpu"});
  runner.send(c.message());
  const Json refused = *runner.receive();
  EXPECT_EQ(refused["type"], "unsupported");
  EXPECT_THAT(refused["reason"].get<std::string>(), testing::HasSubstr("--device cuda"));
  runner.send({{"type", "bye"}});
  thread.join();
  EXPECT_EQ(messages[1]["verb"], "backward");
  EXPECT_EQ(messages[2]["type"], "error");
  EXPECT_EQ(messages[2]["step"], 0);
  EXPECT_EQ(messages[2]["error"]["phase"], "backward");
  EXPECT_EQ(messages[2]["error"]["type"], "ValueError");
}

TEST(Features, NameWhatACaseNeeds) {
  CaseInMemory c;
  c.plan({{"api", "fsdp"},
          {"mesh", {2, 2}},
          {"units", Json::array({{{"modules", {""}},
                                  {"sharding_strategy", "NO_SHARD"},
                                  {"process_group", {{"dummy", 2}}}}})}});
  c.steps({{{"verb", "build"}, {"model", "model"}, {"device", "meta"}},
           {{"verb", "enter"}, {"scope", "summon"}},
           {{"verb", "observe"}, {"what", {"trace", "state_dict:saved"}}}});
  EXPECT_THAT(features(c.parsed()),
              testing::IsSupersetOf({"api:fsdp", "hybrid", "strategy:NO_SHARD", "dummy_group", "meta",
                                     "verb:enter", "scope:summon", "observe:trace", "observe:state_dict"}));
}

TEST(Errors, KeepTheNameOfPythonsClass) {
  const auto type_of = [](auto error) { return describe_error(std::make_exception_ptr(error)).type; };
  EXPECT_EQ(type_of(c10::ValueError({}, "v")), "ValueError");
  EXPECT_EQ(type_of(c10::NotImplementedError({}, "n")), "NotImplementedError");
  EXPECT_EQ(type_of(c10::IndexError({}, "i")), "IndexError");
  EXPECT_EQ(type_of(c10::Error({}, "e")), "RuntimeError");
  EXPECT_EQ(type_of(std::invalid_argument("a")), "ValueError");
  EXPECT_EQ(type_of(std::logic_error("l")), "AssertionError");
  EXPECT_EQ(type_of(std::runtime_error("r")), "RuntimeError");
  const ErrorReport own = describe_error(std::make_exception_ptr(Error("KeyError", "gone", "lazy_init")));
  EXPECT_EQ(own.type, "KeyError");
  EXPECT_EQ(own.phase, "lazy_init");
  EXPECT_EQ(describe_error(std::make_exception_ptr(c10::Error({}, "no backtrace"))).message, "no backtrace");
}

TEST(Errors, QuoteBytesThatAreNoText) {
  const ErrorReport report =
      describe_error(std::make_exception_ptr(std::runtime_error("no name: \xff\xfe, \xc3\xa9")));
  EXPECT_EQ(report.message, "no name: \xef\xbf\xbd\xef\xbf\xbd, \xc3\xa9");
}

}  // namespace
}  // namespace fsdp_cts::sdk
