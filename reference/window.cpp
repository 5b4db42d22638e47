#include <lockstep/differentiation/window.hpp>

#include <algorithm>
#include <cstddef>
#include <functional>
#include <iterator>
#include <map>
#include <numeric>
#include <optional>
#include <utility>

#include <lockstep/agreement.hpp>
#include <lockstep/differentiation/host_integers.hpp>

namespace lockstep::differentiation {
namespace {

// --- The wire: lists with their length in front, one after the other

template <class List>
void put(std::vector<std::int64_t>& integers, const List& list) {
  integers.push_back(static_cast<std::int64_t>(list.size()));
  integers.insert(integers.end(), list.begin(), list.end());
}

class Reader {
 public:
  explicit Reader(std::span<const std::int64_t> integers) : rest_(integers) {}

  std::int64_t integer() {
    if (rest_.empty()) refuse_integers("a description that is cut off");
    const std::int64_t first = rest_[0];
    rest_ = rest_.subspan(1);
    return first;
  }
  // In 0 to end - 1.
  std::int64_t integer_below(std::size_t end) {
    const std::int64_t value = integer();
    if (value < 0 || value >= static_cast<std::int64_t>(end)) {
      refuse_integers("a description of something that is not there");
    }
    return value;
  }
  // A number of entries, as many of which may still follow: all that is left but the number itself.
  std::size_t length() { return static_cast<std::size_t>(integer_below(rest_.size())); }
  template <class T>
  std::vector<T> list() {
    const std::size_t length = this->length();
    std::vector<T> values;
    for (std::int64_t value : rest_.first(length)) values.push_back(static_cast<T>(value));
    rest_ = rest_.subspan(length);
    return values;
  }
  std::span<const std::int64_t> rest() const { return rest_; }

 private:
  std::span<const std::int64_t> rest_;
};

// --- What all ranks recorded, put together

// Many ranks record the same: a *kind* of rank is a description that some rank gave. Ranks of one
// kind are members of the same communicators, so that the same collectives of theirs are reached.
struct Kinds {
  explicit Kinds(std::span<const std::vector<std::int64_t>> descriptions) {
    std::map<std::span<const std::int64_t>, int,
             bool (*)(std::span<const std::int64_t>, std::span<const std::int64_t>)>
        known([](std::span<const std::int64_t> a, std::span<const std::int64_t> b) {
          return std::ranges::lexicographical_compare(a, b);
        });
    for (const std::vector<std::int64_t>& description : descriptions) {
      const auto [entry, fresh] = known.emplace(description, static_cast<int>(windows.size()));
      if (fresh) windows.push_back(decode_window(description));
      of_rank.push_back(entry->second);
    }
  }
  const Window& window(int kind) const { return windows[static_cast<std::size_t>(kind)]; }

  std::vector<Window> windows;
  std::vector<int> of_rank;
};

// One communicator, as all ranks recorded it.
struct Shared {
  std::vector<int> members;
  std::vector<int> kinds;  // of the members, each once
  // Per kind that recorded on it, its calls there: their numbers in its window.
  std::map<int, std::vector<int>> calls;
};

// What ranks of this kind recorded as call `number`, or nothing.
std::optional<Operation> recorded(const Kinds& kinds, const Shared& shared, int kind,
                                  std::size_t number) {
  const auto calls = shared.calls.find(kind);
  if (calls == shared.calls.end() || number >= calls->second.size()) return std::nullopt;
  const auto call = static_cast<std::size_t>(calls->second[number]);
  return kinds.window(kind).collectives[call].operation;
}

std::vector<Shared> communicators_of(const Kinds& kinds) {
  std::map<std::pair<std::vector<int>, std::vector<std::int64_t>>, Shared> found;
  for (std::size_t kind = 0; kind < kinds.windows.size(); ++kind) {
    const Window& window = kinds.windows[kind];
    std::vector<std::vector<int>*> calls;
    for (const Window::Communicator& communicator : window.communicators) {
      Shared& shared = found[{communicator.members, communicator.origin}];
      calls.push_back(&shared.calls[static_cast<int>(kind)]);
    }
    for (std::size_t i = 0; i < window.collectives.size(); ++i) {
      const auto communicator = static_cast<std::size_t>(window.collectives[i].communicator);
      calls[communicator]->push_back(static_cast<int>(i));
    }
  }
  std::vector<Shared> all;
  for (auto& [identity, shared] : found) {
    shared.members = identity.first;
    if (shared.members.empty()) {
      shared.members.resize(kinds.of_rank.size());
      std::iota(shared.members.begin(), shared.members.end(), 0);
    }
    for (int member : shared.members) {
      if (member < 0 || static_cast<std::size_t>(member) >= kinds.of_rank.size()) {
        refuse_integers("a communicator of ranks that are not there");
      }
      shared.kinds.push_back(kinds.of_rank[static_cast<std::size_t>(member)]);
    }
    std::ranges::sort(shared.kinds);
    shared.kinds.erase(std::ranges::unique(shared.kinds).begin(), shared.kinds.end());
    for (const auto& [kind, calls] : shared.calls) {
      if (!calls.empty() && !std::ranges::binary_search(shared.kinds, kind)) {
        refuse_integers("calls of a rank on a communicator that it is no member of");
      }
    }
    all.push_back(std::move(shared));
  }
  return all;
}

// "ranks 0-1 recorded all_gather_float; rank 2 recorded nothing"
std::string who_recorded_what(const Kinds& kinds, const Shared& shared, std::size_t number) {
  // In the order of the first member that recorded it.
  std::vector<std::pair<std::optional<Operation>, std::vector<int>>> groups;
  for (int member : shared.members) {
    const std::optional<Operation> what =
        recorded(kinds, shared, kinds.of_rank[static_cast<std::size_t>(member)], number);
    auto group = std::ranges::find(groups, what, [](const auto& g) { return g.first; });
    if (group == groups.end()) group = groups.insert(groups.end(), {what, {}});
    group->second.push_back(member);
  }
  std::string text;
  for (const auto& [what, ranks] : groups) {
    if (!text.empty()) text += "; ";
    text += rank_list(ranks);
    text += " recorded ";
    text += what ? name(*what) : "nothing";
  }
  return text;
}

std::optional<WindowBreach> find_breach(const Kinds& kinds, std::span<const Shared> communicators) {
  std::vector<std::vector<UnlikeUpstream>> unlike;
  for (int kind : kinds.of_rank) unlike.push_back(kinds.window(kind).unlike);
  if (std::optional<std::string> explanation = explain_unlike(unlike)) {
    return WindowBreach{Violation::gradient, std::move(*explanation)};
  }
  for (const Shared& shared : communicators) {
    std::size_t most = 0;
    for (const auto& [kind, calls] : shared.calls) most = std::max(most, calls.size());
    for (std::size_t number = 0; number < most; ++number) {
      const auto first = recorded(kinds, shared, shared.kinds[0], number);
      const bool differ = std::ranges::any_of(
          shared.kinds, [&](int kind) { return recorded(kinds, shared, kind, number) != first; });
      if (!differ) continue;
      std::string explanation =
          "every rank must record the same collectives; of those on the communicator of ";
      explanation += rank_list(shared.members);
      explanation += ", number " + std::to_string(number) + ": ";
      explanation += who_recorded_what(kinds, shared, number);
      return WindowBreach{Violation::window, std::move(explanation)};
    }
  }
  return std::nullopt;
}

}  // namespace

std::vector<std::int64_t> encode(const Window& window) {
  std::vector<std::int64_t> integers = {asks_for_window};
  integers.push_back(static_cast<std::int64_t>(window.communicators.size()));
  for (const Window::Communicator& communicator : window.communicators) {
    put(integers, communicator.members);
    put(integers, communicator.origin);
  }
  integers.push_back(static_cast<std::int64_t>(window.collectives.size()));
  for (const Window::Collective& collective : window.collectives) {
    integers.push_back(collective.communicator);
    integers.push_back(static_cast<std::int64_t>(collective.operation));
    put(integers, collective.feeds_on);
  }
  put(integers, window.loss);
  const std::vector<std::int64_t> unlike = encode(std::span(window.unlike));
  integers.insert(integers.end(), unlike.begin(), unlike.end());
  return integers;
}

Window decode_window(std::span<const std::int64_t> integers) {
  Reader reader(integers);
  if (reader.integer() != asks_for_window) refuse_integers("no description of a window");
  Window window;
  for (std::size_t left = reader.length(); left > 0; --left) {
    std::vector<int> members = reader.list<int>();
    window.communicators.push_back({std::move(members), reader.list<std::int64_t>()});
  }
  const auto require_earlier = [](const Frontier& collectives, std::size_t end) {
    for (int collective : collectives) {
      if (collective >= 0 && static_cast<std::size_t>(collective) < end) continue;
      refuse_integers("a description of collectives that are not there");
    }
  };
  for (std::size_t left = reader.length(); left > 0; --left) {
    const auto communicator = static_cast<int>(reader.integer_below(window.communicators.size()));
    const auto operation =
        static_cast<Operation>(reader.integer_below(std::size(tensor_operations)));
    window.collectives.push_back({communicator, operation, reader.list<int>()});
    require_earlier(window.collectives.back().feeds_on, window.collectives.size() - 1);
  }
  window.loss = reader.list<int>();
  require_earlier(window.loss, window.collectives.size());
  window.unlike = decode_unlike(reader.rest());
  return window;
}

void Frontiers::add(const Frontier& feeds_on) {
  std::vector<bool> implied(implied_.size(), false);
  for (int collective : feeds_on) {
    const std::vector<bool>& further = implied_[static_cast<std::size_t>(collective)];
    implied[static_cast<std::size_t>(collective)] = true;
    for (std::size_t i = 0; i < further.size(); ++i) implied[i] = implied[i] || further[i];
  }
  implied_.push_back(std::move(implied));
}

Frontier Frontiers::join(const Frontier& a, const Frontier& b) const {
  Frontier all;
  std::ranges::set_union(a, b, std::back_inserter(all), std::greater<>());
  // A collective is implied only by later ones, which stand before it.
  Frontier kept;
  for (int collective : all) {
    const bool follows = std::ranges::any_of(kept, [&](int later) {
      return implied_[static_cast<std::size_t>(later)][static_cast<std::size_t>(collective)];
    });
    if (!follows) kept.push_back(collective);
  }
  return kept;
}

std::variant<std::vector<bool>, WindowBreach> find_reached(
    std::span<const std::vector<std::int64_t>> descriptions, int rank) {
  if (std::optional<std::string> explanation = explain_asked(descriptions)) {
    return WindowBreach{Violation::operation, *std::move(explanation)};
  }
  const Kinds kinds(descriptions);
  const std::vector<Shared> communicators = communicators_of(kinds);
  if (std::optional<WindowBreach> breach = find_breach(kinds, communicators)) {
    return *std::move(breach);
  }

  // By kind and number in its window: where a collective was called, and as which call there.
  struct Call {
    const Shared* on;
    std::size_t number;
  };
  std::vector<std::vector<Call>> calls;
  std::vector<std::vector<bool>> reached;
  for (const Window& window : kinds.windows) {
    calls.emplace_back(window.collectives.size());
    reached.emplace_back(window.collectives.size(), false);
  }
  for (const Shared& shared : communicators) {
    for (const auto& [kind, of_kind] : shared.calls) {
      for (std::size_t number = 0; number < of_kind.size(); ++number) {
        const auto collective = static_cast<std::size_t>(of_kind[number]);
        calls[static_cast<std::size_t>(kind)][collective] = {&shared, number};
      }
    }
  }

  std::vector<std::pair<int, int>> pending;  // kind, collective
  const auto reach = [&](int kind, const Frontier& frontier) {
    for (int collective : frontier) pending.emplace_back(kind, collective);
  };
  for (std::size_t kind = 0; kind < kinds.windows.size(); ++kind) {
    reach(static_cast<int>(kind), kinds.windows[kind].loss);
  }
  while (!pending.empty()) {
    const auto [kind, collective] = pending.back();
    pending.pop_back();
    if (reached[static_cast<std::size_t>(kind)][static_cast<std::size_t>(collective)]) continue;
    const Call& call = calls[static_cast<std::size_t>(kind)][static_cast<std::size_t>(collective)];
    for (int member : call.on->kinds) {
      const int own = call.on->calls.at(member)[call.number];
      reached[static_cast<std::size_t>(member)][static_cast<std::size_t>(own)] = true;
      reach(member, kinds.window(member).collectives[static_cast<std::size_t>(own)].feeds_on);
    }
  }
  return reached[static_cast<std::size_t>(kinds.of_rank[static_cast<std::size_t>(rank)])];
}

}  // namespace lockstep::differentiation
