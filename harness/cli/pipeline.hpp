// Cases in, verdicts out: testee and oracle run side by side in one session, each case is judged as soon as
// both answered.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "harness/judge/golden_store.hpp"
#include "harness/judge/judge.hpp"
#include "harness/runner/session.hpp"

namespace fsdp_cts::cli {

// Whether a case has a question for the oracle: an expectation names the reference, or its exactness is to be
// proved.
bool asks_reference(const Case& a_case, bool record);

struct PipelineOptions {
  Testee testee;
  Testee oracle;  // needed when a case asks it
  SessionOptions session;
  std::filesystem::path golden;  // the store to compare with
  bool record = false;           // fill `golden` from this testee instead of comparing with it
};

class Pipeline {
 public:
  // Called once per case, in order of completion.
  using Judged = std::function<void(const Case& a_case, const Verdict& verdict, const CaseRun& run)>;

  explicit Pipeline(PipelineOptions options);

  // Throws Interrupted after a signal. The cases must outlive the call.
  void run(const std::vector<const Case*>& cases, const Judged& judged);
  // Ends all ranks.
  void close();

  // Hello of the testee's rank 0; null as long as none was heard.
  const Json& hello() const { return hello_; }
  // Sentences about ranks that ended badly between cases or after the last one: the testee's are failures,
  // the oracle's not.
  const std::vector<std::string>& testee_troubles() const { return testee_troubles_; }
  int recorded() const { return recorded_; }

 private:
  // One question to the oracle and those who wait for its answer.
  struct Reference {
    std::optional<OwnedTruth> truth;
    int users = 0;  // cases not judged yet
  };
  struct Entry {
    const Case* a_case = nullptr;
    std::optional<CaseRun> run;
    std::string order;            // of reductions, in which the reference was asked
    std::string native, widened;  // keys into references_; "" where not needed
    bool misasked = false;        // the testee has declared another order since
  };

  std::string order_for(const Case& a_case) const;
  void ask(Entry& entry, std::vector<Job>& jobs);
  std::string ask(const Case& a_case, const std::string& order, const std::string& precision,
                  std::vector<Job>& jobs);
  void greet(std::vector<Entry*>& entries, const Judged& judged);
  void act_out(const std::vector<Entry*>& entries, const Judged& judged);
  bool answered(const Entry& entry) const;
  void conclude(Entry& entry, const Judged& judged);
  Verdict record(Entry& entry, Truths& truths, OwnedTruth& golden);
  void release(const std::string& key);
  Session::EndedBadly ended_badly();

  PipelineOptions options_;
  Session session_;
  GoldenStore golden_;
  std::map<std::string, Reference> references_;
  bool keep_answers_ = false;
  Json hello_;
  std::vector<std::string> testee_troubles_;
  int recorded_ = 0;
};

}  // namespace fsdp_cts::cli
