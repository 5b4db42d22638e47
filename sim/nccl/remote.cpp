#include "remote.hpp"

#include <algorithm>

#include "communicator.hpp"
#include "names.hpp"
#include "service.hpp"

namespace lockstep::nccl {

// --- the rank's end

bool RemoteLink::enter_at(const std::string& token, const Entry& entry, ncclComm* comm) {
  const int descriptor = connect_to(token);
  if (descriptor < 0) return false;
  auto link = std::make_shared<RemoteLink>(descriptor, token, comm);
  Writer content;
  put(content, entry);
  link->send(Message::enter, std::move(content));
  comm->link = link;
  Service::instance().serve(std::move(link));
  return true;
}

void RemoteLink::enter(Entry entry) {
  auto* const child = static_cast<ncclComm*>(entry.candidate);
  if (!enter_at(token_, entry, child)) {
    child->failed({ncclRemoteError, "the process that " + comm_->name + " meets in is gone"});
  }
}

void RemoteLink::announce(const LaunchRef& launch) {
  launch->meetings.resize(launch->calls.size());  // none of them here
  Writer content;
  put(content, *launch);
  send(Message::announce, std::move(content));
}

void RemoteLink::arrive(const LaunchRef& launch) {
  launch->arrived = true;
  Writer content;
  content.put(launch->number);
  for (std::size_t at = 0; at < launch->calls.size(); ++at) {
    const Extents sizes = *extents(launch->calls[at], comm_->rank, comm_->ranks);
    content.put(launch->scalars[at]);
    content.put_bytes({launch->inputs[at], sizes.sent});
  }
  send(Message::arrive, std::move(content));
}

bool RemoteLink::complete(Launch& launch) {
  const auto found = results_.find(launch.number);
  if (found == results_.end()) return launch.finished;
  Reader content(found->second);
  for (std::size_t at = 0; at < launch.calls.size(); ++at) {
    const Extents sizes = *extents(launch.calls[at], comm_->rank, comm_->ranks);
    const auto bytes = content.get_bytes(sizes.received);
    std::copy(bytes.begin(), bytes.end(), launch.outputs[at]);
  }
  results_.erase(found);
  launch.finished = true;
  return true;
}

std::string RemoteLink::awaited(const Launch&) const {
  if (comm_->failure) return "nobody, since it has failed: " + comm_->failure->what;
  return "ranks of other processes; the report of the process that made the unique id may say "
         "which";
}

bool RemoteLink::awaits_others(const Launch&) const {
  return !comm_->failure;
}

void RemoteLink::leave(const std::string& how, Departure departure) {
  if (left_) return;
  left_ = true;
  Writer content;
  content.put(how);
  content.put(departure);
  send(Message::leave, std::move(content));
}

void RemoteLink::received(Message kind, Reader& content) {
  switch (kind) {
    case Message::joined: {
      const int rank = content.get<int>();
      const int ranks = content.get<int>();
      const std::string name = content.get_text();
      comm_->settle(rank, ranks, name, content.get_text());
      break;
    }
    case Message::failed: {
      Failure failure;
      failure.result = content.get<ncclResult_t>();
      failure.told = content.get<bool>();
      failure.what = content.get_text();
      comm_->failed(failure);
      break;
    }
    case Message::demanded:
      comm_->demanded(content.get<std::uint64_t>());
      break;
    case Message::finished: {
      const auto number = content.get<std::uint64_t>();
      const auto bytes = content.get_bytes(content.get<std::size_t>());
      results_[number].assign(bytes.begin(), bytes.end());
      break;
    }
    default:
      break;
  }
}

void RemoteLink::ended() {
  if (left_ || comm_->failure) return;
  const std::string what = "the process that made the unique id of " + comm_->name +
                           ", where its ranks meet, ended or died";
  devices::report({.rule = "rank-died",
                   .call = {"NCCL", comm_->describe()},
                   .device = comm_->device,
                   .what = what,
                   .advice = "Find out why it ended before all communicators were destroyed."});
  comm_->failed({ncclRemoteError, what, true});
}

// --- the clique's end

RemoteMember::RemoteMember(int descriptor)
    : Connection(descriptor), place_("process " + std::to_string(peer_process(descriptor))) {}

void RemoteMember::joined(const std::shared_ptr<Clique>& clique, int rank, const std::string& key) {
  clique_ = clique;
  rank_ = rank;
  Writer content;
  content.put(rank);
  content.put(clique ? clique->ranks() : 0);
  content.put(clique ? clique->name() : std::string());
  content.put(key);
  send(Message::joined, std::move(content));
}

void RemoteMember::failed(const Failure& failure) {
  Writer content;
  content.put(failure.result);
  content.put(failure.told);
  content.put(failure.what);
  send(Message::failed, std::move(content));
}

void RemoteMember::demanded(std::uint64_t launch) {
  Writer content;
  content.put(launch);
  send(Message::demanded, std::move(content));
}

void RemoteMember::finished(Launch& launch) {
  const auto found = shadows_.find(launch.number);
  if (found == shadows_.end()) return;
  Writer outputs;
  for (const auto& bytes : found->second.outputs) outputs.put_bytes(bytes);
  const std::vector<std::byte> all = outputs.take();
  Writer content;
  content.put(launch.number);
  content.put(all.size());
  content.put_bytes(all);
  send(Message::finished, std::move(content));
  shadows_.erase(found);
}

void RemoteMember::arrived(std::uint64_t number, Reader& content) {
  const auto found = shadows_.find(number);
  if (found == shadows_.end()) return;
  Shadow& shadow = found->second;
  const LaunchRef launch = shadow.launch;
  for (const Call& call : launch->calls) {
    const Extents sizes = *extents(call, rank_, clique_->ranks());
    launch->scalars.push_back(content.get<Scalar>());
    const auto bytes = content.get_bytes(sizes.sent);
    shadow.inputs.emplace_back(bytes.begin(), bytes.end());
    shadow.outputs.emplace_back(sizes.received);
  }
  if (!content.good()) return;
  for (std::size_t at = 0; at < launch->calls.size(); ++at) {
    launch->inputs.push_back(shadow.inputs[at].data());
    launch->outputs.push_back(shadow.outputs[at].data());
  }
  clique_->arrive(launch);
}

void RemoteMember::depart(const std::string& how, Departure departure) {
  if (gone_) return;
  gone_ = true;
  if (clique_) {
    clique_->leave(rank_, how, departure);
  } else {
    Gatherings::instance().withdraw(this, how);
  }
}

void RemoteMember::received(Message kind, Reader& content) {
  switch (kind) {
    case Message::enter: {
      Entry entry = get_entry(content);
      entry.place = place_;
      entry.candidate = this;
      Gatherings::instance().enter(std::move(entry));
      break;
    }
    case Message::announce: {
      if (!clique_) break;
      const LaunchRef launch = get_launch(content);
      launch->rank = rank_;
      // Threads of different processes are different, whatever their numbers.
      if (launch->thread != 0) {
        launch->thread ^= static_cast<std::uint64_t>(peer_process(descriptor())) << 32;
      }
      shadows_[launch->number].launch = launch;
      clique_->announce(launch);
      break;
    }
    case Message::arrive: {
      const auto number = content.get<std::uint64_t>();
      if (clique_) arrived(number, content);
      break;
    }
    case Message::leave: {
      const std::string how = content.get_text();
      depart(how, content.get<Departure>());
      close();
      break;
    }
    default:
      break;
  }
}

void RemoteMember::ended() {
  depart("died: its process ended", Departure::died);
}

}  // namespace lockstep::nccl
