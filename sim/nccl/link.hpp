// A rank's way to its clique: directly in the process where the clique lives, over a socket
// elsewhere. Called with the engine's lock held.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "clique.hpp"
#include "gathering.hpp"

namespace lockstep::nccl {

class Link {
 public:
  virtual ~Link() = default;
  virtual void announce(const LaunchRef& launch) = 0;
  // The launch's inputs, outputs and scalars are set. They stay valid until it is finished.
  virtual void arrive(const LaunchRef& launch) = 0;
  // Moves what has come from elsewhere into the outputs; true when the launch is finished.
  virtual bool complete(Launch& launch) = 0;
  virtual std::vector<devices::NodeRef> wants(const Launch& launch) const = 0;
  virtual std::string awaited(const Launch& launch) const = 0;
  virtual bool awaits_others(const Launch& launch) const = 0;
  // Some rank lives in another process.
  virtual bool has_others() const = 0;
  // As Clique::leave.
  virtual void leave(const std::string& how, Departure departure) = 0;
  // Joins the ranks of a split or a shrink.
  virtual void enter(Entry entry) = 0;
};

class LocalLink : public Link {
 public:
  LocalLink(std::shared_ptr<Clique> clique, int rank) : clique_(std::move(clique)), rank_(rank) {}

  void announce(const LaunchRef& launch) override { clique_->announce(launch); }
  void arrive(const LaunchRef& launch) override { clique_->arrive(launch); }
  bool complete(Launch& launch) override { return launch.finished; }
  std::vector<devices::NodeRef> wants(const Launch& launch) const override;
  std::string awaited(const Launch& launch) const override { return clique_->awaited(launch); }
  bool awaits_others(const Launch& launch) const override { return clique_->awaits_others(launch); }
  bool has_others() const override { return clique_->has_others(); }
  void leave(const std::string& how, Departure departure) override {
    clique_->leave(rank_, how, departure);
  }
  void enter(Entry entry) override { Gatherings::instance().enter(std::move(entry)); }

 private:
  const std::shared_ptr<Clique> clique_;
  const int rank_;
};

}  // namespace lockstep::nccl
