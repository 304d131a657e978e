#include "harness/report/html.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>

#include "harness/report/console.hpp"
#include "harness/report/html_page.hpp"

namespace fsdp_cts {
namespace {

std::string escaped(const std::string& text) {
  std::string result;
  for (char c : text) {
    switch (c) {
      case '&':
        result += "&amp;";
        break;
      case '<':
        result += "&lt;";
        break;
      case '>':
        result += "&gt;";
        break;
      case '"':
        result += "&quot;";
        break;
      default:
        result += c;
    }
  }
  return result;
}

std::string text_of(const Json& value) {
  return escaped(value.is_string() ? value.get<std::string>()
                                   : value.dump(-1, ' ', false, Json::error_handler_t::replace));
}

const char* colour(const Json& record) {
  if (needs_attention(record)) return "bad";
  const std::string verdict = record.at("verdict").get<std::string>();
  return verdict == "pass" ? "good" : verdict == "xfail" ? "mid" : "soft";
}

std::string card(const std::string& figure, const std::string& label) {
  return fmt::format("<div class=card><b>{}</b>{}</div>\n", escaped(figure), escaped(label));
}

std::string table(const Json& object) {
  std::string rows;
  for (const auto& [key, value] : object.items()) {
    if (key == "stacks" || key == "output") continue;
    rows += fmt::format("<tr><td class=soft>{}</td><td>{}</td></tr>\n", escaped(key), text_of(value));
  }
  return rows.empty() ? "" : "<table>\n" + rows + "</table>\n";
}

std::string case_body(const Json& record, const std::map<std::string, std::string>& explanations) {
  std::string body;
  auto paragraph = [&](const std::string& label, const std::string& text) {
    if (!text.empty()) body += fmt::format("<p><span class=soft>{}</span> {}</p>\n", label, text);
  };
  if (!record.at("summary").get<std::string>().empty()) {
    paragraph(escaped(record.at("code").get<std::string>()) + ":",
              escaped(record.at("summary").get<std::string>()));
  }
  body += table(record.at("divergence"));
  for (const char* evidence : {"stacks", "output"}) {
    if (record.at("divergence").contains(evidence))
      body += fmt::format("<pre>{}</pre>\n", text_of(record["divergence"][evidence]));
  }
  if (record.contains("note")) paragraph("expectation file:", text_of(record["note"]));
  paragraph("why this case exists:", text_of(record.at("why")));
  std::string clauses;
  for (const Json& clause : record.at("clauses")) clauses += (clauses.empty() ? "" : ", ") + text_of(clause);
  paragraph("clauses:", clauses);
  paragraph("from:", text_of(record.at("source")));
  for (const Json& quirk : record.at("quirks")) paragraph("upstream's quirk:", text_of(quirk));
  const Json& counts = record.at("counts");
  paragraph("compared:", fmt::format("{} elements in {} tensors, {} of them bit for bit; {} collectives; "
                                     "largest difference {:.3g} ULP; lane {}",
                                     counts.at("elements").dump(), counts.at("tensors").dump(),
                                     counts.at("exact_elements").dump(), counts.at("collectives").dump(),
                                     record.at("max_ulp").is_number() ? record["max_ulp"].get<double>() : 0.0,
                                     text_of(record.at("lane"))));
  body += fmt::format("<pre>{}</pre>\n", text_of(record.at("repeat")));
  if (auto found = explanations.find(record.at("id").get<std::string>()); found != explanations.end()) {
    body +=
        fmt::format("<details><summary>in words</summary><pre>{}</pre></details>\n", escaped(found->second));
  }
  return body;
}

std::string case_html(const Json& record, const std::map<std::string, std::string>& explanations) {
  const std::string id = escaped(record.at("id").get<std::string>());
  const std::string verdict = record.at("verdict").get<std::string>();
  return fmt::format(
      "<details data-id=\"{}\" data-verdict=\"{}\"><summary><span class=\"tag {}\">{}</span><span "
      "class=id>{}</span><span class=time>{:.0f} ms</span></summary><div class=body>\n{}</div></details>\n",
      id, verdict, colour(record), verdict, id, record.at("seconds").get<double>() * 1000,
      case_body(record, explanations));
}

std::string verdict_sentence(const Report& report) {
  const auto bad = std::count_if(report.cases.begin(), report.cases.end(), needs_attention);
  const Json& verdicts = report.footer.at("verdicts");
  const int passed = verdicts.value("pass", 0);
  if (bad > 0)
    return fmt::format("<span class=bad>{} of {} cases are not as expected.</span>", bad,
                       report.cases.size());
  if (passed == 0)
    return "<span class=mid>Nothing was judged: every case was skipped, unsupported or a known "
           "failure.</span>";
  const auto left_out = static_cast<long>(report.cases.size()) - passed;
  return fmt::format(
      "<span class=good>All {} judged cases passed.</span>{}", passed,
      left_out ? fmt::format(" <span class=mid>{} were not judged; see below.</span>", left_out) : "");
}

std::string summary_html(const Report& report) {
  const Json& header = report.header;
  const Json sums = sum_counts(report.cases);
  std::string html = fmt::format("<h1>fsdp-cts {} on {}</h1>\n<p class=verdict>{}</p>\n<div class=cards>\n",
                                 text_of(header.at("suite")), text_of(header.at("testee").at("name")),
                                 verdict_sentence(report));
  for (const auto& [verdict, count] : report.footer.at("verdicts").items())
    html += card(count.dump(), verdict);
  html += card(fmt::format("{:.1f} s", report.footer.at("seconds").get<double>()), "in all");
  html += card(sums.at("elements").dump(), "elements compared");
  html += card(sums.at("exact_elements").dump(), "bit for bit");
  html += "</div>\n";
  return html;
}

std::string failures_html(const Report& report, const std::map<std::string, std::string>& explanations) {
  std::string html;
  for (const Json& record : report.cases) {
    if (needs_attention(record)) html += case_html(record, explanations);
  }
  return html.empty() ? "" : "<h2>Not as expected</h2>\n" + html;
}

std::string cases_html(const Report& report, const std::map<std::string, std::string>& explanations) {
  std::string options;
  for (const auto& [verdict, count] : report.footer.at("verdicts").items())
    options += fmt::format("<option>{}</option>", verdict);
  std::string html = fmt::format(
      "<h2>All cases</h2>\n<div class=filter><input id=text placeholder=\"part of a case id\" "
      "aria-label=\"part of a case id\"><select id=verdict aria-label=verdict><option value=\"\">every "
      "verdict</option>{}</select><span id=shown class=soft></span></div>\n",
      options);
  for (const Json& record : report.cases) html += case_html(record, explanations);
  return html;
}

}  // namespace

void write_html(const Report& report, const std::map<std::string, std::string>& explanations,
                const std::filesystem::path& file) {
  if (file.has_parent_path()) std::filesystem::create_directories(file.parent_path());
  std::ofstream out(file, std::ios::binary | std::ios::trunc);
  out << "<!doctype html>\n<html lang=en><head><meta charset=utf-8><meta name=viewport "
         "content=\"width=device-width\"><title>fsdp-cts on "
      << text_of(report.header.at("testee").at("name")) << "</title><style>" << html_style
      << "</style></head><body>\n"
      << summary_html(report) << failures_html(report, explanations) << cases_html(report, explanations)
      << html_levels_of_honesty << "<h2>Testee, machine, selection</h2>\n"
      << table(report.header.at("testee")) << table(report.header.at("machine"))
      << table(report.header.at("selection")) << "<script>" << html_script << "</script></body></html>\n";
  out.close();
  if (!out) throw std::runtime_error("cannot write " + file.string());
}

}  // namespace fsdp_cts
