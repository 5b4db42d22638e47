#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include <lockstep/kit/corners.hpp>
#include <lockstep/kit/relations.hpp>

#include "step_values.hpp"

namespace lockstep::kit {
namespace {

struct CornerText {
  std::string_view name;
  std::string_view description;
};

constexpr CornerText texts[corner_count] = {
    {"world_of_one", "a world of one"},
    {"world_of_two", "a world of two"},
    {"prime_world", "a prime world, 3 or more"},
    {"world_of_33", "a world of 33 or more"},
    {"world_of_64", "a world of 64 or more"},
    {"zero_row_rank", "a rank without rows among others"},
    {"all_empty", "nobody has rows"},
    {"first_full_rank", "only the first rank has rows"},
    {"middle_full_rank", "only one in the middle has rows"},
    {"last_full_rank", "only the last rank has rows"},
    {"one_sender", "one sender"},
    {"one_receiver", "one receiver"},
    {"asymmetric_counts", "an asymmetric count matrix"},
    {"empty_counts_row", "a rank that sends nothing"},
    {"empty_counts_column", "a rank that receives nothing"},
    {"more_ranks_than_rows", "more ranks than rows"},
    {"first_root", "the first rank as root"},
    {"middle_root", "a rank in the middle as root"},
    {"last_root", "the last rank as root"},
    {"no_axes", "no axes"},
    {"one_axis", "one axis"},
    {"two_axes", "two axes"},
    {"three_axes", "three axes"},
    {"four_axes", "four axes"},
    {"five_axes", "five axes"},
    {"zero_trailing_axis", "a trailing axis of length zero"},
    {"slice_input", "a tensor inside a larger block"},
    {"strided_input", "a tensor with strides"},
    {"odd_length", "an odd number of elements above 8"},
    {"near_power_of_two", "one element from a power of two"},
    {"near_large_power", "the same from 64 KiB on"},
    {"beyond_64_kib", "more than 64 KiB on a rank"},
    {"megabyte", "more than a megabyte on a rank"},
    {"quiet_nan", "a quiet NaN with a payload"},
    {"signalling_nan", "a signalling NaN"},
    {"infinity", "an infinity"},
    {"negative_zero", "a negative zero"},
    {"subnormal", "a subnormal"},
    {"sum_tie", "a sum halfway between two numbers"},
    {"sum_cancellation", "a sum that cancels"},
    {"sum_overflow", "a sum that overflows"},
    {"sum_of_both_zeros", "a sum of zeros of both signs"},
    {"sum_of_both_infinities", "a sum of infinities of both signs"},
    {"beyond_2_to_24", "an integer beyond 2^24"},
    {"beyond_2_to_53", "an integer beyond 2^53"},
    {"result_fed_onward", "a result that feeds a later call"},
    {"same_shape_again", "a call like the one before it"},
    {"many_steps", "a program of more than 8 calls"},
    {"twenty_steps", "a program of 20 calls"},
    {"many_repetitions", "a call made 100 times or more"},
    {"repetitions_beyond_16_bits", "a call made 65536 times or more"},
    {"gradient", "a gradient that is asked for"},
    {"missing_upstream", "a rank without upstream gradient"},
    {"group", "a sub-communicator"},
    {"reordered_group", "a sub-communicator in another order"},
    {"group_without_rank_zero", "a sub-communicator without rank 0"},
    {"group_among_world_calls", "a sub-communicator between world calls"},
    {"broken_contract", "a broken contract"},
    {"call_after_breach", "a good call after a broken one"},
    {"missing_rank", "a rank that has left"},
    {"throwing_rank", "a rank that throws"},
    {"stuck_rank", "a rank that is stuck"},
    {"scattered_and_gathered", "a scatter that is gathered again"},
    {"exchanged_and_back", "an exchange that is sent back"},
    {"rows_split", "rows in one call and in two"},
    {"ranks_relabelled", "the same ranks in another order"},
    {"root_gathered", "a gather and a broadcast of a part"},
    {"gathered_by_exchange", "a gather and an exchange with all"},
};

// Elements looked at in each tensor.
constexpr std::int64_t few = 256;

class CornerFinder {
 public:
  CornerFinder(const Case& c, const Transcript& outcomes) : case_(c), outcomes_(outcomes) {}

  Corners find() {
    worlds();
    programs();
    for (const RelatedSteps& related : related_steps(case_)) {
      add(static_cast<Corner>(static_cast<std::size_t>(Corner::scattered_and_gathered) +
                              static_cast<std::size_t>(related.relation)));
    }
    for (std::size_t s = 0; s < case_.steps.size(); ++s) {
      const Step& step = case_.steps[s];
      communicator(step);
      extras(step);
      sizes(step);
      if (std::ranges::any_of(step.operations, is_all_to_all_v)) exchange(step);
      for (const std::optional<Input>& input : step.inputs) {
        if (!input) {
          add(Corner::missing_rank);
        } else if (input->from_step) {
          add(Corner::result_fed_onward);
        } else {
          tensor(step, input->tensor);
          add(Corner::slice_input, input->layout == MemoryLayout::slice);
          add(Corner::strided_input, input->layout == MemoryLayout::strided);
        }
      }
      for (const Departure departure : step.departures) {
        add(Corner::throwing_rank, departure == Departure::throws);
        add(Corner::stuck_rank, departure == Departure::stalls);
      }
      if (is_sum(step.operations[0])) sum(step);
      if (s > 0) after(case_.steps[s - 1], step);
      if (s < outcomes_.size()) breach(outcomes_[s]);
    }
    return found_;
  }

 private:
  void add(Corner corner, bool visited = true) {
    if (visited) found_.set(static_cast<std::size_t>(corner));
  }

  void worlds() {
    const int n = case_.world;
    add(Corner::world_of_one, n == 1);
    add(Corner::world_of_two, n == 2);
    bool prime = n > 2;
    for (int divisor = 2; divisor * divisor <= n; ++divisor) prime = prime && n % divisor != 0;
    add(Corner::prime_world, prime);
    add(Corner::world_of_33, n >= 33);
    add(Corner::world_of_64, n >= 64);
  }

  void programs() {
    add(Corner::many_steps, case_.steps.size() > 8);
    add(Corner::twenty_steps, case_.steps.size() >= 20);
    const auto of_world = [](const Step& step) { return step.group.empty(); };
    const auto first = std::ranges::find_if(case_.steps, of_world);
    const auto last = std::find_if(case_.steps.rbegin(), case_.steps.rend(), of_world);
    if (last == case_.steps.rend()) return;
    add(Corner::group_among_world_calls, !std::all_of(first, last.base(), of_world));
  }

  void extras(const Step& step) {
    add(Corner::many_repetitions, step.repeat >= 100);
    add(Corner::repetitions_beyond_16_bits, step.repeat >= 65'536);
    if (!asks_for_gradient(step)) return;
    add(Corner::gradient);
    add(Corner::missing_upstream,
        !std::ranges::all_of(step.upstream, &std::optional<Tensor>::has_value));
  }

  void communicator(const Step& step) {
    if (!step.group.empty()) {
      add(Corner::group);
      add(Corner::reordered_group, !std::ranges::is_sorted(step.group));
      add(Corner::group_without_rank_zero, std::ranges::count(step.group, 0) == 0);
    }
    const auto last = static_cast<std::int64_t>(step.members()) - 1;
    for (std::int64_t root : step.roots) {
      add(Corner::first_root, last > 0 && root == 0);
      add(Corner::middle_root, root > 0 && root < last);
      add(Corner::last_root, last > 0 && root == last);
    }
  }

  // Who has rows.
  void sizes(const Step& step) {
    std::size_t with_rows = 0, without_rows = 0, last_with_rows = 0;
    std::int64_t most_rows = 0;
    for (std::size_t member = 0; member < step.members(); ++member) {
      const std::optional<Input>& input = step.inputs[member];
      if (!input || input->from_step || input->tensor.shape().empty()) return;
      const std::int64_t rows = input->tensor.rows();
      most_rows = std::max(most_rows, rows);
      if (rows > 0) last_with_rows = member;
      ++(rows > 0 ? with_rows : without_rows);
    }
    add(Corner::zero_row_rank, with_rows > 0 && without_rows > 0);
    add(Corner::all_empty, with_rows == 0);
    if (with_rows == 1 && without_rows > 0) {
      add(last_with_rows == 0              ? Corner::first_full_rank
          : last_with_rows == without_rows ? Corner::last_full_rank
                                           : Corner::middle_full_rank);
    }
    add(Corner::more_ranks_than_rows,
        most_rows > 0 && most_rows < static_cast<std::int64_t>(step.members()));
  }

  void exchange(const Step& step) {
    const std::size_t n = step.members();
    for (const std::optional<Input>& input : step.inputs) {
      if (!input || input->send_counts.size() != n) return;
    }
    const auto count = [&](std::size_t s, std::size_t d) { return step.inputs[s]->send_counts[d]; };
    std::size_t senders = 0, receivers = 0;
    for (std::size_t a = 0; a < n; ++a) {
      bool sends = false, receives = false;
      for (std::size_t b = 0; b < n; ++b) {
        sends = sends || count(a, b) > 0;
        receives = receives || count(b, a) > 0;
        add(Corner::asymmetric_counts, count(a, b) != count(b, a));
      }
      senders += sends ? 1 : 0;
      receivers += receives ? 1 : 0;
    }
    if (n < 2 || senders == 0) return;
    add(Corner::one_sender, senders == 1);
    add(Corner::one_receiver, receivers == 1);
    add(Corner::empty_counts_row, senders < n);
    add(Corner::empty_counts_column, receivers < n);
  }

  void tensor(const Step& step, const Tensor& tensor) {
    const std::size_t axes = tensor.shape().size();
    if (axes <= 5) {
      add(static_cast<Corner>(static_cast<std::size_t>(Corner::no_axes) + axes));
    }
    if (axes > 1 && !is_all_to_all_v(step.operations[0])) {
      add(Corner::zero_trailing_axis, std::ranges::count(tensor.shape().trailing(), 0) > 0);
    }
    const auto elements = static_cast<std::uint64_t>(tensor.elements());
    add(Corner::odd_length, elements > 8 && elements % 2 == 1);
    if (elements >= 63 &&
        (std::has_single_bit(elements - 1) || std::has_single_bit(elements + 1))) {
      add(Corner::near_power_of_two);
      add(Corner::near_large_power, tensor.size_bytes() > 64 * 1024 - 16);
    }
    add(Corner::beyond_64_kib, tensor.size_bytes() > 64 * 1024);
    add(Corner::megabyte, tensor.size_bytes() > 1000 * 1000);
    dispatch(tensor.dtype(), [&](auto tag) {
      for (const auto value :
           tensor.values<typename decltype(tag)::type>().first(examined(tensor))) {
        element(value);
      }
    });
  }

  static std::size_t examined(const Tensor& tensor) {
    return static_cast<std::size_t>(std::min(few, tensor.elements()));
  }

  template <class T>
  void element(T value) {
    if constexpr (is_floating(*dtype_of<T>)) {
      using Format = FormatOf<T>;
      const auto bits = to_bits(value);
      const auto magnitude = static_cast<typename Format::Bits>(bits & ~Format::sign_bit);
      if (magnitude > Format::infinity) {
        const bool quiet = (magnitude & Format::quiet_bit) != 0;
        add(quiet ? Corner::quiet_nan : Corner::signalling_nan);
      }
      add(Corner::infinity, magnitude == Format::infinity);
      add(Corner::negative_zero, bits == Format::sign_bit);
      add(Corner::subnormal, magnitude != 0 && magnitude <= Format::fraction_mask);
    } else if constexpr (sizeof(T) >= 4) {
      const auto wide = static_cast<std::int64_t>(value);
      const auto magnitude =
          wide < 0 ? -static_cast<std::uint64_t>(wide) : static_cast<std::uint64_t>(wide);
      add(Corner::beyond_2_to_24, magnitude > std::uint64_t{1} << 24);
      add(Corner::beyond_2_to_53, magnitude > std::uint64_t{1} << 53);
    }
  }

  // Sums in double, which is enough to recognize the corners of the narrower formats; for f64 a tie
  // and a cancellation are recognized where the sum of two is.
  void sum(const Step& step) {
    const Tensor* first = nullptr;
    for (const std::optional<Input>& input : step.inputs) {
      if (!input || input->from_step) return;
      if (first == nullptr) first = &input->tensor;
      if (input->tensor.dtype() != first->dtype() || input->tensor.shape() != first->shape())
        return;
    }
    dispatch(first->dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      if constexpr (is_floating(*dtype_of<T>)) {
        for (std::size_t i = 0; i < examined(*first); ++i) sum_element<T>(step, i);
      }
    });
  }

  template <class T>
  void sum_element(const Step& step, std::size_t i) {
    using Format = FormatOf<T>;
    // Long double has 64 significant bits on x86, so that a tie of two f64 shows as well.
    long double sum = 0, largest = 0;
    bool finite = true, zeros = true, positive = false, negative = false;
    for (const std::optional<Input>& input : step.inputs) {
      const T value = input->tensor.values<T>()[i];
      long double wide;
      if constexpr (std::is_same_v<T, f16> || std::is_same_v<T, bf16>) {
        wide = to_double(value);
      } else {
        wide = value;
      }
      if (std::isnan(wide)) return;
      if (wide == 0 || std::isinf(wide)) (std::signbit(wide) ? negative : positive) = true;
      zeros = zeros && wide == 0;
      finite = finite && std::isfinite(wide);
      sum += wide;
      largest = std::max(largest, std::fabs(wide));
    }
    add(Corner::sum_of_both_zeros, zeros && positive && negative);
    add(Corner::sum_of_both_infinities, !finite && std::isnan(sum));
    if (!finite || largest == 0) return;
    const long double most =
        std::ldexp(2.0L - std::ldexp(1.0L, -Format::fraction_bits), Format::highest_bit);
    add(Corner::sum_overflow, std::fabs(sum) > most);
    add(Corner::sum_cancellation, std::fabs(sum) < std::ldexp(largest, -Format::fraction_bits / 2));
    int exponent;
    const long double scaled = std::ldexp(std::frexp(std::fabs(sum), &exponent), Format::precision);
    add(Corner::sum_tie,
        scaled - std::floor(scaled) == 0.5L && exponent > Format::lowest_bit + Format::precision);
  }

  void after(const Step& before, const Step& step) {
    if (before.group != step.group || before.operations != step.operations) return;
    bool same = true;
    for (std::size_t m = 0; m < step.members(); ++m) {
      const auto& a = before.inputs[m];
      const auto& b = step.inputs[m];
      same = same && a && b && !a->from_step && !b->from_step &&
             a->tensor.shape() == b->tensor.shape() && a->tensor.dtype() == b->tensor.dtype();
    }
    add(Corner::same_shape_again, same);
  }

  void breach(const std::vector<Outcome>& outcomes) {
    const auto any = [&](Outcome::Kind kind) {
      return std::ranges::count(outcomes, kind, &Outcome::kind) > 0;
    };
    const bool broken = any(Outcome::Kind::contract);
    add(Corner::broken_contract, broken);
    add(Corner::call_after_breach, breached_ && !broken && any(Outcome::Kind::value));
    breached_ = breached_ || broken;
  }

  const Case& case_;
  const Transcript& outcomes_;
  Corners found_;
  bool breached_ = false;
};

}  // namespace

std::string_view name(Corner corner) {
  return texts[static_cast<std::size_t>(corner)].name;
}
std::string_view description(Corner corner) {
  return texts[static_cast<std::size_t>(corner)].description;
}

Corners corners(const Case& c, const Transcript& outcomes) {
  return CornerFinder(c, outcomes).find();
}

}  // namespace lockstep::kit
