#include <algorithm>
#include <climits>
#include <map>
#include <set>
#include <span>

#include <lockstep/element_text.hpp>
#include <lockstep/kit/case_file.hpp>

#include "document_place.hpp"

namespace lockstep::kit {
namespace {

std::string quoted_name(auto value) {
  return quoted(name(value));
}

// "\"f16\", \"bf16\" or \"f32\"".
template <class Enum>
std::string one_of(std::span<const Enum> values) {
  std::string text;
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (i > 0) text += i + 1 == values.size() ? " or " : ", ";
    text += quoted_name(values[i]);
  }
  return text;
}

// One of the named values of an enumeration.
template <class Enum>
Enum read_name(const Place& place, std::span<const Enum> values) {
  const std::string_view text = place.string(one_of(values));
  const auto found = std::ranges::find(values, text, [](Enum value) { return name(value); });
  if (found == values.end()) place.refuse_kind(one_of(values));
  return *found;
}

// --- Tensors

Shape read_shape(const Place& place) {
  std::vector<std::int64_t> axes(place.require_list("a list of the lengths of the axes"));
  for (std::size_t axis = 0; axis < axes.size(); ++axis) {
    axes[axis] = place[axis].integer_between(0, largest_size);
  }
  return Shape(axes);
}

std::string wanted_element(DType dtype) {
  const std::string bits =
      "\"0x\" and " + std::to_string(2 * size_of(dtype)) + " hexadecimal digits";
  if (is_floating(dtype)) return "a number, \"nan\", \"inf\", \"-inf\", \"-0\", or " + bits;
  return "a whole number that fits " + std::string(name(dtype)) + ", or " + bits;
}

// True for what a string may say: what JSON has no number for, and whole numbers, which other
// readers may not keep exactly.
bool may_be_string(DType dtype, std::string_view text) {
  return is_integer(dtype) || text == "nan" || text == "inf" || text == "-inf" || text == "-0" ||
         text.starts_with("0x");
}

void read_element(const Place& place, DType dtype, std::byte* element) {
  const bool textual =
      place.kind() == JsonNode::Kind::number ||
      (place.kind() == JsonNode::Kind::string && may_be_string(dtype, place.text()));
  if (!textual || !parse_element(dtype, place.text(), element)) {
    place.refuse_kind(wanted_element(dtype));
  }
}

// The tensor that an object's keys dtype, shape and values say. `family` is what it is for.
Tensor read_tensor(const Place& place, bool integers, std::string_view purpose) {
  const Place dtype_place = place.at("dtype");
  const auto dtype = read_name<DType>(dtype_place, all_dtypes);
  if (is_integer(dtype) != integers) {
    dtype_place.refuse_kind(one_of<DType>(integers ? std::span<const DType>(integer_dtypes)
                                                   : std::span<const DType>(floating_dtypes)) +
                            " for " + std::string(purpose));
  }
  const Shape shape = read_shape(place.at("shape"));
  const Place values = place.at("values");
  const std::size_t count = values.require_list("a list of the elements");
  // Compared before anything is allocated: a shape can claim any size.
  const std::optional<std::int64_t> elements = shape.elements();
  if (!elements || *elements != static_cast<std::int64_t>(count)) {
    values.refuse("found " + std::to_string(count) + " values; shape " + to_string(shape) +
                  " holds " + (elements ? std::to_string(*elements) : "more than 2^63-1"));
  }
  Tensor tensor = Tensor::uninitialized(dtype, shape);
  std::byte* element = tensor.mutable_bytes().data();
  for (std::size_t i = 0; i < count; ++i, element += size_of(dtype)) {
    read_element(values[i], dtype, element);
  }
  return tensor;
}

std::vector<std::int64_t> read_counts(const Place& place) {
  std::vector<std::int64_t> counts(place.require_list("a list of row counts"));
  for (std::size_t i = 0; i < counts.size(); ++i) {
    counts[i] = place[i].integer("a whole number of rows");
  }
  return counts;
}

// --- Steps

// Reads the steps of a case one after another, remembering what later ones may refer to.
class StepReader {
 public:
  StepReader(int world, bool window, bool recorded)
      : world_(world), window_(window), recorded_(recorded) {}

  Step read(const Place& place, std::span<const Step> earlier) {
    place.require_object("a step", {"group", "op", "repeat", "root", "inputs", "upstream", "expected",
                                     "received"});
    step_ = Step();
    earlier_ = earlier;
    if (place.has("group")) read_group(place.at("group"));
    members_ = step_.group.empty() ? static_cast<std::size_t>(world_) : step_.group.size();
    // First of all, so that every later list is as long as the text has shown to be.
    place.at("inputs").require_list_of(members_, each_member());
    read_operations(place.at("op"));
    if (place.has("repeat")) step_.repeat = place.at("repeat").integer_between(1, most_repeats);
    read_roots(place);
    read_inputs(place.at("inputs"));
    if (place.has("upstream")) read_upstream(place.at("upstream"));
    if (place.has("expected")) read_expected(place.at("expected"));
    if (recorded_) {
      read_received(place.at("received"));
    } else if (place.has("received")) {
      place.at("received").refuse("the case has no \"recorded\", which says who gave this");
    }
    return std::move(step_);
  }

 private:
  std::string_view each_member() const {
    return step_.group.empty() ? "rank of the world" : "member of the group";
  }

  void read_group(const Place& place) {
    const std::size_t size = place.require_list("a list of world ranks");
    if (size == 0) place.refuse("a group has at least one member");
    std::set<int> seen;
    for (std::size_t i = 0; i < size; ++i) {
      const int rank = static_cast<int>(place[i].integer_between(0, world_ - 1));
      if (!seen.insert(rank).second) {
        place[i].refuse("rank " + std::to_string(rank) + " is in the group twice");
      }
      step_.group.push_back(rank);
    }
  }

  void read_operations(const Place& place) {
    const auto read_one = [](const Place& entry) {
      return read_name<Operation>(entry, tensor_operations);
    };
    if (place.is_list()) {
      place.require_list_of(members_, each_member());
      for (std::size_t i = 0; i < members_; ++i) step_.operations.push_back(read_one(place[i]));
    } else {
      step_.operations.assign(members_, read_one(place));
    }
  }

  void read_roots(const Place& place) {
    const bool needed =
        std::ranges::find(step_.operations, Operation::broadcast_float) != step_.operations.end();
    if (!needed) {
      if (place.has("root")) place.at("root").refuse("no rank broadcasts, so there is no root");
      return;
    }
    const Place root = place.at("root");
    const std::string wanted = "a rank of the communicator";
    if (root.is_list()) {
      root.require_list_of(members_, each_member());
      for (std::size_t i = 0; i < members_; ++i) step_.roots.push_back(root[i].integer(wanted));
    } else {
      step_.roots.assign(members_, root.integer(wanted));
    }
  }

  void read_inputs(const Place& place) {
    missing_.emplace_back();
    for (std::size_t member = 0; member < members_; ++member) {
      const Place entry = place[member];
      const int rank = step_.world_rank(member);
      if (!entry.is_null()) {
        if (const auto departure = left_.find(rank); departure != left_.end()) {
          entry.refuse("rank " + std::to_string(rank) + " left the world in step " +
                       std::to_string(departure->second) + ", so its input is null from then on");
        }
      }
      const bool departs = entry.kind() == JsonNode::Kind::object && entry.has("departure");
      if (departs) read_departure(entry, member);
      if (entry.is_null() || departs) {
        if (window_) entry.refuse_kind("an input, as nobody leaves the world within a window");
        left_.try_emplace(rank, earlier_.size());
        missing_.back() = rank;
        step_.inputs.push_back(std::nullopt);
      } else {
        step_.inputs.push_back(read_input(entry, member));
      }
    }
  }

  void read_departure(const Place& place, std::size_t member) {
    // A rank that returns is `null`.
    constexpr Departure others[] = {Departure::throws, Departure::stalls};
    place.require_object("a rank that leaves", {"departure"});
    step_.departures.resize(members_, Departure::returns);
    step_.departures[member] = read_name<Departure>(place.at("departure"), others);
  }

  Input read_input(const Place& place, std::size_t member) {
    const Operation operation = step_.operations[member];
    const bool integers = takes_integers(operation);
    Input input;
    if (place.kind() == JsonNode::Kind::object && place.has("from_step")) {
      place.require_object("an input from an earlier step", {"from_step", "send_counts"});
      input.from_step = read_reference(place.at("from_step"), member);
    } else {
      place.require_object("an input",
                           {"dtype", "shape", "values", "layout", "from_step", "send_counts"});
      input.tensor = read_tensor(place, integers, name(operation));
      constexpr MemoryLayout layouts[] = {MemoryLayout::slice, MemoryLayout::strided};
      if (place.has("layout")) input.layout = read_name<MemoryLayout>(place.at("layout"), layouts);
    }
    if (is_all_to_all_v(operation)) {
      input.send_counts = read_counts(place.at("send_counts"));
    } else if (place.has("send_counts")) {
      place.at("send_counts").refuse(std::string(name(operation)) + " takes no counts");
    }
    return input;
  }

  // An earlier step in which this member's world rank got a value that its operation takes, as far
  // as that shows without evaluating anything.
  int read_reference(const Place& place, std::size_t member) const {
    const std::int64_t wanted = place.integer("the number of an earlier step");
    if (wanted < 0 || wanted >= static_cast<std::int64_t>(earlier_.size())) {
      place.refuse("step " + std::to_string(wanted) + " is no step before this one, step " +
                   std::to_string(earlier_.size()));
    }
    const Step& source = earlier_[static_cast<std::size_t>(wanted)];
    const int rank = step_.world_rank(member);
    const std::string whose =
        "step " + std::to_string(wanted) + " has no value for rank " + std::to_string(rank) + ": ";
    const auto& group = source.group;
    const auto position =
        group.empty() ? static_cast<std::size_t>(rank)
                      : static_cast<std::size_t>(std::ranges::find(group, rank) - group.begin());
    if (position == source.members()) place.refuse(whose + "it is no member of the step's group");
    if (const std::optional<int> missing = missing_[static_cast<std::size_t>(wanted)]) {
      place.refuse(whose + "rank " + std::to_string(*missing) +
                   " had left, which is a transport error");
    }
    const Operation operation = step_.operations[member];
    if (takes_integers(source.operations[position]) != takes_integers(operation)) {
      place.refuse(std::string(name(operation)) + " does not take what " +
                   std::string(name(source.operations[position])) + " returned in step " +
                   std::to_string(wanted));
    }
    return static_cast<int>(wanted);
  }

  void read_upstream(const Place& place) {
    place.require_list_of(members_, each_member());
    for (std::size_t member = 0; member < members_; ++member) {
      const Place entry = place[member];
      if (entry.is_null()) {
        step_.upstream.push_back(std::nullopt);
      } else if (!step_.inputs[member]) {
        entry.refuse_kind("null, as the rank has left");
      } else {
        entry.require_object("an upstream gradient", {"dtype", "shape", "values"});
        step_.upstream.push_back(read_tensor(entry, false, "a gradient"));
      }
    }
  }

  // --- What is expected

  void read_expected(const Place& place) {
    place.require_list_of(members_, each_member());
    const bool asks_gradient = std::ranges::any_of(
        step_.upstream, [](const auto& upstream) { return upstream.has_value(); });
    for (std::size_t member = 0; member < members_; ++member) {
      const Place entry = place[member];
      if (entry.is_null() == step_.inputs[member].has_value()) {
        entry.refuse_kind(entry.is_null() ? "an outcome, as the rank enters"
                                          : "null, as the rank does not enter");
      }
      step_.expected.push_back(entry.is_null() ? Outcome()
                                               : read_outcome(entry, member, asks_gradient));
    }
  }

  Outcome read_outcome(const Place& place, std::size_t member, bool asks_gradient) const {
    if (place.kind() == JsonNode::Kind::object && place.has("error")) {
      place.require_object("an expected error", {"error"});
      Outcome error = read_error(place.at("error"), {all_violations, forward_violations});
      // The judge wants to see whom an error is about.
      if (error.kind == Outcome::Kind::transport) error.lost_ranks = missing_members();
      return error;
    }
    place.require_object("an expected outcome",
                         {"dtype", "shape", "values", "receive_counts", "gradient", "error"});
    const Operation operation = step_.operations[member];
    Outcome outcome;
    outcome.kind = Outcome::Kind::value;
    outcome.value = read_tensor(place, takes_integers(operation), name(operation));
    if (is_all_to_all_v(operation)) {
      const Place counts = place.at("receive_counts");
      counts.require_list_of(members_, each_member());
      outcome.receive_counts = read_counts(counts);
    } else if (place.has("receive_counts")) {
      place.at("receive_counts").refuse(std::string(name(operation)) + " returns no counts");
    }
    // In a window it depends on later steps too whether there is one.
    if (window_ ? place.has("gradient") : asks_gradient) {
      read_gradient(place.at("gradient"), outcome);
    } else if (place.has("gradient")) {
      place.at("gradient").refuse("the step has no upstream, so nobody has a gradient");
    }
    return outcome;
  }

  std::vector<int> missing_members() const {
    std::vector<int> missing;
    for (std::size_t member = 0; member < members_; ++member) {
      if (!step_.inputs[member]) missing.push_back(static_cast<int>(member));
    }
    return missing;
  }

  static Outcome read_error(const Place& place, std::span<const Violation> violations) {
    place.require_object("an error", {"kind", "violation"});
    const std::string wanted = "\"contract\" or \"transport\"";
    const Place kind = place.at("kind");
    Outcome outcome;
    if (kind.string(wanted) == "contract") {
      outcome.kind = Outcome::Kind::contract;
      outcome.violation = read_name(place.at("violation"), violations);
    } else if (kind.text() == "transport") {
      outcome.kind = Outcome::Kind::transport;
      if (place.has("violation"))
        place.at("violation").refuse("a transport error violates nothing");
    } else {
      kind.refuse_kind(wanted);
    }
    return outcome;
  }

  // --- What was recorded: like what is expected, but whatever it was, and with what the judge looks
  // at besides.

  void read_received(const Place& place) {
    place.require_list_of(members_, each_member());
    for (std::size_t member = 0; member < members_; ++member) {
      const Place entry = place[member];
      step_.received.push_back(entry.is_null() ? Outcome() : read_recorded(entry, member));
    }
  }

  Outcome read_recorded(const Place& place, std::size_t member) const {
    place.require_object("a recorded outcome",
                         {"dtype", "shape", "values", "receive_counts", "gradient", "error",
                          "message", "repetition", "input_changed", "result_changed"});
    Outcome outcome;
    if (place.has("error")) {
      outcome = read_recorded_error(place.at("error"));
    } else {
      const Operation operation = step_.operations[member];
      outcome.kind = Outcome::Kind::value;
      outcome.value = read_tensor(place, takes_integers(operation), name(operation));
    }
    if (place.has("receive_counts")) {
      outcome.receive_counts = read_counts(place.at("receive_counts"));
    }
    if (place.has("gradient")) read_gradient(place.at("gradient"), outcome);
    if (place.has("message")) outcome.message = place.at("message").string("a text");
    if (place.has("repetition")) {
      outcome.repetition = place.at("repetition").integer_between(0, step_.repeat - 1);
    }
    if (place.has("input_changed")) outcome.input_changed = place.at("input_changed").boolean();
    if (place.has("result_changed")) outcome.result_changed = place.at("result_changed").boolean();
    return outcome;
  }

  static Outcome read_recorded_error(const Place& place) {
    place.require_object("a recorded error", {"kind", "violation", "lost_ranks"});
    const std::string wanted = "\"contract\", \"transport\" or \"broken\"";
    const Place kind = place.at("kind");
    Outcome outcome;
    if (kind.string(wanted) == "contract") {
      outcome.kind = Outcome::Kind::contract;
      outcome.violation = read_name<Violation>(place.at("violation"), all_violations);
      return outcome;
    }
    if (place.has("violation")) place.at("violation").refuse("only a contract can be violated");
    if (kind.text() != "transport" && kind.text() != "broken") kind.refuse_kind(wanted);
    outcome.kind =
        kind.text() == "broken" ? Outcome::Kind::broken : Outcome::Kind::transport;
    if (!place.has("lost_ranks")) return outcome;
    const Place lost = place.at("lost_ranks");
    const std::size_t count = lost.require_list("a list of ranks");
    for (std::size_t i = 0; i < count; ++i) {
      outcome.lost_ranks.push_back(static_cast<int>(lost[i].integer_between(0, INT_MAX)));
    }
    return outcome;
  }

  static void read_gradient(const Place& place, Outcome& outcome) {
    if (place.kind() == JsonNode::Kind::object && place.has("error")) {
      place.require_object("an expected error", {"error"});
      constexpr Violation violations[] = {Violation::gradient, Violation::not_differentiable};
      const Outcome error = read_error(place.at("error"), violations);
      if (error.kind != Outcome::Kind::contract) {
        place.refuse("a gradient can only break the contract");
      }
      outcome.gradient_violation = error.violation;
    } else {
      place.require_object("an expected gradient", {"dtype", "shape", "values", "error"});
      outcome.gradient = read_tensor(place, false, "a gradient");
    }
  }

  // Beyond this a case is no test but a load.
  static constexpr std::int64_t most_repeats = 1'000'000;

  // The violations that a call itself can report; the others belong to reverse passes.
  static constexpr std::size_t forward_violations = 12;
  static_assert(all_violations[forward_violations] == Violation::gradient);

  int world_;
  bool window_;
  bool recorded_;
  std::map<int, std::size_t> left_;          // the step in which a world rank left
  std::vector<std::optional<int>> missing_;  // per step a member that had left, if any
  std::span<const Step> earlier_;
  Step step_;
  std::size_t members_ = 0;
};

RecordedBackend read_recorded_backend(const Place& place) {
  place.require_object("a recorded backend", {"backend", "sum_rule"});
  constexpr SumRule rules[] = {SumRule::exact, SumRule::rank_order, SumRule::unspecified};
  RecordedBackend backend;
  backend.name = place.at("backend").string("the backend's name");
  backend.sum_rule = read_name<SumRule>(place.at("sum_rule"), rules);
  return backend;
}

SumRule read_sum_rule(const Place& place) {
  constexpr SumRule rules[] = {SumRule::exact, SumRule::rank_order};
  return read_name<SumRule>(place, rules);
}

}  // namespace

Case read_case(std::string_view text, std::string_view name) {
  const JsonDocument document = parse_json(text, name);
  const Place root(document.root, text, name);
  root.require_object("a case",
                      {"lockstep_case", "sum_rule", "world", "window", "recorded", "steps"});
  const Place version = root.at("lockstep_case");
  if (version.integer("the format's version, 1") != 1) {
    version.refuse_kind("the format's version, 1");
  }

  Case c;
  c.world = static_cast<int>(root.at("world").integer_between(1, INT_MAX));
  if (root.has("sum_rule")) c.sum_rule = read_sum_rule(root.at("sum_rule"));
  if (root.has("window")) c.window = root.at("window").boolean();
  if (root.has("recorded")) c.recorded = read_recorded_backend(root.at("recorded"));
  const Place steps = root.at("steps");
  const std::size_t count = steps.require_list("a list of steps");
  StepReader reader(c.world, c.window, c.recorded.has_value());
  for (std::size_t i = 0; i < count; ++i) c.steps.push_back(reader.read(steps[i], c.steps));
  return c;
}

}  // namespace lockstep::kit
