#include <lockstep/differentiation/window.hpp>

#include <algorithm>
#include <cstddef>
#include <functional>
#include <map>
#include <numeric>
#include <optional>
#include <utility>

#include <lockstep/agreement.hpp>

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
    const std::int64_t first = rest_[0];
    rest_ = rest_.subspan(1);
    return first;
  }
  template <class T>
  std::vector<T> list() {
    const auto length = static_cast<std::size_t>(integer());
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

// Rank r's collectives on one communicator, by their number in its window.
using Calls = std::vector<int>;

using Identity = std::pair<std::vector<int>, std::vector<std::int64_t>>;

// Per communicator, and per rank of the scope, its calls.
std::map<Identity, std::map<int, Calls>> calls_of(std::span<const Window> windows) {
  std::map<Identity, std::map<int, Calls>> calls;
  for (std::size_t rank = 0; rank < windows.size(); ++rank) {
    const Window& window = windows[rank];
    std::vector<Calls*> of_communicator;
    for (const Window::Communicator& communicator : window.communicators) {
      of_communicator.push_back(
          &calls[{communicator.members, communicator.origin}][static_cast<int>(rank)]);
    }
    for (std::size_t i = 0; i < window.collectives.size(); ++i) {
      const auto communicator = static_cast<std::size_t>(window.collectives[i].communicator);
      of_communicator[communicator]->push_back(static_cast<int>(i));
    }
  }
  return calls;
}

// What a member recorded as call `number` on a communicator, or nothing.
std::optional<Operation> recorded(std::span<const Window> windows,
                                  const std::map<int, Calls>& calls, int member,
                                  std::size_t number) {
  const auto of_member = calls.find(member);
  if (of_member == calls.end() || number >= of_member->second.size()) return std::nullopt;
  const auto call = static_cast<std::size_t>(of_member->second[number]);
  return windows[static_cast<std::size_t>(member)].collectives[call].operation;
}

// "ranks 0-1 recorded all_gather_float; rank 2 recorded nothing"; nothing where all members
// recorded the same.
std::optional<std::string> disagreement(std::span<const Window> windows,
                                        const std::vector<int>& members,
                                        const std::map<int, Calls>& calls, std::size_t number) {
  // In the order of the first member that recorded it.
  std::vector<std::pair<std::optional<Operation>, std::vector<int>>> groups;
  for (int member : members) {
    const std::optional<Operation> what = recorded(windows, calls, member, number);
    auto group = std::ranges::find(groups, what, [](const auto& g) { return g.first; });
    if (group == groups.end()) group = groups.insert(groups.end(), {what, {}});
    group->second.push_back(member);
  }
  if (groups.size() == 1) return std::nullopt;
  std::string text;
  for (const auto& [what, ranks] : groups) {
    if (!text.empty()) text += "; ";
    text += rank_list(ranks);
    text += " recorded ";
    text += what ? name(*what) : "nothing";
  }
  return text;
}

std::optional<WindowBreach> find_breach(std::span<const Window> windows,
                                        const std::map<Identity, std::map<int, Calls>>& calls,
                                        const std::vector<int>& everybody) {
  std::vector<std::vector<UnlikeUpstream>> unlike;
  for (const Window& window : windows) unlike.push_back(window.unlike);
  if (std::optional<std::string> explanation = explain_unlike(unlike)) {
    return WindowBreach{Violation::gradient, std::move(*explanation)};
  }
  for (const auto& [identity, of_rank] : calls) {
    const std::vector<int>& members = identity.first.empty() ? everybody : identity.first;
    std::size_t most = 0;
    for (const auto& [rank, of_member] : of_rank) most = std::max(most, of_member.size());
    for (std::size_t number = 0; number < most; ++number) {
      if (const auto text = disagreement(windows, members, of_rank, number)) {
        return WindowBreach{Violation::window,
                            "every rank must record the same collectives; of those on the "
                            "communicator of " +
                                rank_list(members) + ", number " + std::to_string(number) + ": " +
                                *text};
      }
    }
  }
  return std::nullopt;
}

}  // namespace

std::vector<std::int64_t> encode(const Window& window) {
  std::vector<std::int64_t> integers;
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
  Window window;
  for (std::int64_t left = reader.integer(); left > 0; --left) {
    std::vector<int> members = reader.list<int>();
    window.communicators.push_back({std::move(members), reader.list<std::int64_t>()});
  }
  for (std::int64_t left = reader.integer(); left > 0; --left) {
    const auto communicator = static_cast<int>(reader.integer());
    const auto operation = static_cast<Operation>(reader.integer());
    window.collectives.push_back({communicator, operation, reader.list<int>()});
  }
  window.loss = reader.list<int>();
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

std::variant<std::vector<bool>, WindowBreach> find_reached(std::span<const Window> windows,
                                                           int rank) {
  const auto calls = calls_of(windows);
  std::vector<int> everybody(windows.size());
  std::iota(everybody.begin(), everybody.end(), 0);
  if (std::optional<WindowBreach> breach = find_breach(windows, calls, everybody)) {
    return *std::move(breach);
  }

  // A rank's part in a collective: who else has a part in it.
  struct Part {
    const std::vector<int>* members;
    const std::map<int, Calls>* calls;
    std::size_t number;
  };
  std::vector<std::vector<Part>> parts;
  std::vector<std::vector<bool>> reached;
  for (const Window& window : windows) {
    parts.emplace_back(window.collectives.size());
    reached.emplace_back(window.collectives.size(), false);
  }
  for (const auto& [identity, of_rank] : calls) {
    for (const auto& [member, of_member] : of_rank) {
      for (std::size_t number = 0; number < of_member.size(); ++number) {
        parts[static_cast<std::size_t>(member)][static_cast<std::size_t>(of_member[number])] = {
            identity.first.empty() ? &everybody : &identity.first, &of_rank, number};
      }
    }
  }

  std::vector<std::pair<int, int>> pending;  // rank, collective
  const auto reach = [&](int on, const Frontier& frontier) {
    for (int collective : frontier) pending.emplace_back(on, collective);
  };
  for (std::size_t r = 0; r < windows.size(); ++r) reach(static_cast<int>(r), windows[r].loss);
  while (!pending.empty()) {
    const auto [on, collective] = pending.back();
    pending.pop_back();
    if (reached[static_cast<std::size_t>(on)][static_cast<std::size_t>(collective)]) continue;
    const Part& part = parts[static_cast<std::size_t>(on)][static_cast<std::size_t>(collective)];
    for (int member : *part.members) {
      const auto m = static_cast<std::size_t>(member);
      const int own = part.calls->at(member)[part.number];
      reached[m][static_cast<std::size_t>(own)] = true;
      reach(member, windows[m].collectives[static_cast<std::size_t>(own)].feeds_on);
    }
  }
  return reached[static_cast<std::size_t>(rank)];
}

}  // namespace lockstep::differentiation
