// One rank's end of one communicator: entering calls, agreeing on them, failing, leaving.
#pragma once

#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <lockstep/agreement.hpp>
#include <lockstep/error.hpp>
#include <lockstep/gpu/communicator.hpp>
#include <lockstep/gpu/control_plane.hpp>
#include <lockstep/signature_wire.hpp>

#include "check.hpp"
#include "connection.hpp"
#include "memory.hpp"

namespace lockstep::gpu {

// How much device memory a call needs. It is set aside before the ranks agree, so that a device
// without enough of it is everybody's error rather than a rank that others wait for.
struct Needs {
  std::int64_t result = 0;
  std::int64_t scratch = 0;
};
struct Blocks {
  std::shared_ptr<Memory> result;
  std::shared_ptr<Memory> scratch;
};

// A link goes through a series of calls. In each, the ranks first compare digests of what they ask
// for on the control plane; when those fit together, every rank enqueues its part of the data
// movement. The first failure ends the link, and with it its NCCL communicator.
class Link {
 public:
  Link(std::shared_ptr<ControlPlane> control, Stream stream, Options options);
  ~Link();
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }
  const std::string& name() const { return name_; }
  const Stream& stream() const { return stream_; }
  const Options& options() const { return options_; }
  ControlPlane& control() { return *control_; }

  // One call: agrees with the peers on `mine` and returns body(blocks, total_rows), where
  // total_rows is the number of rows that all ranks passed together. Throws ContractError and
  // TransportError as lockstep/error.hpp says.
  template <class Body>
  auto call(const Signature& mine, const Needs& needs, const Body& body) {
    connection_->require();
    begin(mine);
    try {
      const OnDevice here(stream_.device());
      const std::optional<Blocks> blocks = set_aside(needs);
      const std::int64_t total_rows = agree(mine, blocks.has_value());
      return body(*blocks, total_rows);
    } catch (const ContractError&) {
      throw;
    } catch (const TransportError&) {
      throw;
    } catch (const std::exception& error) {
      give_up(error);
    }
  }

  // Inside a call.

  // Makes the NCCL communicator if there is none yet, which every rank does in the same call.
  void connect();
  // Enqueues: see Connection.
  void submit(const char* what, const std::function<ncclResult_t(ncclComm_t)>& request) {
    connection_->submit(position(), what, request);
  }
  void deliver(const std::shared_ptr<Memory>& memory) { connection_->deliver(*memory, position()); }
  // What each rank sends to this one, of what each sends to each.
  std::vector<std::int64_t> exchange_counts(std::span<const std::int64_t> send_counts);
  std::uint64_t call_number() const { return entered_ - 1; }

  std::vector<std::vector<std::int64_t>> gather_integers(std::span<const std::int64_t> integers);
  void abort(const std::string& reason) noexcept;
  void require() const { connection_->require(); }

 private:
  void begin(const Signature& mine);
  std::optional<Blocks> set_aside(const Needs& needs);
  std::int64_t agree(const Signature& mine, bool has_memory);
  void check_alone(const Signature& mine) const;
  void compare_whole_signatures(const Signature& mine, std::span<const SignatureDigest> digests);
  template <class Talk>
  std::vector<std::int64_t> talk(const Talk& talk);
  [[noreturn]] void give_up(const std::exception& error);
  // "all_reduce_sum, call 5 on world"
  std::string position() const;

  std::shared_ptr<ControlPlane> control_;
  const Stream stream_;
  const Options options_;
  const int rank_;
  const int size_;
  const std::string name_;
  const std::shared_ptr<Connection> connection_;

  std::uint64_t entered_ = 0;
  std::string operation_;       // of the call entered last
  std::string memory_trouble_;  // why no memory could be set aside for it
};

}  // namespace lockstep::gpu
