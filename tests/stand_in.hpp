// A rank's end of the world that is right but for what a derived class gets wrong.
#pragma once

#include <memory>
#include <span>

#include <lockstep/kit/subject.hpp>

namespace lockstep::kit {

class StandIn : public Subject {
 public:
  explicit StandIn(Subject& right) : right_(right) {}

  int rank() const override { return right_.rank(); }
  int world_size() const override { return right_.world_size(); }

  FloatTensor all_gather_float(const FloatTensor& x) override { return right_.all_gather_float(x); }
  IntTensor all_gather_int(const IntTensor& x) override { return right_.all_gather_int(x); }
  FloatTensor reduce_scatter_sum(const FloatTensor& x) override {
    return right_.reduce_scatter_sum(x);
  }
  FloatTensor all_reduce_sum(const FloatTensor& x) override { return right_.all_reduce_sum(x); }
  FloatTensor broadcast_float(const FloatTensor& x, std::int64_t root) override {
    return right_.broadcast_float(x, root);
  }
  VariableTensorExchange<FloatTensor> all_to_all_v_float(
      const FloatTensor& x, std::span<const std::int64_t> send_counts) override {
    return right_.all_to_all_v_float(x, send_counts);
  }
  VariableTensorExchange<IntTensor> all_to_all_v_int(
      const IntTensor& x, std::span<const std::int64_t> send_counts) override {
    return right_.all_to_all_v_int(x, send_counts);
  }
  std::unique_ptr<Subject> group(std::span<const int>) override { return nullptr; }

 protected:
  Subject& right_;
};

}  // namespace lockstep::kit
