#include "harness/report/junit.hpp"

#include <fmt/format.h>

#include <pugixml.hpp>
#include <sstream>

#include "harness/protocol/whole_file.hpp"

namespace fsdp_cts {
namespace {

// XML has no way to write most control characters; a testee's output may hold any.
std::string printable(std::string text) {
  for (char& c : text) {
    if (static_cast<unsigned char>(c) < 0x20 && c != '\n' && c != '\t') c = '?';
  }
  return text;
}

enum class Kind { passed, failure, error, skipped };
Kind kind_of(const std::string& verdict) {
  switch (verdict_from_name(verdict)) {
    case VerdictKind::pass:
    case VerdictKind::xfail:
      return Kind::passed;
    case VerdictKind::skipped:
      return Kind::skipped;
    case VerdictKind::unsupported:
    case VerdictKind::fail:
    case VerdictKind::xpass:
    case VerdictKind::flaky:
      return Kind::failure;
    default:
      return Kind::error;
  }
}

void add_case(pugi::xml_node suite, const Json& record) {
  const std::string verdict = record.at("verdict").get<std::string>();
  pugi::xml_node node = suite.append_child("testcase");
  node.append_attribute("classname") = record.at("scenario").get<std::string>().c_str();
  node.append_attribute("name") = record.at("id").get<std::string>().c_str();
  node.append_attribute("time") = fmt::format("{:.4f}", record.at("seconds").get<double>()).c_str();
  const std::string summary = printable(record.at("summary").get<std::string>());
  const Kind kind = kind_of(verdict);
  if (kind == Kind::passed) {
    if (record.contains("note"))
      node.append_child("system-out").text() = printable(record["note"].get<std::string>()).c_str();
    return;
  }
  if (kind == Kind::skipped) {
    node.append_child("skipped").append_attribute("message") = (verdict + ": " + summary).c_str();
    return;
  }
  pugi::xml_node child = node.append_child(kind == Kind::failure ? "failure" : "error");
  child.append_attribute("type") = (verdict + ":" + record.at("code").get<std::string>()).c_str();
  child.append_attribute("message") = summary.c_str();
  child.text() = printable(record.at("divergence").dump(2, ' ', false, Json::error_handler_t::replace) +
                           "\nrepeat: " + record.at("repeat").get<std::string>())
                     .c_str();
}

}  // namespace

void write_junit(const Report& report, const std::filesystem::path& file) {
  pugi::xml_document document;
  pugi::xml_node root = document.append_child("testsuites");
  root.append_attribute("name") = "fsdp-cts";
  root.append_attribute("tests") = static_cast<unsigned>(report.cases.size());
  std::map<std::string, std::vector<const Json*>> suites;
  for (const Json& record : report.cases)
    suites[fmt::format("{} world {}", record.at("seed").get<std::string>(), record.at("world").get<int>())]
        .push_back(&record);
  for (const auto& [name, records] : suites) {
    pugi::xml_node suite = root.append_child("testsuite");
    suite.append_attribute("name") = name.c_str();
    unsigned counts[4] = {0, 0, 0, 0};
    double seconds = 0;
    for (const Json* record : records) {
      ++counts[static_cast<int>(kind_of(record->at("verdict").get<std::string>()))];
      seconds += record->at("seconds").get<double>();
    }
    suite.append_attribute("tests") = static_cast<unsigned>(records.size());
    suite.append_attribute("failures") = counts[static_cast<int>(Kind::failure)];
    suite.append_attribute("errors") = counts[static_cast<int>(Kind::error)];
    suite.append_attribute("skipped") = counts[static_cast<int>(Kind::skipped)];
    suite.append_attribute("time") = fmt::format("{:.4f}", seconds).c_str();
    for (const Json* record : records) add_case(suite, *record);
  }
  std::ostringstream out;
  document.save(out, "  ");
  write_whole_file_and_folders(file, out.view());
}

}  // namespace fsdp_cts
