// Element types. The lists are closed: four floating dtypes, four integer dtypes, nothing else.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <optional>
#include <string_view>

#include <lockstep/half.hpp>

namespace lockstep {

enum class DType : std::uint8_t { f16, bf16, f32, f64, u8, u32, i32, i64 };

inline constexpr DType all_dtypes[] = {DType::f16, DType::bf16, DType::f32, DType::f64,
                                       DType::u8,  DType::u32,  DType::i32, DType::i64};
inline constexpr DType floating_dtypes[] = {DType::f16, DType::bf16, DType::f32, DType::f64};
inline constexpr DType integer_dtypes[] = {DType::u8, DType::u32, DType::i32, DType::i64};

// True for the eight listed dtypes; a DType made from a stray number is not one of them.
constexpr bool is_listed(DType dtype) { return static_cast<unsigned>(dtype) <= 7; }
constexpr bool is_floating(DType dtype) { return dtype <= DType::f64; }
constexpr bool is_integer(DType dtype) { return is_listed(dtype) && !is_floating(dtype); }

// Bytes per element.
constexpr std::int64_t size_of(DType dtype) {
  constexpr std::int64_t sizes[] = {2, 2, 4, 8, 1, 4, 4, 8};
  return sizes[static_cast<int>(dtype)];
}

// "f16", "i64", ...; a stray number is "unlisted dtype".
constexpr std::string_view name(DType dtype) {
  constexpr std::string_view names[] = {"f16", "bf16", "f32", "f64", "u8", "u32", "i32", "i64"};
  return is_listed(dtype) ? names[static_cast<int>(dtype)] : "unlisted dtype";
}
std::optional<DType> dtype_named(std::string_view name);

std::ostream& operator<<(std::ostream& out, DType dtype);

// The C++ type that holds one element.
template <class T>
inline constexpr std::optional<DType> dtype_of = std::nullopt;
template <>
inline constexpr std::optional<DType> dtype_of<f16> = DType::f16;
template <>
inline constexpr std::optional<DType> dtype_of<bf16> = DType::bf16;
template <>
inline constexpr std::optional<DType> dtype_of<float> = DType::f32;
template <>
inline constexpr std::optional<DType> dtype_of<double> = DType::f64;
template <>
inline constexpr std::optional<DType> dtype_of<std::uint8_t> = DType::u8;
template <>
inline constexpr std::optional<DType> dtype_of<std::uint32_t> = DType::u32;
template <>
inline constexpr std::optional<DType> dtype_of<std::int32_t> = DType::i32;
template <>
inline constexpr std::optional<DType> dtype_of<std::int64_t> = DType::i64;

template <class T>
concept Element = dtype_of<T>.has_value();

template <class T>
struct TypeTag {
  using type = T;
};

// Calls `function(TypeTag<T>{})` with the element type of `dtype`.
template <class Function>
decltype(auto) dispatch(DType dtype, Function&& function) {
  switch (dtype) {
    case DType::f16: return function(TypeTag<f16>{});
    case DType::bf16: return function(TypeTag<bf16>{});
    case DType::f32: return function(TypeTag<float>{});
    case DType::f64: return function(TypeTag<double>{});
    case DType::u8: return function(TypeTag<std::uint8_t>{});
    case DType::u32: return function(TypeTag<std::uint32_t>{});
    case DType::i32: return function(TypeTag<std::int32_t>{});
    case DType::i64: return function(TypeTag<std::int64_t>{});
  }
  __builtin_unreachable();  // a tensor never holds an unlisted dtype
}

}  // namespace lockstep
