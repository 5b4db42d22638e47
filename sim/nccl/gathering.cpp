#include "gathering.hpp"

#include <algorithm>

namespace lockstep::nccl {
namespace {

std::string described(const Entry& entry) {
  std::string text = "rank " + std::to_string(entry.rank) + " of " + std::to_string(entry.ranks) +
                     " (device " + std::to_string(entry.device);
  if (!entry.place.empty()) text += ", " + entry.place;
  return text + ")";
}

const char* function_of(Birth birth) {
  switch (birth) {
    case Birth::split:
      return "ncclCommSplit";
    case Birth::shrink:
      return "ncclCommShrink";
    default:
      return "ncclCommInitRank";
  }
}

bool expects(const Entry& some, int rank) {
  return std::find(some.excluded.begin(), some.excluded.end(), rank) == some.excluded.end();
}

std::size_t expected(const Entry& some) {
  return static_cast<std::size_t>(some.ranks) - some.excluded.size();
}

}  // namespace

Gatherings& Gatherings::instance() {
  static Gatherings* const gatherings = new Gatherings;  // outlives the threads that use it
  return *gatherings;
}

void Gatherings::refuse(const std::string& key, const char* rule, const std::string& what,
                        const char* advice) {
  const Gathering gathering = std::move(open_[key]);
  open_.erase(key);
  spent_[key] = "failed: " + what;
  const Entry& last = gathering.entries.back();
  std::vector<std::string> rows;
  for (const Entry& entry : gathering.entries) rows.push_back(described(entry));
  devices::report({.rule = rule,
                   .call = {function_of(last.birth), described(last) + ", " + last.name},
                   .device = last.device,
                   .what = what,
                   .details = std::move(rows),
                   .advice = advice});
  for (const Entry& entry : gathering.entries) {
    entry.candidate->failed({ncclInvalidUsage, what, true});
  }
}

void Gatherings::enter(Entry entry) {
  const std::string key = entry.key;
  if (const auto spent = spent_.find(key); spent != spent_.end()) {
    const std::string what =
        "the unique id was used before, and the communicator made with it " + spent->second;
    devices::report({.rule = "unique-id-reused",
                     .call = {function_of(entry.birth), described(entry)},
                     .device = entry.device,
                     .what = what,
                     .advice = "Take a new ncclUniqueId for every communicator."});
    entry.candidate->failed({ncclInvalidUsage, what, true});
    return;
  }

  Gathering& gathering = open_[key];
  gathering.entries.push_back(std::move(entry));
  const Entry& mine = gathering.entries.back();
  for (const Entry& other : gathering.entries) {
    if (&other == &mine) continue;
    if (other.ranks != mine.ranks) {
      return refuse(key, "mismatched-size",
                    "ranks of one communicator disagree on the number of ranks",
                    "Every rank must pass the same nranks with one ncclUniqueId.");
    }
    if (other.rank == mine.rank) {
      return refuse(key, "duplicate-rank", "two ranks of one communicator have the same number",
                    "Every rank must pass a number of its own, from 0 to nranks - 1.");
    }
    if (other.excluded != mine.excluded) {
      return refuse(key, "mismatched-shrink", "ranks disagree on which ranks to exclude",
                    "Every remaining rank must pass the same list to ncclCommShrink.");
    }
    if (mine.birth == Birth::unique_id && other.device == mine.device && other.host == mine.host) {
      return refuse(key, "duplicate-device", "two ranks of one communicator use the same device",
                    "Call cudaSetDevice with a device of its own for every rank before it joins "
                    "the communicator.");
    }
  }
  if (gathering.entries.size() == expected(mine)) {
    Gathering whole = std::move(gathering);
    open_.erase(key);
    complete(std::move(whole));
  }
}

void Gatherings::complete(Gathering gathering) {
  auto& entries = gathering.entries;
  const Entry& some = entries.front();
  const std::string key = some.key;
  spent_[key] = "works or worked";
  const std::uint64_t seed = devices::Engine::instance().options().seed;

  // One clique per color; the ranks of it in the order of (key, old rank).
  std::map<int, std::vector<Entry*>> colors;
  for (Entry& entry : entries) colors[entry.color].push_back(&entry);
  for (auto& [color, members] : colors) {
    if (color == NCCL_SPLIT_NOCOLOR && some.birth == Birth::split) {
      for (const Entry* entry : members) entry->candidate->joined(nullptr, -1, {});
      continue;
    }
    std::sort(members.begin(), members.end(), [](const Entry* a, const Entry* b) {
      return std::pair(a->order, a->rank) < std::pair(b->order, b->rank);
    });
    std::vector<Clique::Seat> seats;
    for (const Entry* entry : members) {
      seats.push_back({entry->candidate, entry->device, entry->place, {}});
    }
    std::string name = some.name;
    std::string clique_key = key;
    if (some.birth == Birth::split) {
      name += ", split color " + std::to_string(color);
      clique_key += ".c" + std::to_string(color);
    } else if (some.birth == Birth::shrink) {
      name += ", shrunk";
    }
    const auto clique = std::make_shared<Clique>(name, std::move(seats), seed);
    for (std::size_t rank = 0; rank < members.size(); ++rank) {
      members[rank]->candidate->joined(clique, static_cast<int>(rank), clique_key);
    }
  }
}

void Gatherings::withdraw(Candidate* candidate, const std::string& how) {
  for (auto& [key, gathering] : open_) {
    auto& entries = gathering.entries;
    const auto found = std::find_if(entries.begin(), entries.end(), [&](const Entry& entry) {
      return entry.candidate == candidate;
    });
    if (found == entries.end()) continue;
    const std::string what =
        described(*found) + " " + how + " before all ranks had joined " + found->name;
    const Gathering rest = std::move(gathering);
    spent_[key] = "failed: " + what;
    open_.erase(key);
    for (const Entry& entry : rest.entries) {
      if (entry.candidate != candidate) entry.candidate->failed({ncclRemoteError, what});
    }
    return;
  }
}

std::string Gatherings::awaited(const std::string& key) const {
  const auto found = open_.find(key);
  if (found == open_.end()) return "nobody";
  const auto& entries = found->second.entries;
  const Entry& some = entries.front();
  std::string missing;
  int count = 0;
  for (int rank = 0; rank < some.ranks; ++rank) {
    const bool here = std::any_of(entries.begin(), entries.end(),
                                  [&](const Entry& entry) { return entry.rank == rank; });
    if (here || !expects(some, rank)) continue;
    if (++count > 16) {
      missing += ", ...";
      break;
    }
    missing += (missing.empty() ? "" : ", ") + std::to_string(rank);
  }
  return std::string(count == 1 ? "rank " : "ranks ") + missing + " of " +
         std::to_string(some.ranks) + " to call " + function_of(some.birth) + " for " + some.name;
}

}  // namespace lockstep::nccl
