// Signatures as bytes, for backends whose ranks do not share memory.
//
// Agreement happens in two steps. Every call exchanges digests, which have a fixed size and are
// enough to see that ordinary calls fit together. Only where they are not enough, every rank sends
// its whole signature and asks find_breach(), so that there is one source of what a breach is and
// every rank reports it in the same words. Which of the two happens is decided from the digests of
// all ranks alone, and so identically on every rank.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <vector>

#include <lockstep/agreement.hpp>

namespace lockstep {

// The part of a signature that has a fixed size. Plain words without padding, so that it can travel
// as bytes between machines of one byte order, or as an i64 tensor (see digest_words).
struct SignatureDigest {
  // Tensors with more axes than this are ordinary, but take the second step.
  static constexpr std::size_t most_axes = 8;

  std::array<std::int64_t, most_axes> axes{};  // the first axes; zeros beyond axis_count
  std::int64_t root = 0;
  std::int64_t encoded_words = 0;  // the length of encode() of the whole signature
  std::uint32_t axis_count = 0;
  Operation operation = Operation::split;
  DType dtype = DType::f32;
  // 1 when send_counts has an entry for each rank, none negative, and adds up to the rows; 0 when
  // it does not, and for operations that take no counts.
  std::uint8_t counts_fit = 0;
  std::uint8_t unused = 0;

  friend bool operator==(const SignatureDigest&, const SignatureDigest&) = default;
};
static_assert(std::has_unique_object_representations_v<SignatureDigest>);

using SignatureDigestWords = std::array<std::int64_t, sizeof(SignatureDigest) / 8>;
inline SignatureDigestWords digest_words(const SignatureDigest& digest) {
  return std::bit_cast<SignatureDigestWords>(digest);
}
inline SignatureDigest digest_from_words(const SignatureDigestWords& words) {
  return std::bit_cast<SignatureDigest>(words);
}

SignatureDigest digest_of(const Signature& signature, int world_size);

// True only when find_breach() on the whole signatures would find nothing; entry r is rank r's.
// False also when the digests cannot tell: more axes than a digest holds, or an exchange in which a
// single rank that received every row would overflow.
bool certainly_fit(std::span<const SignatureDigest> digests);

// The whole signature.
std::vector<std::int64_t> encode(const Signature& signature);

// A signature that owns its counts. Movable only: the signature refers to the vector's elements.
struct DecodedSignature {
  Signature signature;
  std::vector<std::int64_t> send_counts;

  DecodedSignature() = default;
  DecodedSignature(DecodedSignature&&) = default;
  DecodedSignature& operator=(DecodedSignature&&) = default;
};

// The inverse of encode(); InvalidArgument for words that encode() does not write.
DecodedSignature decode_signature(std::span<const std::int64_t> words);

}  // namespace lockstep
