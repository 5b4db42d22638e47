// What an operation does to the ranks' buffers once all of them are there.

#include <cstring>

#include "meeting.hpp"
#include "names.hpp"

namespace lockstep::nccl {
namespace {

// Buffers without bytes may be null, which memmove does not like.
void move_bytes(std::byte* to, const std::byte* from, std::size_t bytes) {
  if (bytes != 0) std::memmove(to, from, bytes);
}

}  // namespace

void Clique::carry_out_reduction(Meeting& meeting) {
  const Call& call = meeting.call(0);
  const auto ranks = static_cast<std::size_t>(this->ranks());
  const std::size_t block = call.count * size_of(call.datatype);
  std::vector<Addends> addends(ranks);
  std::vector<std::byte> result(block);
  const bool scatters = call.kind == CallKind::reduce_scatter;
  for (std::size_t to = 0; to < (scatters ? ranks : 1); ++to) {
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      const Part& part = meeting.parts[rank];
      addends[rank] = {meeting.input(rank, this->ranks()).subspan(to * block, block),
                       meeting.call(rank).op, part.launch->scalars[part.call]};
    }
    if (scatters) {
      reduce_around(ring_, addends, call.datatype, ring_.position_of(static_cast<int>(to)) + 1, 0,
                    result);
      move_bytes(meeting.output(to), result.data(), block);
    } else if (call.kind == CallKind::reduce) {
      reduce_around(ring_, addends, call.datatype, ring_.position_of(call.peer) + 1, 0, result);
      move_bytes(meeting.output(static_cast<std::size_t>(call.peer)), result.data(), block);
    } else {
      reduce_around(ring_, addends, call.datatype, 1, 1, result);
      for (std::size_t rank = 0; rank < ranks; ++rank) {
        move_bytes(meeting.output(rank), result.data(), block);
      }
    }
  }
}

void Clique::carry_out(Meeting& meeting) {
  const Call& call = meeting.call(0);
  const std::size_t block = call.count * size_of(call.datatype);
  const auto ranks = static_cast<std::size_t>(this->ranks());
  const auto root = static_cast<std::size_t>(call.peer);
  const auto from = [&](std::size_t seat) { return meeting.input(seat, this->ranks()).data(); };
  switch (call.kind) {
    case CallKind::all_reduce:
    case CallKind::reduce:
    case CallKind::reduce_scatter:
      carry_out_reduction(meeting);
      break;
    case CallKind::broadcast:
      for (std::size_t to = 0; to < ranks; ++to) move_bytes(meeting.output(to), from(root), block);
      break;
    case CallKind::all_gather:
      for (std::size_t to = 0; to < ranks; ++to) {
        for (std::size_t source = 0; source < ranks; ++source) {
          move_bytes(meeting.output(to) + source * block, from(source), block);
        }
      }
      break;
    case CallKind::all_to_all:
      for (std::size_t to = 0; to < ranks; ++to) {
        for (std::size_t source = 0; source < ranks; ++source) {
          move_bytes(meeting.output(to) + source * block, from(source) + to * block, block);
        }
      }
      break;
    case CallKind::gather:
      for (std::size_t source = 0; source < ranks; ++source) {
        move_bytes(meeting.output(root) + source * block, from(source), block);
      }
      break;
    case CallKind::scatter:
      for (std::size_t to = 0; to < ranks; ++to) {
        move_bytes(meeting.output(to), from(root) + to * block, block);
      }
      break;
    case CallKind::send:
    case CallKind::receive:
      move_bytes(meeting.output(1), from(0), block);
      break;
  }

  // What came before on the ranks that gave happened before what comes next on those that took; in
  // one direction only where only one rank gives or takes, but no rule is lost by much there.
  std::vector<devices::NodeRef> nodes;
  for (const Part& part : meeting.parts) {
    if (part.launch->node) nodes.push_back(part.launch->node);
  }
  devices::Engine::instance().meet(nodes);

  meeting.done = true;
  if (meeting.collective) {
    while (!collectives_.empty() && collectives_.front()->done) {
      collectives_.pop_front();
      ++first_collective_;
    }
  } else {
    std::erase_if(transfers_[{meeting.source, meeting.destination}],
                  [&](const MeetingRef& other) { return other.get() == &meeting; });
  }
  for (const Part& part : meeting.parts) {
    Launch& launch = *part.launch;
    if (--launch.open != 0) continue;
    launch.finished = true;
    std::erase_if(unfinished_[static_cast<std::size_t>(launch.rank)],
                  [&](const LaunchRef& other) { return other.get() == &launch; });
    if (Member* member = seats_[static_cast<std::size_t>(launch.rank)].member) {
      member->finished(launch);
    }
  }
  // A launch knows its meetings and they know it.
  meeting.parts.clear();
}

}  // namespace lockstep::nccl
