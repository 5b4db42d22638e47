#include <array>
#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>
#include <system_error>

#include <lockstep/element_text.hpp>

namespace lockstep {
namespace {

// A decimal number without its sign: 0.d1d2d3... * 10^exponent, d1 and the last digit nonzero, and
// no digits for zero. Digits beyond `most_digits` are replaced by a single 1 when any of them is
// nonzero. That changes no rounding: the midpoint of two neighbouring doubles has at most 767
// significant digits (those of f32, f16 and bf16 fewer), so no midpoint lies between the number and
// its replacement.
struct Decimal {
  static constexpr std::size_t most_digits = 800;
  std::string digits;
  std::int64_t exponent = 0;
};

// Below zero, zero, above zero as a is below, equal to, above b.
int compare(const Decimal& a, const Decimal& b) {
  if (a.digits.empty() || b.digits.empty()) {
    return static_cast<int>(b.digits.empty()) - static_cast<int>(a.digits.empty());
  }
  if (a.exponent != b.exponent) return a.exponent < b.exponent ? -1 : 1;
  return a.digits.compare(b.digits);
}

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

// Reads the part of a JSON number after its minus sign; nothing when the text is not one.
std::optional<Decimal> read_decimal(std::string_view text) {
  std::size_t at = 0;
  const auto digits = [&] {  // a run of digits, possibly empty
    const std::size_t begin = at;
    while (at < text.size() && is_digit(text[at])) ++at;
    return text.substr(begin, at - begin);
  };

  const std::string_view whole = digits();
  if (whole.empty() || (whole.size() > 1 && whole[0] == '0')) return std::nullopt;
  std::string_view fraction;
  if (at < text.size() && text[at] == '.') {
    ++at;
    fraction = digits();
    if (fraction.empty()) return std::nullopt;
  }
  std::int64_t exponent = 0;
  if (at < text.size() && (text[at] == 'e' || text[at] == 'E')) {
    ++at;
    const bool negative = at < text.size() && text[at] == '-';
    if (at < text.size() && (text[at] == '-' || text[at] == '+')) ++at;
    const std::string_view written = digits();
    if (written.empty()) return std::nullopt;
    // Saturates far beyond what the longest text could make up for with its digits.
    constexpr std::int64_t saturated = 100'000'000'000'000'000;
    for (const char c : written) {
      if (exponent < saturated) exponent = exponent * 10 + (c - '0');
    }
    if (exponent > saturated) exponent = saturated;
    if (negative) exponent = -exponent;
  }
  if (at != text.size()) return std::nullopt;

  Decimal decimal;
  decimal.exponent = exponent + static_cast<std::int64_t>(whole.size());
  bool more = false;
  for (const std::string_view part : {whole, fraction}) {
    for (const char c : part) {
      if (decimal.digits.empty() && c == '0') {
        --decimal.exponent;
      } else if (decimal.digits.size() < Decimal::most_digits) {
        decimal.digits.push_back(c);
      } else if (c != '0') {
        more = true;
      }
    }
  }
  if (more) decimal.digits.push_back('1');
  while (!decimal.digits.empty() && decimal.digits.back() == '0') decimal.digits.pop_back();
  return decimal;
}

// The nearest float or double, ties to even, infinity beyond the range.
template <class T>
T nearest(const Decimal& decimal) {
  // Every decimal outside these exponents is far beyond the range of a double on its side.
  constexpr std::int64_t far = 1000;
  if (decimal.digits.empty() || decimal.exponent < -far) return T{0};
  if (decimal.exponent > far) return std::numeric_limits<T>::infinity();
  const std::string text = "0." + decimal.digits + "e" + std::to_string(decimal.exponent);
  T value{0};
  // from_chars leaves the value alone when it rounds to zero or to infinity.
  const std::errc error = std::from_chars(text.data(), text.data() + text.size(), value).ec;
  if (error == std::errc::result_out_of_range) {
    return decimal.exponent > 0 ? std::numeric_limits<T>::infinity() : T{0};
  }
  return value;
}

// All digits of a positive finite double.
Decimal exact_decimal(double value) {
  std::array<char, Decimal::most_digits + 16> text;
  const char* const end =
      std::to_chars(text.data(), text.data() + text.size(), value, std::chars_format::scientific,
                    static_cast<int>(Decimal::most_digits) - 1)
          .ptr;
  return *read_decimal(std::string_view(text.data(), static_cast<std::size_t>(end - text.data())));
}

// The nearest f16 or bf16, rounded from the decimal itself. The nearest double settles it, except
// where it sits on the midpoint of two neighbours, so that the double next below and the one next
// above round apart; then the decimal is compared with the midpoint, digit by digit.
template <class Half>
Half nearest_half(const Decimal& decimal) {
  const double value = nearest<double>(decimal);
  const auto round = [](double x) { return Half{narrow_bits<Half, double>(to_bits(x))}; };
  if (value == 0 || std::isinf(value)) return round(value);
  const Half below = round(std::nextafter(value, 0.0));
  const Half above = round(std::nextafter(value, std::numeric_limits<double>::infinity()));
  if (below == above) return below;
  const int side = compare(decimal, exact_decimal(value));
  return side < 0 ? below : side > 0 ? above : round(value);
}

template <class T>
T nearest_element(const Decimal& decimal) {
  if constexpr (std::is_floating_point_v<T>) {
    return nearest<T>(decimal);
  } else {
    return nearest_half<T>(decimal);
  }
}

template <class T>
std::string number_text(T value) {
  std::array<char, 32> text;
  const char* const end = std::to_chars(text.data(), text.data() + text.size(), value).ptr;
  return std::string(static_cast<const char*>(text.data()), end);
}

// The shortest decimal that nearest_half takes back to `half`, a positive finite value. With the
// fewest significant digits that allow one; the closest such decimal need not be it, since below a
// power of two the values that round to it reach only half as far, so its neighbours are tried too.
template <class Half>
std::string shortest_half_text(Half half) {
  const double value = to_double(half);
  const std::string exact = number_text(value);
  for (int digits = 1; digits <= 5; ++digits) {
    std::array<char, 32> text;
    const char* const end = std::to_chars(text.data(), text.data() + text.size(), value,
                                          std::chars_format::scientific, digits - 1)
                                .ptr;
    Decimal decimal = *read_decimal({text.data(), static_cast<std::size_t>(end - text.data())});
    decimal.digits.resize(static_cast<std::size_t>(digits), '0');
    const int closest = std::stoi(decimal.digits);
    for (const int significand : {closest, closest + 1, closest - 1}) {
      const std::string candidate =
          std::to_string(significand) + "e" + std::to_string(decimal.exponent - digits);
      const Decimal read = *read_decimal(candidate);
      if (!(nearest_half<Half>(read) == half)) continue;
      // So few digits survive a double, which lays them out as it does for the wider dtypes. Where
      // the value's own digits are no longer, as in 65504 against 65500, they are the better text.
      const std::string shortest = number_text(nearest<double>(read));
      return exact.size() <= shortest.size() ? exact : shortest;
    }
  }
  return exact;
}

template <class T>
std::string floating_text(T element) {
  using Format = FormatOf<T>;
  const auto bits = to_bits(element);
  const auto magnitude = static_cast<typename Format::Bits>(bits & ~Format::sign_bit);
  if (magnitude > Format::infinity) {
    return element_bits(*dtype_of<T>, reinterpret_cast<const std::byte*>(&element));
  }
  const std::string sign = magnitude == bits ? "" : "-";
  if (magnitude == Format::infinity) return sign + "inf";
  if (magnitude == 0) return sign + "0";
  if constexpr (std::is_floating_point_v<T>) {
    return sign + number_text(from_bits<T>(magnitude));
  } else {
    return sign + shortest_half_text(from_bits<T>(magnitude));
  }
}

template <class T>
std::optional<T> parse_floating(std::string_view text) {
  using Format = FormatOf<T>;
  if (text == "nan") return from_bits<T>(Format::quiet_nan);
  const bool negative = !text.empty() && text[0] == '-';
  if (negative) text.remove_prefix(1);
  typename Format::Bits magnitude;
  if (text == "inf") {
    magnitude = Format::infinity;
  } else if (const std::optional<Decimal> decimal = read_decimal(text)) {
    magnitude = to_bits(nearest_element<T>(*decimal));
  } else {
    return std::nullopt;
  }
  return from_bits<T>(
      static_cast<typename Format::Bits>(negative ? magnitude | Format::sign_bit : magnitude));
}

template <class T>
std::optional<T> parse_integer(std::string_view text) {
  const std::size_t sign = !text.empty() && text[0] == '-' ? 1 : 0;
  if (text.size() > sign + 1 && text[sign] == '0') return std::nullopt;  // no leading zeros
  if (text == "-0") return T{0};  // an unsigned from_chars would refuse the sign
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// Bits as text are written most significant digit first, elements are stored in the machine's
// order.
template <class T>
using ElementBits = std::conditional_t<
    sizeof(T) == 1, std::uint8_t,
    std::conditional_t<sizeof(T) == 2, std::uint16_t,
                       std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>>>;

template <class T>
std::optional<T> parse_bits(std::string_view digits) {
  if (digits.size() != 2 * sizeof(T)) return std::nullopt;
  ElementBits<T> bits{};
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), bits, 16);
  if (error != std::errc() || end != digits.data() + digits.size()) return std::nullopt;
  return __builtin_bit_cast(T, bits);
}

template <class T>
std::optional<T> parse(std::string_view text) {
  if (text.starts_with("0x")) return parse_bits<T>(text.substr(2));
  if constexpr (std::is_integral_v<T>) {
    return parse_integer<T>(text);
  } else {
    return parse_floating<T>(text);
  }
}

template <class T>
T load(const std::byte* element) {
  T value;
  std::memcpy(&value, element, sizeof value);
  return value;
}

}  // namespace

std::string element_text(DType dtype, const std::byte* element) {
  return dispatch(dtype, [&]<class T>(TypeTag<T>) -> std::string {
    if constexpr (std::is_integral_v<T>) {
      return std::to_string(load<T>(element));
    } else {
      return floating_text(load<T>(element));
    }
  });
}

std::string element_bits(DType dtype, const std::byte* element) {
  return dispatch(dtype, [&]<class T>(TypeTag<T>) -> std::string {
    const auto bits = load<ElementBits<T>>(element);
    std::string text = "0x";
    for (int shift = static_cast<int>(sizeof(T)) * 8 - 4; shift >= 0; shift -= 4) {
      text.push_back("0123456789abcdef"[(bits >> shift) & 15]);
    }
    return text;
  });
}

bool parse_element(DType dtype, std::string_view text, std::byte* element) {
  return dispatch(dtype, [&]<class T>(TypeTag<T>) {
    const std::optional<T> value = parse<T>(text);
    if (value) std::memcpy(element, &*value, sizeof *value);
    return value.has_value();
  });
}

}  // namespace lockstep
