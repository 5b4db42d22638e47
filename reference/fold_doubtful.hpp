// What the vector loops of a fold leave over: the elements whose fast sum is not certified.
#pragma once

#include <cstdint>
#include <span>
#include <type_traits>

#include <lockstep/half.hpp>

#include "addends.hpp"

namespace lockstep {

// As wide as the lanes an element is summed in, so that a loop over elements vectorises.
template <class T>
using Flag = std::conditional_t<sizeof(T) == 8, std::uint64_t, std::uint32_t>;

// out[begin + i] = the exact sum of the addends' elements begin + i, for each i with doubtful[i] !=
// 0. Integer code, compiled once for every instruction set, which could not speed it up.
template <class T>
void sum_doubtful(Addends<T> addends, std::int64_t begin, std::span<const Flag<T>> doubtful,
                  T* out);

}  // namespace lockstep
