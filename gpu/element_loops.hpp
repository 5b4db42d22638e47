// What elements.hpp promises, as Thrust loops. Included once for each kind of device, which comes
// with the execution policy.
#pragma once

#include <cstdint>

#include <thrust/for_each.h>
#include <thrust/iterator/counting_iterator.h>

#include <lockstep/exact_sum.hpp>
#include <lockstep/host_device.hpp>
#include <lockstep/quotient.hpp>
#include <lockstep/rank_order_sum.hpp>

#include "elements.hpp"

namespace lockstep::gpu {

static_assert(arithmetic_is_ieee, "sums of floating numbers need IEEE arithmetic: no -ffast-math");

// Element i of every addend.
template <class T>
struct AddendsAt {
  const T* own;
  std::int64_t own_rank;
  const T* blocks;
  std::int64_t stride;  // in elements
  std::int64_t i;

  LOCKSTEP_HOST_DEVICE T operator()(std::int64_t rank) const {
    return rank == own_rank ? own[i] : blocks[rank * stride + i];
  }
};

template <class T>
struct TypedAddends {
  explicit TypedAddends(const DeviceAddends& addends)
      : own(reinterpret_cast<const T*>(addends.own)),
        own_rank(addends.own_rank),
        blocks(reinterpret_cast<const T*>(addends.blocks)),
        stride(addends.stride / static_cast<std::int64_t>(sizeof(T))),
        count(addends.count) {}

  LOCKSTEP_HOST_DEVICE AddendsAt<T> at(std::int64_t i) const {
    return {own, own_rank, blocks, stride, i};
  }

  const T* own;
  std::int64_t own_rank;
  const T* blocks;
  std::int64_t stride;
  std::int64_t count;
};

template <class T>
struct ExactSumAt {
  TypedAddends<T> addends;
  T* out;

  LOCKSTEP_HOST_DEVICE void operator()(std::int64_t i) const {
    out[i] = exact_sum<T>(addends.count, addends.at(i));
  }
};

template <class T>
struct RankOrderSumAt {
  TypedAddends<T> addends;
  T* out;

  LOCKSTEP_HOST_DEVICE void operator()(std::int64_t i) const {
    const AddendsAt<T> addend = addends.at(i);
    if (addends.count == 1) {
      out[i] = addend(0);
      return;
    }
    RankOrderSum<T> sum;
    for (std::int64_t rank = 0; rank < addends.count; ++rank) sum.add(addend(rank));
    out[i] = sum.rounded();
  }
};

template <class T>
struct QuotientAt {
  const T* x;
  double divisor;
  T* out;

  LOCKSTEP_HOST_DEVICE void operator()(std::int64_t i) const { out[i] = quotient(x[i], divisor); }
};

// `Word` holds an element, whatever it means.
template <class Word>
struct SwappedAt {
  const Word* x;
  std::int64_t left, right, inner;
  Word* out;

  LOCKSTEP_HOST_DEVICE void operator()(std::int64_t i) const {
    const std::int64_t inside = i % inner;
    const std::int64_t l = i / inner % left;
    const std::int64_t r = i / inner / left % right;
    const std::int64_t outside = i / inner / left / right;
    out[i] = x[((outside * left + l) * right + r) * inner + inside];
  }
};

template <class Policy, class Function>
void for_elements(const Policy& policy, std::int64_t elements, const Function& function) {
  if (elements > 0) {
    thrust::for_each_n(policy, thrust::counting_iterator<std::int64_t>(0), elements, function);
  }
}

// Calls `function(TypeTag<T>{})` with the type of a floating dtype.
template <class Function>
void dispatch_floating(DType dtype, const Function& function) {
  switch (dtype) {
    case DType::f16:
      return function(TypeTag<f16>{});
    case DType::bf16:
      return function(TypeTag<bf16>{});
    case DType::f32:
      return function(TypeTag<float>{});
    default:
      return function(TypeTag<double>{});
  }
}

template <class Policy>
void carry_out(const Policy& policy, const Fold& work) {
  dispatch_floating(work.dtype, [&]<class T>(TypeTag<T>) {
    const TypedAddends<T> addends(work.addends);
    T* out = reinterpret_cast<T*>(work.out);
    if (work.rule == SumRule::exact) {
      for_elements(policy, work.elements, ExactSumAt<T>{addends, out});
    } else {
      for_elements(policy, work.elements, RankOrderSumAt<T>{addends, out});
    }
  });
}

template <class Policy>
void carry_out(const Policy& policy, const Divide& work) {
  dispatch_floating(work.dtype, [&]<class T>(TypeTag<T>) {
    for_elements(policy, work.elements,
                 QuotientAt<T>{reinterpret_cast<const T*>(work.x),
                               static_cast<double>(work.divisor), reinterpret_cast<T*>(work.out)});
  });
}

template <class Policy>
void carry_out(const Policy& policy, const SwapAxes& work) {
  const auto swap = [&]<class Word>(TypeTag<Word>) {
    for_elements(policy, work.outer * work.left * work.right * work.inner,
                 SwappedAt<Word>{reinterpret_cast<const Word*>(work.x), work.left, work.right,
                                 work.inner, reinterpret_cast<Word*>(work.out)});
  };
  switch (work.element_bytes) {
    case 2:
      return swap(TypeTag<std::uint16_t>{});
    case 4:
      return swap(TypeTag<std::uint32_t>{});
    default:
      return swap(TypeTag<std::uint64_t>{});
  }
}

}  // namespace lockstep::gpu
