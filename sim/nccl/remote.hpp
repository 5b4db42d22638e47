// Ranks and cliques in different processes: the rank's end and the clique's end of a connection.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "connection.hpp"
#include "link.hpp"

struct ncclComm;

namespace lockstep::nccl {

// The rank's end, in the rank's process.
class RemoteLink : public Link, public Connection {
 public:
  RemoteLink(int descriptor, std::string token, ncclComm* comm)
      : Connection(descriptor), token_(std::move(token)), comm_(comm) {}

  // Connects to the process of `token` and enters. False when there is nobody.
  static bool enter_at(const std::string& token, const Entry& entry, ncclComm* comm);

  void announce(const LaunchRef& launch) override;
  void arrive(const LaunchRef& launch) override;
  bool complete(Launch& launch) override;
  std::vector<devices::NodeRef> wants(const Launch&) const override { return {}; }
  std::string awaited(const Launch& launch) const override;
  bool awaits_others(const Launch& launch) const override;
  bool has_others() const override { return true; }
  void leave(const std::string& how, Departure departure) override;
  void enter(Entry entry) override;

 protected:
  void received(Message kind, Reader& content) override;
  void ended() override;

 private:
  const std::string token_;
  ncclComm* const comm_;
  bool left_ = false;
  std::map<std::uint64_t, std::vector<std::byte>> results_;  // by launch: what came and waits
};

// The clique's end, in the clique's process.
class RemoteMember : public Candidate, public Connection {
 public:
  explicit RemoteMember(int descriptor);

  void joined(const std::shared_ptr<Clique>& clique, int rank, const std::string& key) override;
  void finished(Launch& launch) override;
  void demanded(std::uint64_t launch) override;
  void failed(const Failure& failure) override;
  bool remote() const override { return true; }

 protected:
  void received(Message kind, Reader& content) override;
  void ended() override;

 private:
  // A launch of the rank, with copies of its buffers.
  struct Shadow {
    LaunchRef launch;
    std::vector<std::vector<std::byte>> inputs;
    std::vector<std::vector<std::byte>> outputs;
  };
  void arrived(std::uint64_t number, Reader& content);
  void depart(const std::string& how, Departure departure);

  const std::string place_;
  std::shared_ptr<Clique> clique_;
  int rank_ = -1;
  bool gone_ = false;
  std::map<std::uint64_t, Shadow> shadows_;
};

}  // namespace lockstep::nccl
