#include "harness/report/html_page.hpp"

namespace fsdp_cts {

const std::string_view html_style = R"css(
:root { --ink: #1d2129; --soft: #5b6472; --line: #d9dde3; --ground: #fff; --panel: #f5f6f8; --good: #1a7f37; --bad: #c62828; --mid: #9a6700; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6e8eb; --soft: #9aa3af; --line: #353b45; --ground: #15181d; --panel: #1e2229; --good: #4cc26a; --bad: #ff7b72; --mid: #e3b341; }
}
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 76rem; padding: 1.5rem; font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--ground); }
h1 { font-size: 1.4rem; margin: 0; } h2 { font-size: 1.1rem; margin: 2rem 0 .6rem; }
.verdict { font-size: 1.15rem; margin: .3rem 0 1rem; }
.good { color: var(--good); } .bad { color: var(--bad); } .mid { color: var(--mid); } .soft { color: var(--soft); }
.cards { display: flex; flex-wrap: wrap; gap: .6rem; margin: 1rem 0; }
.card { background: var(--panel); border: 1px solid var(--line); border-radius: 6px; padding: .5rem .9rem; min-width: 7rem; }
.card b { display: block; font-size: 1.3rem; }
table { border-collapse: collapse; width: 100%; } td, th { text-align: left; padding: .25rem .6rem .25rem 0; vertical-align: top; border-bottom: 1px solid var(--line); }
details { border-bottom: 1px solid var(--line); padding: .3rem 0; } summary { cursor: pointer; display: flex; gap: .7rem; align-items: baseline; }
summary .id { font-family: ui-monospace, monospace; font-size: 13px; overflow-wrap: anywhere; flex: 1; }
summary .tag { min-width: 6.5rem; max-width: 14rem; font-weight: 600; } summary .time { color: var(--soft); font-size: 13px; }
.body { padding: .4rem 0 .8rem 7.2rem; } .body p { margin: .3rem 0; max-width: 60rem; }
pre { background: var(--panel); border: 1px solid var(--line); border-radius: 6px; padding: .7rem; overflow-x: auto; font-size: 12.5px; white-space: pre-wrap; margin: .5rem 0; }
.map { display: block; margin: .5rem 0; } .map .gone { fill: var(--panel); } .map .differs { fill: var(--bad); } .map .border { stroke: var(--ink); stroke-width: 1.5; fill: none; }
.timeline { display: block; margin: .5rem 0; max-width: 100%; } .timeline text { font-size: 11px; fill: var(--ink); } .timeline .access { fill: var(--line); } .timeline .found { stroke: var(--bad); stroke-width: 2.5; } .timeline .gap { stroke-dasharray: 6 4; }
.filter { display: flex; gap: .6rem; margin: .8rem 0; flex-wrap: wrap; } input, select { font: inherit; padding: .3rem .5rem; color: inherit; background: var(--panel); border: 1px solid var(--line); border-radius: 6px; } input { flex: 1; min-width: 14rem; }
.scenario > details { margin-left: 1.5rem; } .scenario > details:last-child { border-bottom: 0; } .scenario > .body { padding-left: 1.5rem; }
td { overflow-wrap: anywhere; } td.soft { white-space: nowrap; }
@media (max-width: 50rem) { .body { padding-left: 0; } }
)css";

const std::string_view html_script = R"js(
const text = document.getElementById('text'), verdict = document.getElementById('verdict'), shown = document.getElementById('shown');
const cases = [...document.querySelectorAll('details[data-id]')], scenarios = [...document.querySelectorAll('details.scenario')];
function filter() {
  const needle = text.value.toLowerCase(), wanted = verdict.value;
  let count = 0;
  for (const each of cases) {
    const fits = (!needle || each.dataset.id.toLowerCase().includes(needle)) && (!wanted || each.dataset.verdict === wanted);
    each.hidden = !fits;
    if (fits) ++count;
  }
  const narrowed = needle || wanted;
  for (const each of scenarios) {
    each.hidden = !each.querySelector('details[data-id]:not([hidden])');
    if (narrowed) each.open = true;
  }
  shown.textContent = count + ' of ' + cases.length + ' cases';
}
text.addEventListener('input', filter); verdict.addEventListener('change', filter); filter();
)js";

const std::string_view html_levels_of_honesty = R"html(
<h2>What this report proves, and what not</h2>
<table>
<tr><th>what ran</th><th>proves</th><th>does not prove</th></tr>
<tr><td>exact lane</td><td>values bit for bit, in any order of summation: the data are dyadic and a float64 run of the reference shows that nothing was rounded</td><td>rounding on ordinary data</td></tr>
<tr><td>tolerance lane</td><td>ordinary data agree with both truths within upstream's tolerances; the largest distance in ULP stands with each case</td><td>the order of summation of other backends</td></tr>
<tr><td>layouts, dtypes</td><td>what is sharded and where, in which dtype, computed from what the ranks handed over</td><td>what happens between two observations</td></tr>
<tr><td>traces of collectives</td><td>that all ranks report the same collectives, as many, in the dtype and order that the rules ask for</td><td>that they took place as reported; overlap in time</td></tr>
<tr><td>units, counters, training state, warnings</td><td>that the testee reports them as the rules ask</td><td>that they are as reported</td></tr>
<tr><td>skipped</td><td>nothing</td><td>anything: counted above and never a pass</td></tr>
<tr><td>unsupported</td><td>nothing</td><td>anything: a run with unsupported cases that nobody announced is not as expected</td></tr>
</table>
)html";

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

}  // namespace fsdp_cts
