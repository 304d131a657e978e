#include "harness/sdk/cpp/serve.hpp"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/Version.h>
#include <torch/version.h>

#include <cstdio>
#include <cstdlib>
#include <iostream>

#include "harness/protocol/channel.hpp"
#include "harness/protocol/safetensors.hpp"
#include "harness/sdk/cpp/switches.hpp"

namespace fsdp_cts::sdk {
namespace {

// Operations of one rank behind the Testee interface.
class RankTestee : public Testee {
 public:
  RankTestee(Operations& operations, int rank) : operations_(operations), rank_(rank) {}

  Identity identity() const override { return operations_.identity(); }
  std::optional<std::string> unsupported(const Case& a_case) const override {
    if (a_case.requirements.contains("gpu") && operations_.device().is_cpu())
      return "the case is about an accelerator, and this testee was started on the CPU; try --device cuda";
    return operations_.unsupported(a_case);
  }

  void act(const Case& a_case, Outbox& outbox) override {
    act_out(a_case, outbox);
    if (const auto kept = operations_.device_kept_bytes()) outbox.kept_bytes(*kept);
  }

 private:
  // When it returns nothing of the case is left.
  void act_out(const Case& a_case, Outbox& outbox) {
    Interpreter interpreter(operations_, a_case, Data(a_case.data, rank_), rank_);
    int step = -1;
    try {
      outbox.progress(step, "rendezvous");
      operations_.rendezvous(a_case);
      for (step = 0; step < static_cast<int>(a_case.program.size()); ++step) {
        if (!interpreter.will_run(step)) continue;
        outbox.progress(step, a_case.program[static_cast<std::size_t>(step)].at("verb"));
        std::optional<Observation> observation;
        try {
          observation = interpreter.run(step);
        } catch (...) {
          report_findings(step, outbox);
          throw;
        }
        report_findings(step, outbox);
        report_use(step, a_case.program[static_cast<std::size_t>(step)].at("verb"), outbox);
        if (observation) {
          outbox.observation(*observation, rank_,
                             "rank" + std::to_string(rank_) + "-step" + std::to_string(step));
        }
      }
      if (const auto launches = operations_.device_launches()) outbox.launches(*launches);
    } catch (const FrameError&) {
      throw;
    } catch (...) {
      const FailedStep failed{step, interpreter.describe(std::current_exception())};
      operations_.end_case();
      throw failed;
    }
    operations_.end_case();
  }

  void report_findings(int step, Outbox& outbox) {
    for (const Json& finding : operations_.device_findings()) outbox.finding(step, rank_, finding);
  }

  // Asked after every step, so that each is counted by itself.
  void report_use(int step, const std::string& verb, Outbox& outbox) {
    const Json use = operations_.device_use();
    if (!use.is_null() && use_is_told(verb)) outbox.device_use(step, rank_, use);
  }

  Operations& operations_;
  int rank_;
};

class ChannelOutbox : public Outbox {
 public:
  ChannelOutbox(Channel& channel, const Case& a_case) : channel_(channel), case_(a_case) {}

  void progress(int step, const std::string& verb) override {
    channel_.send({{"type", "progress"}, {"case", case_.number}, {"step", step}, {"verb", verb}});
  }

  void observation(const Observation& o, int rank, const std::string& file_stem) override {
    Json message = {{"type", "observation"}, {"case", case_.number}, {"rank", rank}, {"step", o.step}};
    if (!o.label.empty()) message["label"] = o.label;
    if (o.iteration) message["iteration"] = *o.iteration;
    if (!o.tensors.empty()) {
      const std::string file = "case" + std::to_string(case_.number) + "-" + file_stem + ".safetensors";
      write_safetensors(case_.scratch / file, o.tensors);
      message["file"] = file;
    }
    message["entries"] = o.entries;
    channel_.send(message);
  }

  void finding(int step, int rank, const Json& finding) override {
    Json message = {{"type", "finding"}, {"case", case_.number}, {"rank", rank}, {"step", step}};
    message.update(finding);
    channel_.send(message);
  }

  void device_use(int step, int rank, const Json& use) override {
    Json message = {{"type", "device_use"}, {"case", case_.number}, {"rank", rank}, {"step", step}};
    message.update(use);
    channel_.send(message);
  }

  void launches(std::uint64_t count) override { launches_ = count; }
  void kept_bytes(std::int64_t bytes) override { kept_bytes_ = bytes; }
  std::optional<std::uint64_t> launches() const { return launches_; }
  std::optional<std::int64_t> kept_bytes() const { return kept_bytes_; }

 private:
  Channel& channel_;
  const Case& case_;
  std::optional<std::uint64_t> launches_;
  std::optional<std::int64_t> kept_bytes_;
};

Json hello(const Identity& identity, int rank, const std::string& token) {
  Json environment = identity.environment;
  if (environment.is_null()) environment = Json::object();
  environment["libtorch"] = TORCH_VERSION;
  environment["threads"] = std::to_string(at::get_num_threads());
  environment["cpu_capability"] = at::get_cpu_capability();
  return {{"type", "hello"},
          {"protocol", 1},
          {"token", token},
          {"rank", rank},
          {"implementation", {{"name", identity.name}, {"version", identity.version}}},
          {"apis", identity.apis},
          {"backend", identity.backend},
          {"device", identity.device},
          {"reduction_order", identity.reduction_order},
          {"environment", environment}};
}

// The case's switches are gone again when this returns: `done` means that nothing of the case is left.
std::optional<FailedStep> act_with_switches(Testee& testee, const Case& a_case, Outbox& outbox) {
  const Switches switches(a_case.switches);
  try {
    testee.act(a_case, outbox);
    return std::nullopt;
  } catch (const FrameError&) {
    throw;
  } catch (const FailedStep& failure) {
    return failure;
  } catch (...) {
    return FailedStep{-1, describe_error(std::current_exception())};
  }
}

void act_out(Testee& testee, const Json& message, Channel& channel) {
  const Case a_case = parse_case(message);
  if (const std::optional<std::string> reason = testee.unsupported(a_case)) {
    return channel.send({{"type", "unsupported"}, {"case", a_case.number}, {"reason", *reason}});
  }
  ChannelOutbox outbox(channel, a_case);
  const std::optional<FailedStep> failed = act_with_switches(testee, a_case, outbox);
  if (!failed) {
    Json done = {{"type", "done"}, {"case", a_case.number}};
    if (outbox.launches()) done["launches"] = *outbox.launches();
    if (outbox.kept_bytes()) done["kept_bytes"] = *outbox.kept_bytes();
    return channel.send(done);
  }
  const std::string phase = failed->error.phase.empty() ? "other" : failed->error.phase;
  channel.send(
      {{"type", "error"},
       {"case", a_case.number},
       {"step", failed->step},
       {"error", {{"type", failed->error.type}, {"message", failed->error.message}, {"phase", phase}}}});
}

int serve_channel(Testee& testee, Channel& channel, int rank, const std::string& token) {
  try {
    channel.send(hello(testee.identity(), rank, token));
    while (const std::optional<Json> message = channel.receive()) {
      const std::string type = message->at("type");
      if (type == "bye") return 0;
      if (type != "case")
        throw FrameError("unknown_type", "the runner sent a message of unknown type \"" + type + "\"");
      act_out(testee, *message, channel);
    }
    return 0;
  } catch (const std::exception& error) {
    std::cerr << "rank " << rank << ": " << error.what() << '\n';
    return 1;
  }
}

void use_one_thread() {
  at::set_num_threads(1);
  at::set_num_interop_threads(1);
  c10::WarningUtils::set_warnAlways(
      true);  // a warning given once per process would be missing from later cases
}

std::string environment(const char* name, const char* fallback) {
  const char* value = std::getenv(name);
  return value ? value : fallback;
}

}  // namespace

std::unique_ptr<Testee> rank_testee(Operations& operations, int rank) {
  return std::make_unique<RankTestee>(operations, rank);
}

int serve_descriptor(Testee& testee, int descriptor, int rank, const std::string& token) {
  Channel channel(descriptor);
  return serve_channel(testee, channel, rank, token);
}

int serve(Testee& testee) {
  const std::string socket = environment("FSDP_CTS_SOCKET", "");
  if (socket.empty()) {
    std::cerr << "This program is a testee: it is started by `fsdp-cts run`, which sets FSDP_CTS_SOCKET (see "
                 "PROTOCOL.md).\n";
    return 2;
  }
  use_one_thread();
  try {
    Channel channel = Channel::connect(socket);
    return serve_channel(testee, channel, std::stoi(environment("RANK", "0")),
                         environment("FSDP_CTS_TOKEN", ""));
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
}

void leave(int status) {
#ifndef __SANITIZE_ADDRESS__
  std::fflush(nullptr);
  std::cout.flush();
  std::_Exit(status);
#endif
  std::exit(status);
}

int serve(Operations& operations) {
  return serve(*rank_testee(operations, std::stoi(environment("RANK", "0"))));
}

}  // namespace fsdp_cts::sdk
