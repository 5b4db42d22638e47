// Plainer elements, in dense tensors of the plainest dtypes.

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "shrink_moves.hpp"
#include "shrink_tensors.hpp"
#include "step_values.hpp"

namespace lockstep::kit {
namespace {

// Single elements are tried one by one only in cases that already are this small.
constexpr std::int64_t few_elements = 48;

// Every element through `write(index within the step, bytes)`.
template <class Write>
Tensor rewritten(const Tensor& tensor, std::int64_t& index, Write write) {
  Tensor changed = tensor;
  const std::int64_t size = size_of(tensor.dtype());
  if (changed.elements() == 0) return changed;
  std::byte* element = changed.mutable_bytes().data();
  for (std::int64_t i = 0; i < changed.elements(); ++i) write(index++, element + i * size);
  return changed;
}

// A whole number of 0 to 255, which every dtype holds.
void write_small(DType dtype, std::int64_t value, std::byte* element) {
  dispatch(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    T typed{};
    if constexpr (std::is_same_v<T, f16>) {
      typed = to_f16(static_cast<double>(value));
    } else if constexpr (std::is_same_v<T, bf16>) {
      typed = to_bf16(static_cast<double>(value));
    } else {
      typed = static_cast<T>(value);
    }
    std::memcpy(element, &typed, sizeof typed);
  });
}

std::uint64_t load_bits(DType dtype, const std::byte* element) {
  std::uint64_t bits = 0;
  static_assert(std::endian::native == std::endian::little);
  std::memcpy(&bits, element, static_cast<std::size_t>(size_of(dtype)));
  return bits;
}

// The element without the lower half of its significant bits.
void write_coarser(DType dtype, std::byte* element) {
  std::uint64_t bits = load_bits(dtype, element);
  if (bits == 0) return;
  const int low = std::countr_zero(bits);
  const int fraction = dispatch(dtype, [](auto tag) {
    using T = typename decltype(tag)::type;
    if constexpr (is_floating(*dtype_of<T>)) return FormatOf<T>::fraction_bits;
    return static_cast<int>(8 * sizeof(T));
  });
  const int cleared = std::min(fraction, (low + fraction + 1) / 2);
  bits = cleared >= 64 ? 0 : bits >> cleared << cleared;
  std::memcpy(element, &bits, static_cast<std::size_t>(size_of(dtype)));
}

// f32 and i32 for everything, or for one step.
Move conversion(const Origin& origin, std::optional<std::size_t> only) {
  return [=]() -> std::optional<Case> {
    std::optional<Case> c = *origin;
    for (std::size_t s = 0; s < origin->steps.size(); ++s) {
      if (only && s != *only) continue;
      c = with_tensors(*c, s, [](std::size_t, const Tensor& tensor) -> std::optional<Tensor> {
        return converted(tensor, is_integer(tensor.dtype()) ? DType::i32 : DType::f32);
      });
    }
    return c;
  };
}

// One step's elements through `write(dtype, index within the step, element)`.
template <class Write>
Move rewriting(const Origin& origin, std::size_t step, Write write) {
  return [=] {
    std::int64_t index = 0;
    return with_tensors(*origin, step,
                        [&](std::size_t, const Tensor& tensor) -> std::optional<Tensor> {
                          return rewritten(tensor, index, [&](std::int64_t i, std::byte* element) {
                            write(tensor.dtype(), i, element);
                          });
                        });
  };
}

// As above, the elements of its upstream gradients.
template <class Write>
Move rewriting_upstream(const Origin& origin, std::size_t step, Write write) {
  return [=]() -> std::optional<Case> {
    Case c = *origin;
    std::int64_t index = 0;
    for (std::optional<Tensor>& one : c.steps[step].upstream) {
      if (!one) continue;
      one = rewritten(*one, index,
                      [&](std::int64_t i, std::byte* element) { write(one->dtype(), i, element); });
    }
    return c;
  };
}

std::int64_t own_elements(const Step& step) {
  std::int64_t elements = 0;
  for (const std::optional<Input>& input : step.inputs) {
    if (input && !input->from_step) elements += input->tensor.elements();
  }
  return elements;
}

std::int64_t upstream_elements(const Step& step) {
  std::int64_t elements = 0;
  for (const std::optional<Tensor>& one : step.upstream) elements += one ? one->elements() : 0;
  return elements;
}

// Dense tensors in the place of others: of all, and of one at a time.
void add_layout_moves(const Origin& origin, Moves& moves) {
  const auto add = [&](auto chosen) {
    moves.push_back([=]() -> std::optional<Case> {
      Case c = *origin;
      for (std::size_t s = 0; s < c.steps.size(); ++s) {
        for (std::size_t member = 0; member < c.steps[s].members(); ++member) {
          std::optional<Input>& input = c.steps[s].inputs[member];
          if (input && chosen(s, member)) input->layout = MemoryLayout::dense;
        }
      }
      return c;
    });
  };
  add([](std::size_t, std::size_t) { return true; });
  for (std::size_t s = 0; s < origin->steps.size(); ++s) {
    for (std::size_t member = 0; member < origin->steps[s].members(); ++member) {
      const std::optional<Input>& input = origin->steps[s].inputs[member];
      if (!input || input->layout == MemoryLayout::dense) continue;
      add([=](std::size_t step, std::size_t m) { return step == s && m == member; });
    }
  }
}

}  // namespace

Tensor plain_tensor(const TensorType& type) {
  Tensor tensor = Tensor::uninitialized(type.dtype, type.shape);
  std::byte* elements = tensor.mutable_bytes().data();
  for (std::int64_t i = 0; i < tensor.elements(); ++i) {
    write_small(type.dtype, 1 + i % 255, elements + i * size_of(type.dtype));
  }
  return tensor;
}

Tensor converted(const Tensor& tensor, DType to) {
  if (tensor.dtype() == to) return tensor;
  Tensor result = Tensor::uninitialized(to, tensor.shape());
  if (tensor.elements() == 0) return result;
  std::byte* out = result.mutable_bytes().data();
  for (std::int64_t i = 0; i < tensor.elements(); ++i) {
    const std::byte* element = tensor.data() + i * size_of(tensor.dtype());
    dispatch(tensor.dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      T value;
      std::memcpy(&value, element, sizeof value);
      std::uint32_t bits = 0;
      if constexpr (std::is_same_v<T, double>) {
        bits = narrow_bits<float, double>(to_bits(value));
      } else if constexpr (is_floating(*dtype_of<T>)) {
        bits = widen_bits<float, T>(to_bits(value));
      } else {
        bits = static_cast<std::uint32_t>(value);
      }
      std::memcpy(out + i * 4, &bits, 4);
    });
  }
  return result;
}

int complexity(DType dtype, const std::byte* element) {
  const std::uint64_t bits = load_bits(dtype, element);
  if (bits == 0) return 0;
  double value = 0;
  dispatch(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    T typed;
    std::memcpy(&typed, element, sizeof typed);
    if constexpr (std::is_same_v<T, f16> || std::is_same_v<T, bf16>) {
      value = to_double(typed);
    } else {
      value = static_cast<double>(typed);
    }
  });
  if (value == 1) return 1;
  if (value >= 0 && value <= 255 && value == std::floor(value) && !std::signbit(value)) return 2;
  return 3 + 64 - std::countr_zero(bits);
}

void add_value_moves(const Origin& origin, Moves& moves) {
  add_layout_moves(origin, moves);
  moves.push_back(conversion(origin, std::nullopt));
  for (std::size_t s = 0; s < origin->steps.size(); ++s) {
    if (origin->steps.size() > 1) moves.push_back(conversion(origin, s));
    if (asks_for_gradient(origin->steps[s])) {
      moves.push_back([=]() -> std::optional<Case> {
        Case c = *origin;
        for (std::optional<Tensor>& one : c.steps[s].upstream) {
          if (one) one = plain_tensor({one->dtype(), one->shape()});
        }
        return c;
      });
    }
    const auto zero = [](DType dtype, std::int64_t, std::byte* element) {
      write_small(dtype, 0, element);
    };
    const auto distinct = [](DType dtype, std::int64_t i, std::byte* element) {
      write_small(dtype, 1 + i % 255, element);
    };
    const auto coarser = [](DType dtype, std::int64_t, std::byte* element) {
      write_coarser(dtype, element);
    };
    const auto one = [](DType dtype, std::int64_t, std::byte* element) {
      write_small(dtype, 1, element);
    };
    const auto add = [&](std::int64_t elements, const auto& rewriting_with) {
      if (elements == 0) return;
      moves.push_back(rewriting_with(zero));
      moves.push_back(rewriting_with(distinct));
      moves.push_back(rewriting_with(coarser));
      if (elements > few_elements) return;
      for (std::int64_t chosen = 0; chosen < elements; ++chosen) {
        const auto only = [chosen](auto write) {
          return [=](DType dtype, std::int64_t i, std::byte* element) {
            if (i == chosen) write(dtype, i, element);
          };
        };
        moves.push_back(rewriting_with(only(zero)));
        moves.push_back(rewriting_with(only(one)));
        moves.push_back(rewriting_with(only(distinct)));
        moves.push_back(rewriting_with(only(coarser)));
      }
    };
    add(own_elements(origin->steps[s]), [&](auto write) { return rewriting(origin, s, write); });
    add(upstream_elements(origin->steps[s]),
        [&](auto write) { return rewriting_upstream(origin, s, write); });
  }
}

}  // namespace lockstep::kit
