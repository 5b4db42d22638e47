#include "link.hpp"

#include <algorithm>
#include <cstring>

namespace lockstep::gpu {
namespace {

constexpr std::size_t digest_length = std::tuple_size_v<SignatureDigestWords>;
constexpr std::size_t message_length = digest_length + 1;  // and whether there is memory
constexpr std::size_t id_words = sizeof(ncclUniqueId) / sizeof(std::int64_t);

}  // namespace

Link::Link(std::shared_ptr<ControlPlane> control, Stream stream, Options options)
    : control_(std::move(control)),
      stream_(std::move(stream)),
      options_(options),
      rank_(control_->rank()),
      size_(control_->world_size()),
      name_(control_->name()),
      connection_(std::make_shared<Connection>(control_, stream_, options.timeout)) {}

Link::~Link() {
  control_.reset();  // peers that wait for this rank hear it now; its enqueued work goes on
  connection_->close();
}

std::string Link::position() const {
  return operation_ + ", call " + std::to_string(call_number()) + " on " + name_;
}

void Link::begin(const Signature& mine) {
  operation_ = lockstep::name(mine.operation);
  ++entered_;
}

std::optional<Blocks> Link::set_aside(const Needs& needs) {
  try {
    return Blocks{Memory::allocate(needs.result, stream_),
                  Memory::allocate(needs.scratch, stream_)};
  } catch (const DeviceError& error) {
    memory_trouble_ = error.what();
    return std::nullopt;
  }
}

// A conversation on the control plane, whose failure is the link's.
template <class Talk>
std::vector<std::int64_t> Link::talk(const Talk& talk) {
  const auto fail = [&](const std::string& what, std::vector<int> lost) {
    const TransportError error(position() + ": " + what, std::move(lost));
    connection_->end(error, Connection::Work::may_finish);
    connection_->require();  // throws: the reason of an abort, if that came first
  };
  try {
    return talk();
  } catch (const TransportError& error) {
    fail(error.what(), error.lost_ranks());
  } catch (const ContractError& error) {
    fail(std::string("the control plane was used for something else: ") + error.what(), {});
  }
  return {};
}

std::int64_t Link::agree(const Signature& mine, bool has_memory) {
  const bool exchange = is_all_to_all_v(mine.operation);
  if (!options_.agreement && !exchange && mine.operation != Operation::split) {
    if (!has_memory) throw DeviceError(memory_trouble_);
    check_alone(mine);
    return mine.shape.empty() ? 0 : mine.shape[0] * size_;
  }

  const SignatureDigestWords own = digest_words(digest_of(mine, size_));
  std::vector<std::int64_t> message(own.begin(), own.end());
  message.push_back(has_memory ? 1 : 0);
  const std::vector<std::int64_t> all = talk([&] { return control_->all_gather(message); });

  std::vector<SignatureDigest> digests;
  std::vector<int> without_memory;
  std::int64_t total_rows = 0;
  for (int rank = 0; rank < size_; ++rank) {
    const auto* words = all.data() + static_cast<std::size_t>(rank) * message_length;
    SignatureDigestWords digest;
    std::copy_n(words, digest_length, digest.begin());
    digests.push_back(digest_from_words(digest));
    if (words[digest_length] == 0) without_memory.push_back(rank);
  }
  if (!certainly_fit(digests)) compare_whole_signatures(mine, digests);
  if (!without_memory.empty()) {
    const TransportError error(position() + ": no device memory for the result on " +
                                   rank_list(without_memory) +
                                   (has_memory ? "" : "; " + memory_trouble_),
                               without_memory);
    connection_->end(error, Connection::Work::may_finish);
    throw TransportError(error);
  }
  for (const SignatureDigest& digest : digests) {
    if (digest.axis_count > 0) total_rows += digest.axes[0];
  }
  connection_->require();  // an abort while this rank waited
  return total_rows;
}

// The rules that a rank can check against itself.
void Link::check_alone(const Signature& mine) const {
  const SignatureDigest digest = digest_of(mine, size_);
  if (certainly_fit(std::vector<SignatureDigest>(static_cast<std::size_t>(size_), digest))) return;
  const std::vector<Signature> alike(static_cast<std::size_t>(size_), mine);
  if (const std::optional<Breach> breach = find_breach(alike)) {
    throw ContractError(*breach, name_, call_number());
  }
}

void Link::compare_whole_signatures(const Signature& mine,
                                    std::span<const SignatureDigest> digests) {
  std::int64_t longest = 0;
  for (const SignatureDigest& digest : digests) {
    longest = std::max(longest, digest.encoded_words);
  }
  std::vector<std::int64_t> words = encode(mine);
  words.resize(static_cast<std::size_t>(longest));
  const std::vector<std::int64_t> all = talk([&] { return control_->all_gather(words); });

  std::vector<DecodedSignature> decoded;
  std::vector<Signature> signatures;
  for (std::size_t rank = 0; rank < digests.size(); ++rank) {
    const auto length = static_cast<std::size_t>(digests[rank].encoded_words);
    decoded.push_back(decode_signature(std::span(all).subspan(rank * words.size(), length)));
    signatures.push_back(decoded.back().signature);
  }
  if (const std::optional<Breach> breach = find_breach(signatures)) {
    throw ContractError(*breach, name_, call_number());
  }
}

void Link::connect() {
  if (connection_->is_open()) return;
  ncclUniqueId id = {};
  ncclResult_t made = ncclSuccess;
  if (rank_ == 0) made = ncclGetUniqueId(&id);
  std::vector<std::int64_t> words(id_words + 1, 0);
  std::memcpy(words.data(), id.internal, sizeof id.internal);
  words[id_words] = made;
  const std::vector<std::int64_t> all = talk([&] { return control_->all_gather(words); });
  if (all[id_words] != ncclSuccess) {
    const auto result = static_cast<ncclResult_t>(all[id_words]);
    const TransportError error(
        position() + ": ncclGetUniqueId on rank 0: " + ncclGetErrorString(result), {0});
    connection_->end(error, Connection::Work::may_finish);
    throw TransportError(error);
  }
  std::memcpy(id.internal, all.data(), sizeof id.internal);
  connection_->open(id, position());
}

std::vector<std::int64_t> Link::exchange_counts(std::span<const std::int64_t> send_counts) {
  return talk([&] { return control_->all_to_all(send_counts); });
}

std::vector<std::vector<std::int64_t>> Link::gather_integers(
    std::span<const std::int64_t> integers) {
  // One conversation where everybody's integers fit into a block of fixed size. Where anybody has
  // more, all see that, and say the rest at the length of the longest.
  constexpr std::size_t in_block = 63;
  connection_->require();
  operation_ = "gather_integers";
  ++entered_;
  const auto ranks = static_cast<std::size_t>(size_);
  std::vector<std::int64_t> block(1 + in_block, 0);
  block[0] = static_cast<std::int64_t>(integers.size());
  std::ranges::copy(integers.first(std::min(integers.size(), in_block)), block.begin() + 1);
  const std::vector<std::int64_t> blocks = talk([&] { return control_->all_gather(block); });

  std::vector<std::vector<std::int64_t>> all(ranks);
  std::size_t longest = 0;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    const auto* words = blocks.data() + rank * block.size();
    const auto length = static_cast<std::size_t>(words[0]);
    all[rank].assign(words + 1, words + 1 + std::min(length, in_block));
    longest = std::max(longest, length);
  }
  --entered_;  // not one of the numbered calls
  if (longest <= in_block) return all;

  std::vector<std::int64_t> rest(longest - in_block, 0);
  if (integers.size() > in_block) std::ranges::copy(integers.subspan(in_block), rest.begin());
  const std::vector<std::int64_t> rests = talk([&] { return control_->all_gather(rest); });
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    const auto length = static_cast<std::size_t>(blocks[rank * block.size()]);
    if (length <= in_block) continue;
    const auto* words = rests.data() + rank * rest.size();
    all[rank].insert(all[rank].end(), words, words + (length - in_block));
  }
  return all;
}

void Link::abort(const std::string& reason) noexcept {
  connection_->end(
      TransportError(name_ + " was aborted by rank " + std::to_string(rank_) + ": " + reason,
                     {rank_}),
      Connection::Work::is_lost);
}

// After the ranks have agreed, the others count on this one: they are told as far as that is
// possible, and nothing more is expected of this link.
void Link::give_up(const std::exception& error) {
  const TransportError failure(position() + ": this rank gave up: " + error.what(), {rank_});
  connection_->end(failure, Connection::Work::is_lost);
  connection_->require();
  throw TransportError(failure);
}

}  // namespace lockstep::gpu
