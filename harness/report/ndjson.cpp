#include "harness/report/ndjson.hpp"

#include <fmt/format.h>

#include <cerrno>
#include <set>
#include <sstream>
#include <system_error>

#include "harness/protocol/frame.hpp"

namespace fsdp_cts {

NdjsonReporter::NdjsonReporter(std::filesystem::path file)
    : file_(std::move(file)), partial_(file_.string() + ".partial") {
  if (file_.has_parent_path()) std::filesystem::create_directories(file_.parent_path());
  // A report of an earlier run must not be taken for this one's if this run ends early.
  std::filesystem::remove(file_);
  stream_.open(partial_, std::ios::binary | std::ios::trunc);
  if (!stream_)
    throw std::system_error(errno, std::generic_category(), "cannot write the report " + partial_.string());
}

void NdjsonReporter::line(const Json& json) {
  // Replacement keeps a testee's broken UTF-8 from stopping the report.
  const std::string text = json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
  hash_.update(text);
  stream_ << text << std::flush;
  if (!stream_)
    throw std::system_error(errno, std::generic_category(), "cannot write the report " + partial_.string());
}

void NdjsonReporter::begin(const Json& header) {
  line(header);
}
void NdjsonReporter::add(const Json& record) {
  line(record);
}

void NdjsonReporter::finish(const Json& footer) {
  Json hashed = footer;
  hashed["sha256"] = hash_.hex();
  line(hashed);
  stream_.close();
  std::filesystem::rename(partial_, file_);
}

namespace {

Json parsed(const std::string& text, int number) {
  if (nested_too_deeply(text))
    throw ReportError("not_json",
                      fmt::format("line {} is nested more than {} levels deep", number, max_json_depth));
  Json json = Json::parse(text, nullptr, false);
  if (!json.is_object() || !json.contains("type"))
    throw ReportError("not_json", fmt::format("line {} is not a line of a report", number));
  return json;
}

void check_counts(const Report& report) {
  if (report.footer.at("cases") != report.cases.size() || report.header.at("cases") != report.cases.size()) {
    throw ReportError(
        "case_count",
        fmt::format("{} cases are in the report, its header announces {}, its footer {}", report.cases.size(),
                    report.header.at("cases").dump(), report.footer.at("cases").dump()));
  }
  std::set<std::string> ids;
  for (const Json& record : report.cases) {
    if (!ids.insert(record.at("id").get<std::string>()).second)
      throw ReportError("duplicate_case", "the report has " + record["id"].dump() + " twice");
  }
  if (nlohmann::json(count_verdicts(report.cases)) != nlohmann::json(report.footer.at("verdicts"))) {
    throw ReportError("verdict_counts", "the footer's counts are not those of the lines");
  }
  const int due =
      report.footer.value("faults", Json::array()).empty() ? exit_code(report.footer.at("verdicts")) : 1;
  if (report.footer.at("exit_code") != due)
    throw ReportError("exit_code",
                      fmt::format("the footer's exit code is {}, its verdicts and faults give {}",
                                  report.footer.at("exit_code").dump(), due));
}

}  // namespace

Report read_report(const std::filesystem::path& file) {
  std::ifstream stream(file, std::ios::binary);
  std::ostringstream all;
  all << stream.rdbuf();
  if (!stream) throw ReportError("unreadable", "cannot read " + file.string());
  return parse_report(std::move(all).str());
}

Report parse_report(const std::string& bytes) {
  Report report;
  Sha256 hash;
  int number = 0;
  for (std::size_t start = 0; start < bytes.size();) {
    const std::size_t end = bytes.find('\n', start);
    ++number;
    if (!report.footer.is_null())
      throw ReportError("content_after_footer", fmt::format("line {} comes after the footer", number));
    if (end == std::string::npos)
      throw ReportError("no_footer", fmt::format("the report breaks off in line {}", number));
    const std::string text = bytes.substr(start, end - start);
    Json json = parsed(text, number);
    const std::string type = json["type"].is_string() ? json["type"].get<std::string>() : "";
    try {
      if (number == 1) {
        if (type != "header") throw ReportError("no_header", "the first line is no header");
        if (json.value("format", 0) != 1)
          throw ReportError("unknown_format", "the report is of a format this version does not know");
        report.header = std::move(json);
      } else if (type == "case") {
        report.cases.push_back(std::move(json));
      } else if (type == "footer") {
        if (json.value("sha256", "") != hash.hex())
          throw ReportError("tampered", "the hash in the footer is not that of the lines before it");
        report.footer = std::move(json);
      } else {
        throw ReportError("not_json", fmt::format("line {} is neither a case nor a footer", number));
      }
    } catch (const Json::exception& error) {
      throw ReportError("not_json", fmt::format("line {} cannot be used: {}", number, error.what()));
    }
    hash.update(std::string_view(bytes).substr(start, end - start + 1));
    start = end + 1;
  }
  if (report.header.is_null()) throw ReportError("no_header", "the report is empty");
  if (report.footer.is_null())
    throw ReportError("no_footer",
                      fmt::format("the report breaks off after line {}; there is no footer", number));
  try {
    check_counts(report);
  } catch (const Json::exception& error) {
    throw ReportError("not_json", std::string("a line lacks what it must have: ") + error.what());
  } catch (const std::invalid_argument& error) {
    throw ReportError("verdict_counts", error.what());
  }
  return report;
}

}  // namespace fsdp_cts
