// Smaller and plainer tensors.

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <numeric>

#include "result_types.hpp"
#include "shrink_moves.hpp"
#include "step_values.hpp"

namespace lockstep::kit {
namespace {

// Single elements are tried one by one only in cases that already are this small.
constexpr std::int64_t few_elements = 48;

enum class End : bool { front, back };

// `length` entries of an axis, from one of its ends.
Tensor narrowed(const Tensor& tensor, std::size_t axis, std::int64_t length, End kept) {
  std::vector<std::int64_t> axes(tensor.shape().axes().begin(), tensor.shape().axes().end());
  std::vector<std::int64_t> strides(axes.size(), 1);
  for (std::size_t i = axes.size(); i-- > 1;)
    strides[i - 1] = strides[i] * std::max<std::int64_t>(axes[i], 1);
  const std::int64_t skipped = kept == End::front ? 0 : axes[axis] - length;
  const std::byte* start = tensor.data();
  axes[axis] = length;
  const Shape shape{std::span<const std::int64_t>(axes)};
  if (tensor.elements() == 0 || length == 0) return Tensor::zeros(tensor.dtype(), shape);
  start += skipped * strides[axis] * size_of(tensor.dtype());
  return Tensor::from_strided(tensor.dtype(), shape, strides, start);
}

std::optional<Tensor> without_axis(const Tensor& tensor, std::size_t axis, End kept) {
  if (tensor.shape()[axis] == 0) return std::nullopt;
  const Tensor single = narrowed(tensor, axis, 1, kept);
  std::vector<std::int64_t> axes(single.shape().axes().begin(), single.shape().axes().end());
  axes.erase(axes.begin() + static_cast<long>(axis));
  return single.reshape(Shape(std::span<const std::int64_t>(axes)));
}

// Nothing for an axis so long that the product could not be a length.
std::optional<Tensor> joined_axis(const Tensor& tensor, std::size_t axis) {
  std::vector<std::int64_t> axes(tensor.shape().axes().begin(), tensor.shape().axes().end());
  const std::optional<std::int64_t> length = checked_multiply(axes[axis - 1], axes[axis]);
  if (!length) return std::nullopt;
  axes[axis - 1] = *length;
  axes.erase(axes.begin() + static_cast<long>(axis));
  return tensor.reshape(Shape(std::span<const std::int64_t>(axes)));
}

// The case with every tensor of one step put through `change(member, tensor)`, an optional result.
// Nothing when a tensor cannot be changed.
template <class Change>
std::optional<Case> with_tensors(const Case& c, std::size_t step, Change change) {
  Case changed = c;
  for (std::size_t member = 0; member < changed.steps[step].members(); ++member) {
    std::optional<Input>& input = changed.steps[step].inputs[member];
    if (!input || input->from_step) continue;
    std::optional<Tensor> tensor = change(member, input->tensor);
    if (!tensor) return std::nullopt;
    input->tensor = std::move(*tensor);
  }
  return changed;
}

std::int64_t longest(const Step& step, std::size_t axis) {
  std::int64_t length = 0;
  for (const std::optional<Input>& input : step.inputs) {
    if (input && !input->from_step && input->tensor.shape().size() > axis) {
      length = std::max(length, input->tensor.shape()[axis]);
    }
  }
  return length;
}

// Every member's axis is `less` shorter, so that lengths that differ go on to differ.
void add_shortening(const Origin& origin, std::size_t step, std::size_t axis, std::int64_t less,
                    Moves& moves) {
  if (less <= 0) return;
  for (const End kept : {End::front, End::back}) {
    moves.push_back([=] {
      return with_tensors(
          *origin, step, [&](std::size_t, const Tensor& tensor) -> std::optional<Tensor> {
            if (tensor.shape().size() <= axis) return tensor;
            const std::int64_t length = std::max<std::int64_t>(0, tensor.shape()[axis] - less);
            return narrowed(tensor, axis, length, kept);
          });
    });
  }
}

// Every step's axis, where it has one, is shortened alike: what fails in two calls that are alike may
// need them to stay so. `shorter` gives the new length, counted for a reduce-scatter's rows in shares.
template <class Shorter>
void add_joint_shortening(const Origin& origin, std::size_t axis, Shorter shorter, Moves& moves) {
  for (const End kept : {End::front, End::back}) {
    moves.push_back([=]() -> std::optional<Case> {
      std::optional<Case> c = *origin;
      for (std::size_t s = 0; s < c->steps.size(); ++s) {
        const Operation operation = origin->steps[s].operations[0];
        if (axis == 0 && is_all_to_all_v(operation)) continue;
        const bool shares = axis == 0 && operation == Operation::reduce_scatter_sum;
        const auto unit = shares ? static_cast<std::int64_t>(origin->steps[s].members()) : 1;
        c = with_tensors(*c, s, [&](std::size_t, const Tensor& tensor) -> std::optional<Tensor> {
          if (tensor.shape().size() <= axis || tensor.shape()[axis] % unit != 0) return tensor;
          const std::int64_t length = tensor.shape()[axis] / unit;
          return narrowed(tensor, axis, std::min(length, shorter(length)) * unit, kept);
        });
      }
      return c;
    });
  }
}

void add_joint_moves(const Origin& origin, Moves& moves) {
  std::int64_t most = 0;
  std::size_t axes = 0;
  for (const Step& step : origin->steps) {
    for (std::size_t axis = 0; longest(step, axis) > 0; ++axis) {
      most = std::max(most, longest(step, axis));
      axes = std::max(axes, axis + 1);
    }
  }
  for (std::size_t axis = 0; axis < axes; ++axis) {
    add_joint_shortening(origin, axis, [](std::int64_t) { return std::int64_t{0}; }, moves);
    add_joint_shortening(origin, axis, [](std::int64_t) { return std::int64_t{1}; }, moves);
    for (std::int64_t less = most / 2; less > 0; less /= 2) {
      add_joint_shortening(
          origin, axis,
          [less](std::int64_t length) { return std::max<std::int64_t>(1, length - less); }, moves);
    }
  }
}

// --- Values

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

// Small whole numbers, different in neighbouring elements.
Tensor plain_tensor(const TensorType& type) {
  Tensor tensor = Tensor::uninitialized(type.dtype, type.shape);
  std::byte* elements = tensor.mutable_bytes().data();
  for (std::int64_t i = 0; i < tensor.elements(); ++i) {
    write_small(type.dtype, 1 + i % 255, elements + i * size_of(type.dtype));
  }
  return tensor;
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

// --- Upstream gradients that follow their results

const std::byte* element_of(const Tensor& x, std::int64_t i) {
  return x.data() + i * size_of(x.dtype());
}

// The places of elements, least plain ones first. Of all members together, since it may be their
// sum that matters; none where their numbers of elements differ.
std::vector<std::int64_t> least_plain_places(std::span<const std::optional<Tensor>> tensors) {
  std::vector<std::int64_t> weights;
  for (const std::optional<Tensor>& one : tensors) {
    if (!one) continue;
    if (weights.empty()) weights.resize(static_cast<std::size_t>(one->elements()));
    if (static_cast<std::size_t>(one->elements()) != weights.size()) return {};
    for (std::int64_t i = 0; i < one->elements(); ++i) {
      weights[static_cast<std::size_t>(i)] += complexity(one->dtype(), element_of(*one, i));
    }
  }
  std::vector<std::int64_t> places(weights.size());
  std::iota(places.begin(), places.end(), std::int64_t{0});
  std::ranges::stable_sort(places, std::ranges::greater(), [&](std::int64_t place) {
    return weights[static_cast<std::size_t>(place)];
  });
  return places;
}

// Some elements, in their order, in a tensor of another type; plain ones where that is no smaller or
// of a dtype that they cannot have. The least plain places may have been chosen `together`.
Tensor refitted(const Tensor& tensor, const TensorType& type, Upstreams::Keep keep,
                const std::vector<std::int64_t>& together) {
  const std::int64_t wanted = type.shape.elements().value_or(0);
  const bool convertible = type.dtype == tensor.dtype() || type.dtype == DType::f32;
  if (wanted > tensor.elements() || !convertible) return plain_tensor(type);
  std::vector<std::int64_t> places = together;
  if (keep != Upstreams::Keep::least_plain) {
    places.resize(static_cast<std::size_t>(wanted));
    std::iota(places.begin(), places.end(),
              keep == Upstreams::Keep::front ? 0 : tensor.elements() - wanted);
  } else if (together.empty()) {
    const std::optional<Tensor> alone[] = {tensor};
    places = least_plain_places(alone);
  }
  places.resize(static_cast<std::size_t>(wanted));
  std::ranges::sort(places);
  Tensor kept = Tensor::uninitialized(tensor.dtype(), Shape{wanted});
  std::byte* out = wanted == 0 ? nullptr : kept.mutable_bytes().data();
  for (std::int64_t place : places) {
    out = std::copy_n(element_of(tensor, place), size_of(tensor.dtype()), out);
  }
  return converted(kept, type.dtype).reshape(type.shape);
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

void add_shape_moves(const Origin& origin, Moves& moves) {
  if (origin->steps.size() > 1) add_joint_moves(origin, moves);
  for (std::size_t s = 0; s < origin->steps.size(); ++s) {
    const Step& step = origin->steps[s];
    const bool exchange = std::ranges::any_of(step.operations, is_all_to_all_v);
    if (exchange) {
      add_block_moves(origin, s, moves);
    } else if (const std::int64_t rows = longest(step, 0); rows > 0) {
      // The rows of a reduce-scatter stay divisible.
      const bool scatter = std::ranges::count(step.operations, Operation::reduce_scatter_sum) > 0;
      const auto unit = scatter ? static_cast<std::int64_t>(step.members()) : std::int64_t{1};
      const std::int64_t units = rows / unit;
      add_shortening(origin, s, 0, units * unit, moves);
      add_shortening(origin, s, 0, (units - 1) * unit, moves);
      // Ever smaller parts, so that a length from which on it fails is found quickly.
      for (std::int64_t less = units / 2; less > 0; less /= 2) {
        add_shortening(origin, s, 0, less * unit, moves);
      }
    }
    std::size_t most_axes = 0;
    for (const std::optional<Input>& input : step.inputs) {
      if (input && !input->from_step) most_axes = std::max(most_axes, input->tensor.shape().size());
    }
    // An axis joined with the one before it; where rows are counted, the leading one stays apart.
    for (std::size_t axis = exchange ? 2 : 1; axis < most_axes; ++axis) {
      moves.push_back([=] {
        return with_tensors(*origin, s,
                            [&](std::size_t, const Tensor& tensor) -> std::optional<Tensor> {
                              if (tensor.shape().size() <= axis) return tensor;
                              return joined_axis(tensor, axis);
                            });
      });
    }
    const bool keeps_leading = std::ranges::any_of(step.operations, needs_leading_axis);
    for (std::size_t axis = keeps_leading ? 1 : 0; axis < most_axes; ++axis) {
      for (const End kept : {End::front, End::back}) {
        moves.push_back([=] {
          return with_tensors(*origin, s,
                              [&](std::size_t, const Tensor& tensor) -> std::optional<Tensor> {
                                if (tensor.shape().size() <= axis) return tensor;
                                return without_axis(tensor, axis, kept);
                              });
        });
      }
      const std::int64_t length = longest(step, axis);
      if (axis == 0) continue;
      for (std::int64_t less : {length, length - 1, length / 2, std::int64_t{1}}) {
        add_shortening(origin, s, axis, less, moves);
      }
    }
  }
}

Upstreams::Upstreams(const Case& origin) : all_fit_(all_upstreams_fit(origin)) {
  ResultTypes types(origin);
  for (std::size_t s = 0; s < origin.steps.size(); ++s) {
    const Step& step = origin.steps[s];
    if (!asks_for_gradient(step) || takes_integers(step.operations[0])) continue;
    const auto& results = types.of(s);
    if (!results) continue;
    results_.insert(results_.end(), results->begin(), results->end());
  }
}

bool Upstreams::refit(Case& c, Keep keep) const {
  bool changed = false;
  ResultTypes types(c);
  for (std::size_t s = 0; s < c.steps.size(); ++s) {
    Step& step = c.steps[s];
    if (!asks_for_gradient(step) || takes_integers(step.operations[0])) continue;
    const auto& results = types.of(s);
    if (!results || upstream_fits(step, *results)) continue;
    const std::vector<std::int64_t> together =
        keep == Keep::least_plain ? least_plain_places(step.upstream) : std::vector<std::int64_t>();
    for (std::size_t member = 0; member < step.members(); ++member) {
      std::optional<Tensor>& one = step.upstream[member];
      if (!one) continue;
      const TensorType type{one->dtype(), one->shape()};
      TensorType wanted = (*results)[member];
      if (type == wanted) continue;
      if (!all_fit_ && std::ranges::count(results_, type) == 0) {
        // It is unlike its result on purpose; in its dtype, where only that was so, and else in its
        // shape, which may still have as many elements.
        if (std::ranges::count(results_, type.shape, &TensorType::shape) == 0) {
          const auto as_many = [&](const TensorType& result) {
            return result.dtype == type.dtype && result.shape.elements() == type.shape.elements();
          };
          if (std::ranges::none_of(results_, as_many)) continue;
          wanted.shape = Shape{wanted.shape.elements().value_or(0), 1};
        }
        wanted.dtype = type.dtype;
      }
      if (type == wanted) continue;
      one = refitted(*one, wanted, keep, together);
      changed = true;
    }
  }
  return changed;
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
