// One rank's end of one MPI communicator: entering calls, waiting, failing, leaving.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <lockstep/agreement.hpp>
#include <lockstep/error.hpp>
#include <lockstep/mpi/c_api.hpp>

#include "channel.hpp"
#include "patience.hpp"
#include "transfer.hpp"

namespace lockstep::mpi {

// A link goes through a series of calls. Each begins with one control message to every peer; when
// those of all peers have come and fit together, data moves. No MPI call blocks: every wait is a
// loop in which departures of peers and the time limit are noticed, whatever is waited for.
//
// The first failure is kept and ends the link; MPI is not asked for anything on it any more except
// to deliver the farewells. A link is kept by the Runtime after its rank has left, until its peers
// have left too, since MPI may write into its buffers for as long.
class Link {
 public:
  // Takes over `comm`, of which every rank makes a Link.
  Link(MPI_Comm comm, std::string name, Patience::Limit timeout);
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }
  const std::string& name() const { return name_; }
  MPI_Comm comm() const { return comm_; }
  std::uint64_t call_number() const { return entered_ - 1; }  // inside a call

  // One call: agrees with the peers on `mine` and returns body(messages), where entry r of the
  // messages is what rank r entered with. Throws ContractError and TransportError as
  // lockstep/error.hpp says; whatever `body` throws ends the link for all ranks, which may be
  // waiting for this one's data.
  template <class Body>
  auto call(const Signature& mine, Body body) {
    if (failure_) throw *failure_;
    try {
      auto result = body(enter(mine));
      ++completed_;
      return result;
    } catch (const ContractError&) {
      ++completed_;
      throw;
    } catch (const std::exception& error) {
      end_after(error);
      throw;
    }
  }

  // Inside a call: waits until all of the transfer has happened.
  void finish(Transfer transfer);

  // Meets `members` (ranks of this link, in the order of the new communicator, this one included)
  // and makes a communicator of them; no other rank is needed. Inside a call it fails as that call
  // does; outside, it works also after this link has failed, and lost ranks are counted in
  // `members`.
  MPI_Comm form(const std::vector<int>& members, const std::string& name, bool inside_call);

  // Says farewell, once; later calls do nothing.
  void leave() noexcept;
  bool has_left() const { return left_; }
  bool has_failed() const { return failure_.has_value(); }
  // After leave(): lets MPI work, and is true once all farewells have been said and heard.
  bool settled() noexcept;
  // Lets MPI work, and is false while it may still touch the memory of a transfer that failed.
  bool idle() noexcept;
  // When settled and idle: gives the MPI communicator back.
  void close() noexcept;

 private:
  struct Departure {
    int rank;
    std::string text;
    bool timed_out;  // it had waited for somebody for too long
  };
  struct Meeting;
  struct Delivery;
  struct Forming;

  std::span<const Message> enter(const Signature& mine);
  void compare_whole_signatures(const Signature& mine);
  template <class Step>
  void wait(Step step);
  std::vector<Departure> departures();
  void end(const TransportError& error, std::optional<Reason> reason) noexcept;
  void end_after(const std::exception& error) noexcept;
  MPI_Comm create(const std::vector<int>& members, int tag);
  void say(Kind kind, Reason reason) noexcept;
  std::string position() const;

  MPI_Comm comm_;
  std::string name_;
  Patience::Limit timeout_;
  int rank_ = 0;
  int size_ = 0;
  std::unique_ptr<Channel> channel_;

  std::uint64_t entered_ = 0;
  std::uint64_t completed_ = 0;
  SignatureDigest last_;     // of the call entered last
  Operation previous_ = {};  // the operation before that one, which every peer was in
  std::vector<SignatureDigest> digests_;

  std::optional<TransportError> failure_;
  std::atomic<bool> left_ = false;
  // What was under way when a wait failed: MPI may still write there.
  std::vector<Transfer> stranded_;
  std::vector<std::unique_ptr<Channel>> stranded_formings_;
};

}  // namespace lockstep::mpi
