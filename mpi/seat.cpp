#include "seat.hpp"

#include <algorithm>
#include <numeric>

namespace lockstep::mpi {
namespace {

std::vector<int> picked(const std::vector<int>& from, std::span<const int> positions) {
  std::vector<int> result;
  for (int position : positions) result.push_back(from[static_cast<std::size_t>(position)]);
  return result;
}

}  // namespace

std::string braced(const std::vector<int>& ranks) {
  std::string text = "{";
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    text += (i > 0 ? ", " : "") + std::to_string(ranks[i]);
  }
  return text + "}";
}

Seat::Seat(std::shared_ptr<Runtime> its_runtime, Options its_options,
           std::shared_ptr<Link> its_link, std::vector<int> its_outer_ranks)
    : runtime(std::move(its_runtime)),
      options(its_options),
      root(this),
      members(its_outer_ranks.size()),
      outer_ranks(std::move(its_outer_ranks)),
      rank(its_link->rank()),
      name(its_link->name()),
      link(std::move(its_link)) {
  std::iota(members.begin(), members.end(), 0);
  runtime->adopt(link);
}

Seat::Seat(Seat& its_root, std::vector<int> its_members, const std::string& parent_name)
    : runtime(its_root.runtime),
      options(its_root.options),
      root(&its_root),
      members(std::move(its_members)),
      outer_ranks(picked(its_root.outer_ranks, members)),
      rank(static_cast<int>(std::ranges::find(members, its_root.rank) - members.begin())),
      name(parent_name + ".group" + braced(outer_ranks)) {}

Seat::~Seat() {
  if (link) runtime->leave(*link);
}

std::atomic<bool>& Seat::in_use() {
  std::atomic<bool>* const shared = runtime->shared_turn();
  return shared != nullptr ? *shared : in_use_;
}

Link& Seat::connected() {
  if (!runtime->is_open())
    throw InvalidArgument(name + " was used after its mpi::Environment ended");
  if (link) return *link;
  if (failed_to_form_) throw *failed_to_form_;
  try {
    link = std::make_shared<Link>(root->link->form(members, name, false), name, options.timeout);
    runtime->adopt(link);
  } catch (const TransportError& error) {
    failed_to_form_ = error;
    throw;
  }
  return *link;
}

Seat& Seat::group(std::span<const int> ranks) {
  const std::vector<int> list(ranks.begin(), ranks.end());
  const auto refuse = [&](const std::string& why) {
    throw InvalidArgument("group" + braced(list) + " of " + name + ": " + why);
  };
  if (list.empty()) refuse("a group has one rank at least");
  for (int member : list) {
    if (member < 0 || member >= static_cast<int>(members.size())) {
      refuse("there is no rank " + std::to_string(member));
    }
    if (std::ranges::count(list, member) > 1) {
      refuse("rank " + std::to_string(member) + " is listed twice");
    }
  }
  if (std::ranges::find(list, rank) == list.end()) {
    refuse("the caller, rank " + std::to_string(rank) + ", is not on the list");
  }

  std::lock_guard lock(groups_mutex_);
  Seat*& seat = groups_[list];
  if (seat == nullptr) {
    auto made = std::make_unique<Seat>(*root, picked(members, list), name);
    seat = made.get();
    root->own(std::move(made));
  }
  return *seat;
}

void Seat::own(std::unique_ptr<Seat> group) {
  std::lock_guard lock(owned_mutex_);
  owned_.push_back(std::move(group));
}

}  // namespace lockstep::mpi
