#include "generator_values.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

namespace lockstep::kit {
namespace {

template <class T>
using BitsOf = std::conditional_t<
    sizeof(T) == 1, std::uint8_t,
    std::conditional_t<sizeof(T) == 2, std::uint16_t,
                       std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>>>;

// Patterns that are easily damaged on the way, with random payloads and signs.
template <class T>
BitsOf<T> fragile_bits(Dice& dice) {
  const auto random = static_cast<BitsOf<T>>(dice.bits());
  if constexpr (is_floating(*dtype_of<T>)) {
    using Format = FormatOf<T>;
    const auto sign = static_cast<BitsOf<T>>(random & Format::sign_bit);
    const auto payload = static_cast<BitsOf<T>>((random & (Format::quiet_bit - 1)) | 1);
    const auto with_sign = [&](BitsOf<T> bits) { return static_cast<BitsOf<T>>(sign | bits); };
    switch (dice.below(8)) {
      case 0:
        return with_sign(static_cast<BitsOf<T>>(Format::infinity | payload));  // signalling
      case 1:
        return with_sign(static_cast<BitsOf<T>>(Format::quiet_nan | payload));
      case 2:
        return with_sign(Format::infinity);
      case 3:
        return with_sign(0);
      case 4:
        return with_sign(payload);  // subnormal
      case 5:
        return with_sign(static_cast<BitsOf<T>>(Format::infinity - 1));  // largest finite
      case 6:
        return with_sign(static_cast<BitsOf<T>>(Format::fraction_mask + 1));  // least normal
      default:
        return random;
    }
  } else {
    using Limits = std::numeric_limits<T>;
    const auto small = static_cast<std::uint64_t>(dice.below(5));
    // 2^16, 2^24 and 2^53 are where 16-bit, float and double carriers begin to lose integers.
    switch (dice.below(6)) {
      case 0:
        return static_cast<BitsOf<T>>(static_cast<BitsOf<T>>(Limits::max()) - small);
      case 1:
        return static_cast<BitsOf<T>>(static_cast<BitsOf<T>>(Limits::min()) + small);
      case 2:
        return static_cast<BitsOf<T>>((std::uint64_t{1} << 16) + small - 1);
      case 3:
        return static_cast<BitsOf<T>>((std::uint64_t{1} << 24) + 1 + 2 * small);
      case 4:
        return static_cast<BitsOf<T>>((std::uint64_t{1} << 53) + 1 + 2 * small);
      default:
        return random;
    }
  }
}

template <class T>
void put(std::byte* elements, std::int64_t index, BitsOf<T> bits) {
  std::memcpy(elements + static_cast<std::size_t>(index) * sizeof(T), &bits, sizeof(T));
}

template <class T>
BitsOf<T> rounded(double value) {
  if constexpr (std::is_same_v<T, f16>) {
    return to_f16(value).bits;
  } else if constexpr (std::is_same_v<T, bf16>) {
    return to_bf16(value).bits;
  } else if constexpr (std::is_same_v<T, float>) {
    return to_bits(static_cast<float>(value));
  } else {
    return to_bits(value);
  }
}

enum class Data { distinct, patterns, fragile };

template <class T>
void fill_to_move(Dice& dice, Data data, std::uint64_t& serial, Tensor& tensor) {
  std::byte* elements = tensor.mutable_bytes().data();
  for (std::int64_t i = 0; i < tensor.elements(); ++i) {
    switch (data) {
      case Data::distinct:
        // Odd multiples are a bijection modulo 2^bits: no pattern comes twice before all have come.
        // Counters would not do, a bfloat16 cannot tell 256 from 257.
        put<T>(elements, i, static_cast<BitsOf<T>>(++serial * 0x9e3779b97f4a7c15u));
        break;
      case Data::patterns:
        put<T>(elements, i, static_cast<BitsOf<T>>(dice.bits()));
        break;
      case Data::fragile:
        put<T>(elements, i, fragile_bits<T>(dice));
        break;
    }
  }
}

// One element's addends, entry r being rank r's, in a dtype with these parameters. All are exact in
// the dtype unless they say otherwise.
template <class T>
class Addends {
  using Format = FormatOf<T>;
  static constexpr int p = Format::precision;

 public:
  Addends(Dice& dice, std::size_t ranks) : dice_(dice), values_(ranks) {}
  std::vector<double>& values() { return values_; }

  // Integers whose every partial sum is representable, so that no order may err at all.
  void distinct_integers() {
    const auto most = std::max(3.0, std::ldexp(1.0, p) / static_cast<double>(values_.size()));
    for (double& value : values_) {
      value = 1.0 + std::fmod(static_cast<double>(serial_++), most - 1.0);
    }
  }
  // A number and half a unit in its last place, sometimes pushed off the tie by a tiny third.
  void tie() {
    zeros();
    const int unit = exponent_between(Format::lowest_bit + 2, Format::highest_bit - p);
    const double base = std::ldexp(significand(), unit);
    values_[0] = base;
    if (values_.size() > 1) values_[1] = std::copysign(std::ldexp(1.0, unit - 1), sign());
    if (values_.size() > 2 && dice_.one_in(2)) {
      const int tiny =
          std::max(unit - 2 - static_cast<int>(dice_.below(2 * p)), Format::lowest_bit);
      values_[2] = std::copysign(std::ldexp(1.0, tiny), sign());
    }
    shuffle();
  }
  // Pairs that cancel, around something small that a careless order loses.
  void cancellation() {
    zeros();
    const int unit = exponent_between(Format::lowest_bit + 2 * p, Format::highest_bit - p);
    for (std::size_t i = 0; i + 1 < values_.size(); i += 2) {
      values_[i] = std::ldexp(significand(), unit);
      values_[i + 1] = -values_[i];
    }
    if (values_.size() % 2 == 1) {
      values_.back() = std::ldexp(significand(), unit - p - static_cast<int>(dice_.below(p)));
    } else if (values_.size() > 2 && dice_.one_in(2)) {
      values_.back() = std::nextafter(values_.back(), 0);  // rounded to the dtype when stored
    }
    shuffle();
  }
  void near_overflow() {
    const double largest =
        std::ldexp(std::ldexp(1.0, p) - 1.0, Format::highest_bit - Format::fraction_bits);
    for (double& value : values_) {
      const double half_ulp = std::ldexp(1.0, Format::highest_bit - Format::fraction_bits - 1);
      value = dice_.pick({largest, largest, largest / 2, half_ulp, half_ulp / 2, 1.0});
      if (dice_.one_in(3)) value = -value;
    }
  }
  void signed_zeros() {
    const bool only_negative = dice_.one_in(2);
    for (double& value : values_) value = only_negative || dice_.one_in(2) ? -0.0 : 0.0;
  }
  void subnormals() {
    for (double& value : values_) {
      value = std::copysign(
          std::ldexp(static_cast<double>(dice_.below(std::int64_t{1} << p)), Format::lowest_bit),
          sign());
    }
  }
  // Significands of full length within `window` binades of each other.
  void mixed(int window) {
    const int top = exponent_between(Format::lowest_bit + p, Format::highest_bit - p - 12);
    for (double& value : values_) {
      const int unit = top - static_cast<int>(dice_.below(window));
      value = std::ldexp(significand(), std::max(unit, Format::lowest_bit));
    }
  }

 private:
  double sign() { return dice_.one_in(2) ? -1.0 : 1.0; }
  // A random number of p bits with its sign: 2^(p-1) to 2^p - 1.
  double significand() {
    const std::int64_t leading = std::int64_t{1} << (p - 1);
    return std::copysign(static_cast<double>(leading + dice_.below(leading)), sign());
  }
  int exponent_between(int low, int high) {
    // Mostly near one, so that explanations stay readable.
    if (!dice_.one_in(4)) return std::clamp(static_cast<int>(dice_.between(-p - 4, 0)), low, high);
    return static_cast<int>(dice_.between(low, high));
  }
  void zeros() { std::ranges::fill(values_, 0.0); }
  void shuffle() { dice_.shuffle(std::span<double>(values_)); }

  Dice& dice_;
  std::uint64_t serial_ = 0;
  std::vector<double> values_;
};

template <class T>
void fill_to_add(Dice& dice, std::vector<Tensor>& tensors) {
  const std::int64_t kind = dice.below(12);
  const bool raw = kind >= 10;
  Addends<T> addends(dice, tensors.size());
  std::vector<std::byte*> elements;
  for (Tensor& tensor : tensors) elements.push_back(tensor.mutable_bytes().data());
  for (std::int64_t i = 0; i < tensors[0].elements(); ++i) {
    switch (kind) {
      case 0:
      case 1:
        addends.distinct_integers();
        break;
      case 2:
        addends.tie();
        break;
      case 3:
        addends.cancellation();
        break;
      case 4:
        addends.near_overflow();
        break;
      case 5:
        addends.signed_zeros();
        break;
      case 6:
        addends.subnormals();
        break;
      case 7:
        addends.mixed(3);
        break;
      case 8:
        addends.mixed(2 * FormatOf<T>::precision);
        break;
      case 9:
        addends.mixed(FormatOf<T>::highest_bit);
        break;
      default:
        break;
    }
    for (std::size_t rank = 0; rank < tensors.size(); ++rank) {
      const BitsOf<T> bits = !raw         ? rounded<T>(addends.values()[rank])
                             : kind == 10 ? static_cast<BitsOf<T>>(dice.bits())
                                          : fragile_bits<T>(dice);
      put<T>(elements[rank], i, bits);
    }
  }
}

}  // namespace

std::vector<Tensor> elements_to_move(Dice& dice, DType dtype, const std::vector<Shape>& shapes) {
  const Data data =
      dice.pick({Data::distinct, Data::distinct, Data::distinct, Data::patterns, Data::fragile});
  std::uint64_t serial = dice.bits();
  std::vector<Tensor> tensors;
  for (const Shape& shape : shapes) {
    Tensor tensor = Tensor::uninitialized(dtype, shape);
    dispatch(dtype, [&](auto tag) {
      fill_to_move<typename decltype(tag)::type>(dice, data, serial, tensor);
    });
    tensors.push_back(std::move(tensor));
  }
  return tensors;
}

std::vector<Tensor> elements_to_add(Dice& dice, DType dtype, const Shape& shape, int ranks) {
  std::vector<Tensor> tensors;
  for (int rank = 0; rank < ranks; ++rank) {
    tensors.push_back(Tensor::uninitialized(dtype, shape));
  }
  dispatch(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    if constexpr (is_floating(*dtype_of<T>)) fill_to_add<T>(dice, tensors);
  });
  return tensors;
}

}  // namespace lockstep::kit
