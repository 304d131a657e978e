// A report file. Nearly every change breaks its hash, so it is read a second time with the hash that fits:
// anybody can compute it.
#include <sstream>

#include "harness/fuzz/targets.hpp"
#include "harness/report/console.hpp"
#include "harness/report/ndjson.hpp"

namespace {

void read(const std::string& bytes) {
  try {
    const fsdp_cts::Report report = fsdp_cts::parse_report(bytes);
    std::ostringstream out;
    fsdp_cts::print_summary(out, report);
  } catch (const fsdp_cts::ReportError&) {
  } catch (const nlohmann::ordered_json::exception&) {  // a summary of a report that lacks something
  } catch (const std::invalid_argument&) {              // an unknown verdict
  }
}

std::string with_fitting_hash(std::string bytes) {
  if (bytes.ends_with('\n')) bytes.pop_back();
  const std::size_t last = bytes.rfind('\n') + 1;  // 0 for a single line
  auto footer = fsdp_cts::Json::parse(bytes.substr(last), nullptr, false);
  if (!footer.is_object()) return bytes;
  fsdp_cts::Sha256 hash;
  hash.update(std::string_view(bytes).substr(0, last));
  footer["sha256"] = hash.hex();
  return bytes.substr(0, last) + footer.dump(-1, ' ', false, fsdp_cts::Json::error_handler_t::replace) + "\n";
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string bytes(fsdp_cts::fuzz::text_of(data, size));
  read(bytes);
  read(with_fitting_hash(bytes));
  return 0;
}
