// Runs a small program on all simulated ranks and finds things in the merged answers.
#pragma once

#include <stdexcept>

#include "harness/sdk/cpp/tests/case_in_memory.hpp"
#include "reference/merge.hpp"
#include "reference/simulation.hpp"

namespace fsdp_cts::reference {

using sdk::CaseInMemory;
using Json = nlohmann::ordered_json;

struct Simulated {
  explicit Simulated(const CaseInMemory& c, const std::string& order = "rank",
                     const std::string& precision = "native", const std::string& edition = "2.11") {
    sdk::Case a_case = c.parsed();
    a_case.oracle = {{"reduction_order", order}, {"precision", precision}, {"edition", edition}};
    Simulation simulation(a_case);
    for (int step = 0; step < static_cast<int>(a_case.program.size()); ++step) {
      if (!simulation.will_run(step)) continue;
      if (auto answer = merge(simulation.run(step))) answers.push_back(*std::move(answer));
    }
  }

  // The last entry of that kind that `rank` has a share in.
  Json entry(const std::string& what, int rank = 0) const {
    for (auto o = answers.rbegin(); o != answers.rend(); ++o) {
      for (const Json& e : o->entries) {
        if (e["what"] == what && (e["rank"].is_null() || e["rank"] == rank)) return e;
      }
    }
    throw std::out_of_range("nothing observed " + what);
  }
  // A register, or the item `name`; undefined for an absent gradient.
  at::Tensor tensor(const std::string& what, const std::string& name = "", int rank = 0) const {
    for (auto o = answers.rbegin(); o != answers.rend(); ++o) {
      for (const Json& e : o->entries) {
        if (e["what"] != what || !(e["rank"].is_null() || e["rank"] == rank)) continue;
        if (name.empty()) return sdk::from_host(o->tensors.at(e["tensor"]));
        for (const Json& item : e["items"]) {
          if (item["name"] != name) continue;
          return item["none"] == true ? at::Tensor()
                                      : sdk::from_host(o->tensors.at(item["pieces"][0]["tensor"]));
        }
      }
    }
    throw std::out_of_range("nothing observed " + what + " " + name);
  }

  std::vector<sdk::Observation> answers;
};

inline Json step(const std::string& verb, const Json& arguments = Json::object()) {
  Json result = {{"verb", verb}};
  result.update(arguments);
  return result;
}
inline Json forward(const std::string& input = "x") {
  return step("forward", {{"input", Json::array({input})}});
}
inline Json observe(const std::vector<std::string>& what) {
  return step("observe", {{"what", what}});
}

// build, shard, and one backward of the sum, with gradients observed.
inline std::vector<Json> one_backward() {
  return {step("build"),    step("shard"),
          forward(),        step("loss", {{"kind", "sum"}}),
          step("backward"), observe({"loss", "gradients"})};
}

// One weight w = 1 per rank; with the input x[r] on rank r its gradient there is x[r].
inline void one_weight(CaseInMemory& c, const std::vector<float>& inputs, const Json& unit,
                       const std::string& api) {
  c.model(sdk::linear(1, 1, false)).parameter("weight", at::ones({1, 1}));
  for (std::size_t r = 0; r < inputs.size(); ++r)
    c.input("x@" + std::to_string(r), at::full({1, 1}, inputs[r]));
  Json with_root = {{"modules", {""}}};
  with_root.update(unit);
  c.plan({{"api", api}, {"units", Json::array({with_root})}});
}

}  // namespace fsdp_cts::reference
