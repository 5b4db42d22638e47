#include "spoiling.hpp"

#include <algorithm>

namespace lockstep::zoo {

Fault spoiling(Concerns concerns, Spoil spoil) {
  return [=](Rank& rank, const Call& call) {
    Answer answer = rank.right(call);
    if (concerns(call.operation)) spoil(rank, call, answer);
    return answer;
  };
}

Fault passing(Concerns concerns, std::function<void(Rank&, Call&)> change) {
  return [=](Rank& rank, const Call& call) {
    Call changed = call;
    if (concerns(call.operation)) change(rank, changed);
    return rank.right(changed);
  };
}

Fault adding(std::function<double(DType, std::span<const double>)> add) {
  return spoiling(is_sum, [=](Rank& rank, const Call& call, Answer& answer) {
    if (rank.size() == 1) return;
    const std::span<const Call> calls = rank.everybody();
    const bool scattered = call.operation == Operation::reduce_scatter_sum;
    const std::int64_t first = scattered ? rank.rank() * answer.value.elements() : 0;
    std::vector<double> addends(calls.size());
    for (std::int64_t i = 0; i < answer.value.elements(); ++i) {
      std::ranges::transform(calls, addends.begin(),
                             [&](const Call& other) { return number(other.x, first + i); });
      set_number(answer.value, i, add(call.x.dtype(), addends));
    }
  });
}

Tensor joined(std::span<const Tensor> parts) {
  std::vector<std::byte> bytes;
  std::int64_t rows = 0;
  for (const Tensor& part : parts) {
    bytes.insert(bytes.end(), part.bytes().begin(), part.bytes().end());
    rows += part.rows();
  }
  return Tensor::from_bytes(parts[0].dtype(), parts[0].shape().with_rows(rows), bytes);
}

std::vector<Tensor> divided(const Tensor& x, std::span<const std::int64_t> rows) {
  std::vector<Tensor> parts;
  std::int64_t begin = 0;
  for (std::int64_t count : rows) {
    parts.push_back(x.slice_rows(begin, begin + count));
    begin += count;
  }
  return parts;
}

std::vector<Tensor> divided(const Tensor& x, int count) {
  const std::vector<std::int64_t> rows(static_cast<std::size_t>(count), x.rows() / count);
  return divided(x, rows);
}

Tensor copied(const Tensor& x) {
  return Tensor::from_bytes(x.dtype(), x.shape(), x.bytes());
}

Tensor zeros_like(const Tensor& x) {
  return Tensor::zeros(x.dtype(), x.shape());
}

void overwrite(const Tensor& held, const Tensor& with) {
  const auto bytes = static_cast<std::size_t>(std::min(held.size_bytes(), with.size_bytes()));
  if (bytes > 0) std::memcpy(const_cast<std::byte*>(held.data()), with.data(), bytes);
}

void replace_from(Tensor& x, std::int64_t begin, const Tensor& with) {
  if (begin >= x.size_bytes()) return;
  const auto from = static_cast<std::size_t>(begin);
  std::ranges::copy(with.bytes().subspan(from), x.mutable_bytes().subspan(from).begin());
}

double number(const Tensor& x, std::int64_t i) {
  return dispatch(x.dtype(), [&]<class T>(TypeTag<T>) {
    const T value = x.values<T>()[static_cast<std::size_t>(i)];
    if constexpr (std::is_same_v<T, f16> || std::is_same_v<T, bf16>) {
      return to_double(value);
    } else {
      return static_cast<double>(value);
    }
  });
}

void set_number(Tensor& x, std::int64_t i, double value) {
  dispatch(x.dtype(), [&]<class T>(TypeTag<T>) {
    T& element = x.mutable_values<T>()[static_cast<std::size_t>(i)];
    if constexpr (std::is_same_v<T, f16>) {
      element = to_f16(value);
    } else if constexpr (std::is_same_v<T, bf16>) {
      element = to_bf16(value);
    } else {
      element = static_cast<T>(value);
    }
  });
}

double rounded(DType dtype, double value) {
  switch (dtype) {
    case DType::f16:
      return to_double(to_f16(value));
    case DType::bf16:
      return to_double(to_bf16(value));
    case DType::f32:
      return static_cast<double>(static_cast<float>(value));
    default:
      return value;
  }
}

}  // namespace lockstep::zoo
