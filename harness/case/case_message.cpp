#include "harness/case/case.hpp"

namespace fsdp_cts {

Json case_message(const Case& a_case) {
  return {{"type", "case"},
          {"id", a_case.id},
          {"world", a_case.world},
          {"requires", a_case.requires_},
          {"switches", a_case.switches},
          {"models", a_case.models},
          {"plans", a_case.plans},
          {"program", a_case.program}};
}

}  // namespace fsdp_cts
