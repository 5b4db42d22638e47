// The randomness of the generator: one small counter-based engine, so that a case is a function of
// a 64-bit seed and of nothing else, on every machine and under every standard library.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep::kit {

// The finalizer of SplitMix64 (Steele, Lea and Flood, 2014): a bijection that mixes every bit.
constexpr std::uint64_t mix(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

// A seed for a named part of something that has a seed itself (FNV-1a over the name, then mixed).
constexpr std::uint64_t derive(std::uint64_t seed, std::string_view name, std::uint64_t index) {
  std::uint64_t hash = 0xcbf29ce484222325u;
  for (char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return mix(mix(seed + 0x9e3779b97f4a7c15u) ^ hash) + mix(index);
}

// SplitMix64.
class Dice {
 public:
  explicit Dice(std::uint64_t seed) : state_(seed) {}

  std::uint64_t bits() { return mix(state_ += 0x9e3779b97f4a7c15u); }

  // A number of 0 to n-1. n is at least 1. The bias of the remainder is below n / 2^64.
  std::int64_t below(std::int64_t n) {
    return static_cast<std::int64_t>(bits() % static_cast<std::uint64_t>(n));
  }
  std::size_t index(std::size_t n) { return static_cast<std::size_t>(bits() % n); }
  // A number of low to high, both included.
  std::int64_t between(std::int64_t low, std::int64_t high) { return low + below(high - low + 1); }
  // True in one of n throws.
  bool one_in(std::int64_t n) { return below(n) == 0; }

  template <class T>
  T pick(std::initializer_list<T> choices) {
    return choices.begin()[index(choices.size())];
  }
  template <class T, std::size_t n>
  const T& pick(const T (&choices)[n]) {
    return choices[index(n)];
  }
  template <class T>
  const T& pick(const std::vector<T>& choices) {
    return choices[index(choices.size())];
  }

  template <class T>
  void shuffle(std::span<T> items) {
    for (std::size_t i = items.size(); i > 1; --i) std::swap(items[i - 1], items[index(i)]);
  }

  // A random subset of 0..n-1 with at least one member, in ascending order: one number in half of
  // the throws, since faults on a single rank are the ones that hide.
  std::vector<int> some_of(int n) {
    std::vector<int> chosen;
    if (one_in(2)) return {static_cast<int>(below(n))};
    for (int i = 0; i < n; ++i) {
      if (one_in(2)) chosen.push_back(i);
    }
    if (chosen.empty()) chosen.push_back(static_cast<int>(below(n)));
    return chosen;
  }

 private:
  std::uint64_t state_;
};

}  // namespace lockstep::kit
