#include <algorithm>
#include <chrono>
#include <map>

#include <lockstep/kit/case_file.hpp>
#include <lockstep/kit/program_oracle.hpp>
#include <lockstep/kit/relations.hpp>
#include <lockstep/kit/verification.hpp>

#include "step_values.hpp"

namespace lockstep::kit {
namespace {

using Clock = std::chrono::steady_clock;

// The rule by which a case file states sums: `unspecified` is no rule to state results by.
SumRule stated_rule(SumRule rule) {
  return rule == SumRule::unspecified ? SumRule::exact : rule;
}

using std::chrono::milliseconds;

// A timeout may hit a rank that is only slow, on a busy machine: a divergence is one when it is
// still there however much time there is.
template <class Judge>
std::optional<Divergence> run_and_judge_by(Backend& backend, const Case& c, Judge judge,
                                           Transcript& actual) {
  std::optional<Divergence> divergence;
  for (const milliseconds timeout : {stall_timeout, 7 * stall_timeout, 35 * stall_timeout}) {
    actual = run_case(backend, c, timeout);
    divergence = judge(actual);
    if (!divergence || !has_stall(c)) break;
  }
  return divergence;
}

std::vector<PropertyReport> chosen_properties(const std::vector<std::string>& names) {
  require_properties(names);
  std::vector<PropertyReport> reports;
  for (const Property& property : properties()) {
    if (!names.empty() && std::ranges::count(names, property.name) == 0) continue;
    PropertyReport report;
    report.name = property.name;
    report.clause = property.clause;
    reports.push_back(std::move(report));
  }
  return reports;
}

class Verification {
 public:
  Verification(Backend& backend, const VerifyOptions& options, VerifyObserver& observer)
      : backend_(backend), options_(options), observer_(observer), info_(backend.info()) {
    if (options.fewest_ranks < 1 || options.most_ranks < options.fewest_ranks) {
      throw InvalidArgument("no world has " + std::to_string(options.fewest_ranks) + " to " +
                            std::to_string(options.most_ranks) + " ranks");
    }
    report_.properties = chosen_properties(options.properties);
    limits_ = {options.fewest_ranks, options.most_ranks, info_.offers_groups};
  }

  VerifyReport run() {
    // What takes turns; clauses of one turn alternate in it. Ranks that return and ranks that throw
    // share one: some backends can never quite let go of a communicator that lost a rank, so that
    // more such cases would slow them down.
    std::vector<std::vector<PropertyReport*>> turns;
    std::optional<std::size_t> lost_ranks;
    for (PropertyReport& property : report_.properties) {
      if (!offers(property.name)) {
        property.verdict = PropertyReport::Verdict::not_offered;
      } else if (property.name == "stall" && report_.properties.size() > 1) {
        stall_ = &property;
      } else if (property.name == "throw" && lost_ranks) {
        turns[*lost_ranks].push_back(&property);
      } else {
        if (property.name == "transport") lost_ranks = turns.size();
        turns.push_back({&property});
      }
    }
    if (turns.empty() && stall_ == nullptr) return std::move(report_);
    // In turn, so that a backend with a fault shows it early whatever the clause.
    const auto share = static_cast<std::int64_t>(std::max<std::size_t>(turns.size(), 1));
    for (std::int64_t i = 0; i < options_.cases; ++i) {
      const bool stall = stall_ != nullptr && (turns.empty() || i % stall_every == share);
      std::uint64_t index = static_cast<std::uint64_t>(stall ? i / stall_every : i / share);
      PropertyReport* property = stall_;
      if (!stall) {
        const auto& turn = turns[static_cast<std::size_t>(i % share)];
        property = turn[index % turn.size()];
        index /= turn.size();
      }
      if (property->verdict == PropertyReport::Verdict::broken) continue;
      run_case(*property, index);
      if (options_.stop_when_broken && property->verdict == PropertyReport::Verdict::broken) break;
    }
    return std::move(report_);
  }

 private:
  // A case in which a rank is stuck takes as long as hundreds of others.
  static constexpr std::int64_t stall_every = 1000;

  bool offers(std::string_view property) const {
    if (property == "groups") return info_.offers_groups;
    if (property == "transport") return info_.offers_departure;
    if (property == "throw") return info_.offers_departure && info_.offers_throws;
    if (property == "stall") return info_.offers_stalls;
    return true;
  }

  void run_case(PropertyReport& property, std::uint64_t index) {
    Case c = draw_case(property.name, limits_, case_seed(options_.seed, property.name, index));
    c.sum_rule = stated_rule(info_.sum_rule);
    observer_.starting(property, index, c);
    Transcript actual;
    const auto judge_it = [&](const Transcript& it) { return judged(property, c, it); };
    const std::optional<Divergence> divergence = run_and_judge_by(backend_, c, judge_it, actual);
    observer_.finished();
    ++property.cases;
    ++report_.cases;
    count_corners(corners(c, actual));
    if (!divergence) {
      property.verdict = PropertyReport::Verdict::holds;
      return;
    }
    property.verdict = PropertyReport::Verdict::broken;
    property.counterexample = shrink(property, index, std::move(c), *divergence);
    observer_.broken(property);
  }

  // Relations are judged by what the backend returned and by nothing else.
  std::optional<Divergence> judged(const PropertyReport& property, const Case& c,
                                   const Transcript& actual) const {
    if (property.name == "relations") return judge_relations(c, actual, info_.sum_rule);
    return judge(c, actual, info_.sum_rule);
  }

  void count_corners(const Corners& visited) {
    for (std::size_t i = 0; i < corner_count; ++i) report_.visits[i] += visited[i] ? 1 : 0;
  }

  // Greedy descent: the first simpler case that still fails takes the place of the failing one.
  Counterexample shrink(const PropertyReport& property, std::uint64_t index, Case failing,
                        Divergence divergence) {
    Counterexample result;
    result.index = index;
    const Case original = failing;
    const Divergence originally = divergence;
    const auto deadline = Clock::now() + std::chrono::duration<double>(options_.shrink_seconds);
    const auto may_go_on = [&] {
      return result.runs < options_.shrink_runs && Clock::now() < deadline;
    };
    // Whether the candidate fails too; then it is the failing case from now on.
    const auto descend = [&](Case candidate) {
      std::optional<Divergence> found;
      observer_.starting(property, index, candidate);
      try {
        ++result.runs;
        found = judged(property, candidate, kit::run_case(backend_, candidate));
      } catch (const NoSuchValue&) {
        // It refers to a value that is no longer there: no case at all.
      }
      observer_.finished();
      if (!found) return false;
      failing = std::move(candidate);
      divergence = std::move(*found);
      return true;
    };
    for (bool descended = true; descended;) {
      descended = false;
      if (auto candidate = without_later_calls(failing, divergence); candidate && may_go_on()) {
        (void)descend(std::move(*candidate));
      }
      Simplifications candidates(failing);
      while (!descended && may_go_on()) {
        std::optional<Case> candidate = candidates.next();
        if (!candidate) break;
        descended = descend(std::move(*candidate));
      }
    }
    // Simpler cases were given little time; was that enough?
    if (has_stall(failing) && !run_and_judge(backend_, failing)) {
      failing = original;
      divergence = originally;
    }
    result.shrunk = with_expected(std::move(failing));
    result.divergence = std::move(divergence);
    return result;
  }

  // Of a call that is made again and again, no more than until it went wrong.
  static std::optional<Case> without_later_calls(const Case& c, const Divergence& divergence) {
    const auto step = static_cast<std::size_t>(divergence.step);
    if (divergence.repetition == 0 || divergence.repetition + 1 >= c.steps[step].repeat) {
      return std::nullopt;
    }
    Case shorter = c;
    shorter.steps[step].repeat = divergence.repetition + 1;
    return shorter;
  }

  Backend& backend_;
  const VerifyOptions& options_;
  VerifyObserver& observer_;
  BackendInfo info_;
  GeneratorLimits limits_;
  VerifyReport report_;
  PropertyReport* stall_ = nullptr;  // where it shares the run with others
};

}  // namespace

std::string_view name(PropertyReport::Verdict verdict) {
  constexpr std::string_view names[] = {"holds", "broken", "not offered", "not run"};
  return names[static_cast<std::size_t>(verdict)];
}

void require_properties(const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    if (std::ranges::count(properties(), name, &Property::name) > 0) continue;
    std::string known;
    for (const Property& property : properties()) {
      known += (known.empty() ? "" : ", ") + std::string(property.name);
    }
    throw InvalidArgument("no property is named '" + name + "'; there are " + known);
  }
}

bool VerifyReport::holds() const {
  return std::ranges::none_of(properties, [](const PropertyReport& property) {
    return property.verdict == PropertyReport::Verdict::broken;
  });
}

VerifyReport verify(Backend& backend, const VerifyOptions& options, VerifyObserver* observer) {
  VerifyObserver silent;
  return Verification(backend, options, observer == nullptr ? silent : *observer).run();
}

Transcript run_case(Backend& backend, const Case& c, std::chrono::milliseconds timeout) {
  if (!has_stall(c)) return backend.run(c);
  backend.set_timeout(timeout);
  Transcript transcript = backend.run(c);
  backend.set_timeout(std::nullopt);
  return transcript;
}

std::optional<Divergence> run_and_judge(Backend& backend, const Case& c) {
  Transcript actual;
  const SumRule rule = backend.info().sum_rule;
  const auto judge_it = [&](const Transcript& it) {
    if (auto divergence = judge(c, it, rule)) return divergence;
    return judge_relations(c, it, rule);
  };
  return run_and_judge_by(backend, c, judge_it, actual);
}

namespace {

std::string departure_text(const Step& step, std::size_t member) {
  const Departure departure =
      step.departures.empty() ? Departure::returns : step.departures[member];
  if (departure == Departure::throws) return "throws\n";
  if (departure == Departure::stalls) return "is stuck\n";
  return "has left\n";
}

}  // namespace

std::string explain(const Counterexample& counterexample) {
  const Case& c = counterexample.shrunk;
  std::string text = "A world of " + std::to_string(c.world) + ", ";
  text += c.steps.size() == 1 ? "one step" : std::to_string(c.steps.size()) + " steps";
  text += c.window ? ", taken back as one window:\n" : ":\n";
  for (std::size_t s = 0; s < c.steps.size(); ++s) {
    const Step& step = c.steps[s];
    text += "  step " + std::to_string(s) + ": " + std::string(name(step.operations[0]));
    if (!step.group.empty()) {
      text += " in group {";
      for (std::size_t i = 0; i < step.group.size(); ++i) {
        text += (i > 0 ? ", " : "") + std::to_string(step.group[i]);
      }
      text += "}";
    }
    if (step.repeat > 1) text += ", " + std::to_string(step.repeat) + " times in a row";
    text += "\n";
    constexpr std::size_t most_members = 8;
    for (std::size_t m = 0; m < std::min(step.members(), most_members); ++m) {
      text += "    rank " + std::to_string(m) + ": ";
      const std::optional<Input>& input = step.inputs[m];
      if (!input) {
        text += departure_text(step, m);
        continue;
      }
      if (step.operations[m] != step.operations[0]) {
        text += std::string(name(step.operations[m])) + " of ";
      }
      text += input->from_step ? "its value of step " + std::to_string(*input->from_step)
                               : to_string(input->tensor);
      if (input->layout != MemoryLayout::dense) {
        text += " (" + std::string(name(input->layout)) + ")";
      }
      if (step.operations[m] == Operation::broadcast_float && !step.roots.empty()) {
        text += ", root " + std::to_string(step.roots[m]);
      }
      if (is_all_to_all_v(step.operations[m])) {
        text += ", counts " + to_string(Shape(std::span<const std::int64_t>(input->send_counts)));
      }
      if (!step.upstream.empty()) {
        text += ", upstream ";
        text += step.upstream[m] ? to_string(*step.upstream[m]) : "none";
      }
      text += "\n";
    }
    if (step.members() > most_members) {
      text += "    and " + std::to_string(step.members() - most_members) + " more ranks\n";
    }
  }
  return text + counterexample.divergence.explanation +
         (counterexample.divergence.explanation.ends_with('\n') ? "" : "\n");
}

std::string explain(const VerifyReport& report) {
  std::string text;
  for (const PropertyReport& property : report.properties) {
    if (!property.counterexample) continue;
    text += "broken: " + property.clause + "\n" + explain(*property.counterexample);
  }
  return text;
}

}  // namespace lockstep::kit
