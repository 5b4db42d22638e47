#include "explanation.hpp"

#include <cstring>

#include <lockstep/element_text.hpp>
#include <lockstep/half.hpp>

namespace lockstep::kit {
namespace {

std::string list(const std::vector<int>& ranks) {
  return counts_text(std::vector<std::int64_t>(ranks.begin(), ranks.end()));
}

}  // namespace

std::string kind_text(const Outcome& outcome) {
  switch (outcome.kind) {
    case Outcome::Kind::absent:
      return "no part in the step";
    case Outcome::Kind::value:
      return "a value";
    case Outcome::Kind::contract:
      return "a contract error (" + std::string(name(outcome.violation)) + ")";
    case Outcome::Kind::transport:
      return "a transport error";
    case Outcome::Kind::broken:
      return "an error outside the contract";
  }
  return "an unlisted outcome";
}

std::string type_text(const Tensor& x) {
  return std::string(name(x.dtype())) + " " + to_string(x.shape());
}

std::string counts_text(const std::vector<std::int64_t>& counts) {
  return to_string(Shape(std::span<const std::int64_t>(counts)));
}

std::string two_lines(const std::string& expected, const std::string& received) {
  return "\n  expected " + expected + "\n  received " + received;
}

const std::byte* element_at(const Tensor& x, std::int64_t i) {
  return x.data() + i * size_of(x.dtype());
}

std::string element_and_bits(const Tensor& x, std::int64_t i) {
  const std::byte* element = element_at(x, i);
  const std::string value = element_text(x.dtype(), element);
  const std::string bits = element_bits(x.dtype(), element);
  return value == bits ? "NaN (" + bits + ")" : value + " (" + bits + ")";
}

std::string element_place(const Shape& shape, std::int64_t i) {
  if (shape.size() < 2) return "element " + std::to_string(i);
  std::vector<std::int64_t> index(shape.size());
  std::int64_t rest = i;
  for (std::size_t axis = shape.size(); axis-- > 0;) {
    index[axis] = rest % shape[axis];
    rest /= shape[axis];
  }
  return "row " + std::to_string(index[0]) + ", element " + counts_text(index) + " (number " +
         std::to_string(i) + ")";
}

bool is_nan(DType dtype, const std::byte* element) {
  return dispatch(dtype, [&]<class T>(TypeTag<T>) {
    if constexpr (is_floating(*dtype_of<T>)) {
      using Format = FormatOf<T>;
      T value;
      std::memcpy(&value, element, sizeof value);
      return (to_bits(value) & static_cast<typename Format::Bits>(~Format::sign_bit)) >
             Format::infinity;
    } else {
      return false;
    }
  });
}

bool same_element(const Tensor& a, const Tensor& b, std::int64_t i) {
  return std::memcmp(element_at(a, i), element_at(b, i),
                     static_cast<std::size_t>(size_of(a.dtype()))) == 0;
}

std::optional<std::uint64_t> units_apart(const Tensor& a, const Tensor& b, std::int64_t i) {
  if (is_nan(a.dtype(), element_at(a, i)) || is_nan(b.dtype(), element_at(b, i))) {
    return std::nullopt;
  }
  return dispatch(a.dtype(), [&]<class T>(TypeTag<T>) -> std::optional<std::uint64_t> {
    if constexpr (is_floating(*dtype_of<T>)) {
      // The bits in the order of the numbers: those of negative ones count down.
      const auto order = [i](const Tensor& x) {
        using Format = FormatOf<T>;
        T value;
        std::memcpy(&value, element_at(x, i), sizeof value);
        const std::uint64_t bits = to_bits(value);
        constexpr std::uint64_t sign = Format::sign_bit;
        return (bits & sign) != 0 ? sign - 1 - (bits & (sign - 1)) : sign + bits;
      };
      const std::uint64_t x = order(a);
      const std::uint64_t y = order(b);
      return x > y ? x - y : y - x;
    } else {
      return std::nullopt;
    }
  });
}

std::string member_place(const Step& step, std::size_t index, std::size_t member) {
  std::string where = "step " + std::to_string(index) + ", " +
                      std::string(name(step.operations[member])) + ", rank " +
                      std::to_string(member);
  if (!step.group.empty()) {
    where += " of the group " + list(step.group) + " (rank " +
             std::to_string(step.world_rank(member)) + " of the world)";
  }
  return where;
}

}  // namespace lockstep::kit
