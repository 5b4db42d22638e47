#include "fold_doubtful.hpp"

#include <lockstep/exact_sum.hpp>

namespace lockstep {

template <class T>
void sum_doubtful(Addends<T> addends, std::int64_t begin, std::span<const Flag<T>> doubtful,
                  T* out) {
  const auto count = static_cast<std::int64_t>(addends.size());
  DigitAccumulator<T> total;
  for (std::size_t i = 0; i < doubtful.size(); ++i) {
    if (doubtful[i] == 0) continue;
    const std::int64_t at = begin + static_cast<std::int64_t>(i);
    const auto addend = [&](std::int64_t r) { return addends[static_cast<std::size_t>(r)][at]; };
    out[at] = long_sum<T>(count, addend, total);
  }
}

template void sum_doubtful(Addends<f16>, std::int64_t, std::span<const Flag<f16>>, f16*);
template void sum_doubtful(Addends<bf16>, std::int64_t, std::span<const Flag<bf16>>, bf16*);
template void sum_doubtful(Addends<float>, std::int64_t, std::span<const Flag<float>>, float*);
template void sum_doubtful(Addends<double>, std::int64_t, std::span<const Flag<double>>, double*);

}  // namespace lockstep
