#include "harness/scenario/resolve/program.hpp"

#include <algorithm>

#include "harness/scenario/read/verbs.hpp"

namespace fsdp_cts {
namespace {

constexpr std::size_t longest = 100'000;  // steps of one program

std::vector<std::string> known_steps() {
  std::vector<std::string> known = block_names();
  for (const Verb& verb : verbs()) known.push_back(verb.name);
  return known;
}

bool is_block(std::string_view name) {
  return std::find(block_names().begin(), block_names().end(), name) != block_names().end();
}

// The key that says what the step does; empty after a mistake.
std::string name_of_step(const DataTree& step, Mistakes& mistakes) {
  if (!step.is_map()) {
    mistakes.add(step.place, "a step must be a map such as {forward: x}, found " + step.shown());
    return "";
  }
  std::string found;
  for (const DataTree::Entry& entry : step.entries) {
    if (!is_block(entry.key) && !find_verb(entry.key)) continue;
    if (!found.empty()) {
      mistakes.add({step.place.file, entry.line},
                   "a step does one thing; found '" + found + "' and '" + entry.key + "'");
      return "";
    }
    found = entry.key;
  }
  if (!found.empty()) return found;
  // The first key that is no modifier is what somebody meant to be the verb.
  for (const DataTree::Entry& entry : step.entries) {
    if (find_field(step_modifiers(), entry.key) || entry.key == "when" || entry.key == "do" ||
        entry.key == "as")
      continue;
    mistakes.add({step.place.file, entry.line}, unknown_name("verb", entry.key, known_steps()));
    return "";
  }
  mistakes.add(step.place, unknown_name("verb", "", known_steps()));
  return "";
}

void as_list(DataTree& arguments, std::string_view key) {
  if (DataTree* value = arguments.find(key)) value->one_becomes_list();
}

class Unroller {
 public:
  Unroller(MadeParts& made, Mistakes& mistakes) : made_(made), mistakes_(mistakes) {}
  Json program = Json::array();

  void steps(const DataTree& list, const Scope& scope, std::optional<std::int64_t> iteration) {
    for (const DataTree& written : list.items) {
      if (full_ || !holds(written.find("when"), scope, mistakes_)) continue;
      const std::string name = name_of_step(written, mistakes_);
      if (name.empty()) continue;
      if (name == "repeat")
        repeat(written, scope, iteration);
      else if (name == "within")
        within(written, scope, iteration);
      else if (name == "attempt")
        attempt(written, scope, iteration);
      else
        append(flat_step(written, name, scope), iteration, written.place);
    }
  }

 private:
  void repeat(const DataTree& written, const Scope& scope, std::optional<std::int64_t> iteration) {
    const DataTree count = evaluated(*written.find("repeat"), scope, mistakes_);
    check(count, rules::natural, "repeat", Stage::evaluated, mistakes_);
    const DataTree* as = written.find("as");
    const std::string variable = as && as->is_string() ? as->scalar.get<std::string>() : "iteration";
    if (scope.count(variable))
      mistakes_.add(written.place,
                    "the name '" + variable + "' is taken; a nested repeat names its variable with 'as'");
    const DataTree* body = written.find("do");
    if (!body || !count.is_scalar() || !count.scalar.is_number_integer()) return;
    const auto times = count.scalar.get<std::int64_t>();
    Scope inner = scope;
    for (std::int64_t i = 0; i < times && !full_; ++i) {
      inner[variable] = i;
      steps(*body, inner, iteration ? iteration : std::optional(i));
    }
  }

  void within(const DataTree& written, const Scope& scope, std::optional<std::int64_t> iteration) {
    const DataTree arguments = evaluated(*written.find("within"), scope, mistakes_);
    block("enter", "leave", arguments, written, scope, iteration);
  }

  void attempt(const DataTree& written, const Scope& scope, std::optional<std::int64_t> iteration) {
    const DataTree name = evaluated(*written.find("attempt"), scope, mistakes_);
    block("attempt_begin", "attempt_end", name, written, scope, iteration);
  }

  void block(const char* begin, const char* end, const DataTree& arguments, const DataTree& written,
             const Scope& scope, std::optional<std::int64_t> iteration) {
    DataTree edge;
    edge.kind = DataTree::Kind::map;
    edge.place = written.place;
    if (const DataTree* ranks = written.find("ranks")) edge.set("ranks", evaluated(*ranks, scope, mistakes_));
    DataTree first = edge, last = edge;
    first.set(begin, arguments);
    last.set(end, arguments);
    append(flattened(begin, first), iteration, edge.place);
    if (const DataTree* body = written.find("do")) steps(*body, scope, iteration);
    append(flattened(end, last), iteration, edge.place);
  }

  const Json& flat_step(const DataTree& written, const std::string& name, const Scope& scope) {
    return made_.of(written, scope, mistakes_,
                    [&] { return flattened(name, evaluated(written, scope, mistakes_)); });
  }

  Json flattened(const std::string& name, const DataTree& evaluated_step) {
    const Verb& verb = *find_verb(name);
    DataTree arguments = expand_main(*evaluated_step.find(name), verb.main);
    finish_arguments(verb, arguments);
    check_fields(arguments, verb.arguments, name, Stage::evaluated, mistakes_);
    check_fields(evaluated_step, step_modifiers(), "a step", Stage::evaluated, mistakes_, {name, "when"});
    check_meaning(name, arguments);

    Json flat = {{"verb", name}};
    for (const Field& field : verb.arguments)
      if (const DataTree* value = arguments.find(field.name)) flat[field.name] = value->json();
    for (const Field& field : step_modifiers())
      if (const DataTree* value = evaluated_step.find(field.name)) flat[field.name] = value->json();
    flat["line"] = evaluated_step.place.line;
    return flat;
  }

  void append(const Json& flat, std::optional<std::int64_t> iteration, const SourcePlace& place) {
    // A copy in one piece: there are many.
    auto& step = program.emplace_back(Json::object()).get_ref<Json::object_t&>();
    const auto& fields = flat.get_ref<const Json::object_t&>();
    step.reserve(fields.size() + 1);
    for (const auto& [key, value] : fields) step.emplace_back(key, value);
    if (iteration) step.emplace_back("iteration", *iteration);
    if (program.size() < longest) return;
    full_ = true;
    mistakes_.add(place, "the program has more than " + std::to_string(longest) + " steps");
  }

  void finish_arguments(const Verb& verb, DataTree& arguments) {
    fill_defaults(arguments, verb.arguments);
    if (verb.name == "forward") as_list(arguments, "input");
    if (verb.name == "loss" || verb.name == "foreach_mul") as_list(arguments, "of");
    if (verb.name == "observe") as_list(arguments, "what");
    if (verb.name == "zero_grad" && !arguments.find("optimizer") && !arguments.find("model"))
      arguments.set("optimizer", tree_of("optimizer", arguments.place));
    if (verb.name == "optimizer") fill_defaults(arguments, optimizer_defaults(arguments.text_at("kind")));
    if (verb.name == "enter" || verb.name == "leave") {
      if (arguments.text_at("scope") == "summon") return fill_defaults(arguments, summon_arguments());
      for (const Field& field : summon_arguments())
        if (const DataTree* value = arguments.find(field.name))
          mistakes_.add(value->place, "'" + field.name + "' belongs to scope summon only");
      if (const DataTree* part = arguments.find("module"); part && arguments.text_at("scope") == "no_grad")
        mistakes_.add(part->place, "scope no_grad is the whole program's, not a module's");
    }
  }

  void check_meaning(const std::string& name, const DataTree& arguments) {
    const auto has = [&](std::string_view key) { return arguments.find(key) != nullptr; };
    const auto note = [&](const std::string& what) { mistakes_.add(arguments.place, name + what); };
    if (name == "loss" && has("kind") && arguments.text_at("kind") != "sum" && !has("with"))
      note(" of this kind needs 'with', the name of an input");
    if (name == "zero_grad" && has("optimizer") && has("model"))
      note(" takes an optimizer or a model, not both");
    if (name == "mutate" && has("fill") && has("from")) note(" takes 'fill' or 'from', not both");
    if (name == "mutate" && arguments.text_at("how") == "inplace" && !has("fill") && !has("from"))
      note(" in place needs 'fill' or 'from'; a copy of the present values would change nothing");
    if (name == "forward")
      if (const DataTree* chunk = arguments.find("chunk");
          chunk && chunk->items.size() == 2 && chunk->items[0].scalar.is_number() &&
          chunk->items[1].scalar.is_number() &&
          chunk->items[0].scalar.get<double>() >= chunk->items[1].scalar.get<double>())
        note(": chunk is [index, count] with index below count");
  }

  MadeParts& made_;
  Mistakes& mistakes_;
  bool full_ = false;
};

}  // namespace

DataTree expand_main(const DataTree& value, const std::string& main) {
  if (value.is_map() || main.empty()) return value;
  DataTree arguments;
  arguments.kind = DataTree::Kind::map;
  arguments.place = value.place;
  if (!value.is_null()) arguments.set(main, value);
  return arguments;
}

void check_written_program(const DataTree& program, Mistakes& mistakes) {
  if (!program.is_list()) return;
  for (const DataTree& step : program.items) {
    const std::string name = name_of_step(step, mistakes);
    if (name.empty()) continue;
    if (is_block(name)) {
      check_fields(step, block_fields(name), name, Stage::written, mistakes);
      if (const DataTree* body = step.find("do")) check_written_program(*body, mistakes);
      continue;
    }
    const Verb& verb = *find_verb(name);
    const DataTree arguments = expand_main(*step.find(name), verb.main);
    check_fields(arguments, verb.arguments, name, Stage::written, mistakes);
    check_fields(step, step_modifiers(), "a step", Stage::written, mistakes, {name, "when"});
  }
}

Json ProgramUnroller::unroll(const Scope& scope, Mistakes& mistakes) {
  Unroller unroller(steps_, mistakes);
  unroller.steps(program_, scope, std::nullopt);
  return std::move(unroller.program);
}

}  // namespace fsdp_cts
