// What explanations are made of: tensors, elements and places in words, and how elements compare.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <lockstep/kit/case.hpp>

namespace lockstep::kit {

// "a contract error (dtype)".
std::string kind_text(const Outcome& outcome);
// "f32 [2, 3]".
std::string type_text(const Tensor& x);
// "[1, 0, 2]".
std::string counts_text(const std::vector<std::int64_t>& counts);
// Two more lines, for what should be and what is.
std::string two_lines(const std::string& expected, const std::string& received);
// "2.5 (0x40200000)".
std::string element_and_bits(const Tensor& x, std::int64_t i);
// "row 1, element [1, 0] (number 2)", or for tensors of one axis "element 2".
std::string element_place(const Shape& shape, std::int64_t i);
// "step 1, all_gather_int, rank 0 of the group [2, 0] (rank 2 of the world)".
std::string member_place(const Step& step, std::size_t index, std::size_t member);

const std::byte* element_at(const Tensor& x, std::int64_t i);
bool is_nan(DType dtype, const std::byte* element);
// Of two tensors of the same dtype.
bool same_element(const Tensor& a, const Tensor& b, std::int64_t i);
// How many numbers of the dtype lie between two elements, counting one of them; nothing when one is
// a NaN, and for integers. The two zeros are one apart.
std::optional<std::uint64_t> units_apart(const Tensor& a, const Tensor& b, std::int64_t i);

}  // namespace lockstep::kit
