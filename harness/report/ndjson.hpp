// The report file: a header line, a line per case, a footer line with totals and a hash over all bytes before
// it.
#pragma once

#include <fstream>
#include <optional>

#include "harness/protocol/sha256.hpp"
#include "harness/report/report.hpp"

namespace fsdp_cts {

// Writes FILE.partial as results come in and renames it when the footer is written: a report under its own
// name is complete. Throws std::system_error when the file cannot be written.
class NdjsonReporter : public Reporter {
 public:
  explicit NdjsonReporter(std::filesystem::path file);
  void begin(const Json& header) override;
  void add(const Json& record) override;
  void finish(const Json& footer) override;

 private:
  void line(const Json& json);
  std::filesystem::path file_, partial_;
  std::ofstream stream_;
  Sha256 hash_;
};

// What is wrong with a report file: `code` is one of unreadable, not_json, no_header, no_footer,
// content_after_footer, tampered, case_count, verdict_counts, duplicate_case, unknown_format.
class ReportError : public std::runtime_error {
 public:
  ReportError(std::string code, const std::string& what) : std::runtime_error(what), code(std::move(code)) {}
  const std::string code;
};

// Reads and verifies: complete, untampered, counts that agree with the lines. Throws ReportError.
Report read_report(const std::filesystem::path& file);
Report parse_report(const std::string& bytes);

}  // namespace fsdp_cts
