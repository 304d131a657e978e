#include "harness/report/html.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>

#include "harness/protocol/whole_file.hpp"
#include "harness/report/console.hpp"
#include "harness/report/html_page.hpp"
#include "harness/report/tensor_drawing.hpp"
#include "harness/report/timeline_drawing.hpp"

namespace fsdp_cts {
namespace {

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
    if (key == "stacks" || key == "output" || key == "tensor") continue;
    rows += fmt::format("<tr><td class=soft>{}</td><td>{}</td></tr>\n", escaped(key), text_of(value));
  }
  return rows.empty() ? "" : "<table>\n" + rows + "</table>\n";
}

std::string paragraph(const std::string& label, const std::string& text) {
  return text.empty() ? "" : fmt::format("<p><span class=soft>{}</span> {}</p>\n", label, text);
}

// What all cases of a scenario share.
std::string scenario_body(const Json& record) {
  std::string body = paragraph("why it exists:", text_of(record.at("why")));
  std::string clauses;
  for (const Json& clause : record.at("clauses")) clauses += (clauses.empty() ? "" : ", ") + text_of(clause);
  body += paragraph("clauses:", clauses);
  body += paragraph("from:", text_of(record.at("source")));
  for (const Json& quirk : record.at("quirks")) body += paragraph("upstream's quirk:", text_of(quirk));
  return body;
}

std::string in_words(const Json& record, const std::map<std::string, std::string>& explanations) {
  const auto found = explanations.find(record.at("id").get<std::string>());
  if (found == explanations.end()) return "";
  return fmt::format("<details><summary>in words: {}</summary><pre>{}</pre></details>\n",
                     text_of(record.at("id")), escaped(found->second));
}

// Which truths judged; a report of an earlier version does not say.
std::string judged_by(const Json& truths) {
  if (truths.empty()) return "";
  const long left_out = truths.value("golden_left_out", 0L);
  return paragraph(
      "judged by:",
      fmt::format("the reference in {} comparisons, the recording in {}{}", truths.value("reference", 0L),
                  truths.value("golden", 0L),
                  left_out
                      ? fmt::format("; left out of {}, being made in another order of reductions", left_out)
                      : ""));
}

std::string case_body(const Json& record) {
  std::string body;
  if (!record.at("summary").get<std::string>().empty())
    body += paragraph(text_of(record.at("code")) + ":", text_of(record.at("summary")));
  body += table(record.at("divergence"));
  if (record.at("divergence").contains("tensor")) body += drawing_of(record["divergence"]["tensor"]);
  if (needs_attention(record)) body += timeline_of(record);
  for (const char* evidence : {"stacks", "output"}) {
    if (record.at("divergence").contains(evidence))
      body += fmt::format("<pre>{}</pre>\n", text_of(record["divergence"][evidence]));
  }
  if (record.contains("note")) body += paragraph("known deviation:", text_of(record["note"]));
  const Json& counts = record.at("counts");
  body += paragraph("compared:",
                    fmt::format("{} elements in {} tensors, {} of them bit for bit; {} collectives ({}); "
                                "largest difference {:.3g} ULP{}; lane {}",
                                counts.at("elements").dump(), counts.at("tensors").dump(),
                                counts.at("exact_elements").dump(), counts.at("collectives").dump(),
                                counts.value("witnessed", 0L) > 0 ? "witnessed by the transport"
                                                                  : "as reported by the testee",
                                record.at("max_ulp").is_number() ? record["max_ulp"].get<double>() : 0.0,
                                record.value("max_noise", 0.0) > 0
                                    ? fmt::format(" ({:.2g} noises)", record["max_noise"].get<double>())
                                    : "",
                                text_of(record.at("lane"))));
  body += judged_by(counts.value("truths", Json::object()));
  return body + fmt::format("<pre>{}</pre>\n", text_of(record.at("repeat")));
}

// A failure stands twice on the page; the filter finds and counts only one of the two.
std::string case_html(const Json& record, const std::string& body, bool filtered) {
  const std::string id = text_of(record.at("id")), verdict = text_of(record.at("verdict"));
  const std::string found_as =
      filtered ? fmt::format(" data-id=\"{}\" data-verdict=\"{}\"", id, verdict) : "";
  return fmt::format(
      "<details{}><summary><span class=\"tag {}\">{}</span><span class=id>{}</span><span class=time>{:.0f} "
      "ms</span></summary><div class=body>\n{}</div></details>\n",
      found_as, colour(record), verdict, id, record.at("seconds").get<double>() * 1000, body);
}

std::string verdict_sentence(const Report& report) {
  const auto bad = std::count_if(report.cases.begin(), report.cases.end(), needs_attention);
  const Json& verdicts = report.footer.at("verdicts");
  const int passed = verdicts.value("pass", 0);
  if (bad > 0)
    return fmt::format("<span class=bad>{} of {} cases are not as expected.</span>", bad,
                       report.cases.size());
  if (passed == 0)
    return "<span class=mid>Nothing was judged: every case was skipped or a known deviation.</span>";
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
  html += card(sums.at("distinct").at("cases").dump(), "distinct programs");
  html += card(sums.at("distinct").at("elements").dump(), "elements over these");
  html += "</div>\n";
  return html;
}

std::string failures_html(const Report& report, const std::map<std::string, std::string>& explanations) {
  std::string html;
  for (const Json& record : report.cases) {
    // What is unsupported can be thousands of cases for one reason; they stand with their scenarios.
    if (needs_attention(record) && !is_unsupported(record))
      html += case_html(record, case_body(record) + scenario_body(record) + in_words(record, explanations),
                        false);
  }
  return html.empty() ? "" : "<h2>Not as expected</h2>\n" + html;
}

// Cases are many and much alike: what they share stands once, on their scenario.
std::string scenario_html(const std::vector<const Json*>& records,
                          const std::map<std::string, std::string>& explanations) {
  std::map<std::string, int> verdicts;
  const Json* worst = records.front();
  std::string rows;
  for (const Json* record : records) {
    ++verdicts[text_of(record->at("verdict"))];
    if (needs_attention(*record)) worst = record;
    rows += case_html(*record, case_body(*record), true);
  }
  std::string counts;
  for (const auto& [verdict, count] : verdicts)
    counts += fmt::format("{}{} {}", counts.empty() ? "" : ", ", count, verdict);
  return fmt::format(
      "<details class=scenario><summary><span class=\"tag {}\">{}</span><span "
      "class=id>{}</span></summary><div "
      "class=body>\n{}{}</div>\n{}</details>\n",
      colour(*worst), counts, text_of(records.front()->at("scenario")), scenario_body(*records.front()),
      in_words(*records.front(), explanations), rows);
}

std::string cases_html(const Report& report, const std::map<std::string, std::string>& explanations) {
  std::string options;
  for (const auto& [verdict, count] : report.footer.at("verdicts").items())
    options += fmt::format("<option>{}</option>", verdict);
  std::string html = fmt::format(
      "<h2>All cases, by scenario</h2>\n<div class=filter><input id=text placeholder=\"part of a case id\" "
      "aria-label=\"part of a case id\"><select id=verdict aria-label=verdict><option value=\"\">every "
      "verdict</option>{}</select><span id=shown class=soft></span></div>\n",
      options);
  std::map<std::string, std::vector<const Json*>> by_scenario;
  for (const Json& record : report.cases)
    by_scenario[record.at("scenario").get<std::string>()].push_back(&record);
  for (const auto& [scenario, records] : by_scenario) html += scenario_html(records, explanations);
  return html;
}

}  // namespace

void write_html(const Report& report, const std::map<std::string, std::string>& explanations,
                const std::filesystem::path& file) {
  std::ostringstream out;
  out << "<!doctype html>\n<html lang=en><head><meta charset=utf-8><meta name=viewport "
         "content=\"width=device-width\"><title>fsdp-cts on "
      << text_of(report.header.at("testee").at("name")) << "</title><style>" << html_style
      << "</style></head><body>\n"
      << summary_html(report) << failures_html(report, explanations) << cases_html(report, explanations)
      << html_levels_of_honesty
      << paragraph("as reported by the testee:", escaped(std::string(self_reported)))
      << "<h2>Testee, machine, selection</h2>\n"
      << table(report.header.at("testee")) << table(report.header.at("machine"))
      << table(report.header.at("selection")) << "<script>" << html_script << "</script></body></html>\n";
  write_whole_file_and_folders(file, out.view());
}

}  // namespace fsdp_cts
