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
#include "harness/scenario/edition.hpp"
#include "harness/suite/warm_processes.hpp"

namespace fsdp_cts {

// Whether a case can have a question for the oracle: an expectation names the reference, its exactness is to
// be proved, or its noise is to be known.
bool asks_reference(const Case& a_case, bool record);

struct PipelineOptions {
  Testee testee;
  Testee oracle;  // needed when a case asks it
  SessionOptions session;
  std::filesystem::path golden;  // the store to compare with
  Edition edition = default_edition;
  bool record = false;  // fill `golden` from this testee instead of comparing with it
};

class Pipeline {
 public:
  // Called once per case, in order of completion. A case that was not tried, because the testee does not
  // start at all, has a run without ranks.
  using Judged = std::function<void(const Case& a_case, const Verdict& verdict, const CaseRun& run)>;

  // `processes` outlives it.
  Pipeline(PipelineOptions options, WarmProcesses& processes);

  // Throws Interrupted after a signal, UsageError when the testee is none to record. The cases must outlive
  // the call.
  void run(const std::vector<const Case*>& cases, const Judged& judged);
  // Ends the testee's ranks. The oracle's stay for who comes next.
  void close();

  // Hello of the testee's rank 0; null before one has come.
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
    std::string order;                // of reductions, in which the reference was asked
    std::string native;               // key into references_; "" where not needed
    std::vector<std::string> others;  // keys: the same in other roundings
    bool order_changed = false;       // the testee has declared another order since
    bool noise_due = false;           // judged once, and the verdict hangs on the noise

    std::vector<std::string> keys() const;
  };

  std::string declared_order() const;
  std::string order_for(const Case& a_case) const;
  void ask(Entry& entry, std::vector<Job>& jobs);
  std::string ask(const Case& a_case, const std::string& order, const std::string& precision,
                  std::vector<Job>& jobs);
  std::vector<std::vector<Entry*>> rounds_of(const std::vector<Entry*>& entries) const;
  bool has_checkpoint(const Case& a_case) const;
  void run_first_case(std::vector<Entry*>& entries, const Judged& judged);
  void run_cases(const std::vector<Entry*>& entries, const Judged& judged);
  void note_start(const CaseRun& run);
  void give_up(std::vector<Entry*>& entries, const Judged& judged);
  bool answered(const Entry& entry) const;
  void conclude(Entry& entry, const Judged& judged);
  std::optional<Noise> noise_of(const Entry& entry) const;
  Case as_judged(const Case& a_case);
  std::optional<Verdict> inexactness(const Entry& entry) const;
  Verdict record(Entry& entry, const Case& a_case, Truths& truths, OwnedTruth& golden);
  void release(Entry& entry);
  Session::EndedBadly ended_badly();

  PipelineOptions options_;
  Session& session_;
  const Testee& testee_;
  const Testee& oracle_;
  GoldenStore golden_;
  std::map<std::string, Reference> references_;
  bool keep_answers_ = false;
  Json hello_;
  std::set<std::string> saved_;  // cases that came to their end and saved a checkpoint
  std::string start_failure_;    // of the first case that met it; empty: the testee starts
  std::vector<std::string> testee_troubles_;
  bool may_record_ = false;  // the testee is one that the store takes recordings of
  int recorded_ = 0;
};

}  // namespace fsdp_cts
