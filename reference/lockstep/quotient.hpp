// A floating element over a whole number, rounded once.
#pragma once

#include <type_traits>

#include <lockstep/half.hpp>
#include <lockstep/host_device.hpp>

namespace lockstep {

// x / divisor for a whole divisor of 1 to 2^29, rounded once to T.
//
// Rounding the quotient to a double first changes nothing: it can lie on the boundary between two
// numbers of a narrower dtype, of at most 25 significant bits, only if the true one does. They
// would be less than 2^-53 apart, relatively, but a quotient by d that is no boundary is at least
// 2^-25 / d away from one.
template <class T>
LOCKSTEP_HOST_DEVICE constexpr T quotient(T x, double divisor) {
  if constexpr (std::is_same_v<T, f16>) {
    return to_f16(to_double(x) / divisor);
  } else if constexpr (std::is_same_v<T, bf16>) {
    return to_bf16(to_double(x) / divisor);
  } else {
    return static_cast<T>(static_cast<double>(x) / divisor);
  }
}

}  // namespace lockstep
