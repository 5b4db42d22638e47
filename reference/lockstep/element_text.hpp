// Elements as text, both ways, exactly.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include <lockstep/dtype.hpp>

namespace lockstep {

// The element at `element` as text that reads back to the same bits: the shortest decimal number,
// "-0", "inf", "-inf", or for a NaN its bits as "0x7fc00000".
std::string element_text(DType dtype, const std::byte* element);

// Its bits as "0x...", two digits a byte, most significant first.
std::string element_bits(DType dtype, const std::byte* element);

// Reads text into one element, rounding a decimal number once (ties to even, beyond the range to
// infinity), and returns true; or leaves `element` as it is and returns false when the text is not an
// element: no number, an integer that does not fit its dtype, bits of another width. Accepted: what
// element_text writes, any JSON number, "nan" (positive, quiet, payload zero), and for integer
// dtypes decimal digits without fraction or exponent. "0x..." has exactly two digits a byte.
bool parse_element(DType dtype, std::string_view text, std::byte* element);

}  // namespace lockstep
