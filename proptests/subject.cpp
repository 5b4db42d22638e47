// What a rank's end of a backend can do by the calls of the contract alone: the library's own
// gradients and scopes.
#include <ostream>

#include <lockstep/kit/subject.hpp>

namespace lockstep::kit {
namespace {

// A subject as a communicator of the contract, on host tensors.
class HostRanks {
 public:
  using float_tensor = FloatTensor;
  using int_tensor = IntTensor;

  // The subject must outlive it.
  explicit HostRanks(Subject& subject) : subject_(&subject, [](Subject*) {}) {}

  int world_size() const { return subject_->world_size(); }
  int rank() const { return subject_->rank(); }
  std::string name() const { return subject_->name(); }
  std::nullptr_t autodiff_context() const { return nullptr; }

  FloatTensor all_gather_float(const FloatTensor& x) const { return subject_->all_gather_float(x); }
  IntTensor all_gather_int(const IntTensor& x) const { return subject_->all_gather_int(x); }
  FloatTensor reduce_scatter_sum(const FloatTensor& x) const {
    return subject_->reduce_scatter_sum(x);
  }
  FloatTensor all_reduce_sum(const FloatTensor& x) const { return subject_->all_reduce_sum(x); }
  FloatTensor broadcast_float(const FloatTensor& x, std::int64_t root) const {
    return subject_->broadcast_float(x, root);
  }
  VariableTensorExchange<FloatTensor> all_to_all_v_float(
      const FloatTensor& x, std::span<const std::int64_t> send_counts) const {
    return subject_->all_to_all_v_float(x, send_counts);
  }
  VariableTensorExchange<IntTensor> all_to_all_v_int(
      const IntTensor& x, std::span<const std::int64_t> send_counts) const {
    return subject_->all_to_all_v_int(x, send_counts);
  }

  HostRanks group(std::span<const int> ranks) const {
    return HostRanks(std::shared_ptr<Subject>(subject_->group(ranks)));
  }

  friend std::ostream& operator<<(std::ostream& out, const HostRanks& ranks) {
    return out << ranks.name();
  }

 private:
  explicit HostRanks(std::shared_ptr<Subject> subject) : subject_(std::move(subject)) {
    if (subject_ == nullptr) throw Error("communicators of chosen ranks are not offered");
  }

  std::shared_ptr<Subject> subject_;
};

static_assert(VariableTensorCollective<HostRanks>);

}  // namespace

std::string Subject::name() const {
  return "a communicator of " + std::to_string(world_size()) + " ranks";
}

FloatTensor Subject::all_gather_gradient(const FloatTensor& result,
                                         const std::optional<FloatTensor>& upstream) {
  return differentiation::all_gather_gradient(HostRanks(*this), result, upstream);
}

FloatTensor Subject::reduce_scatter_gradient(const FloatTensor& result,
                                             const std::optional<FloatTensor>& upstream) {
  return differentiation::reduce_scatter_gradient(HostRanks(*this), result, upstream);
}

FloatTensor Subject::all_reduce_gradient(const FloatTensor& result,
                                         const std::optional<FloatTensor>& upstream) {
  return differentiation::all_reduce_gradient(HostRanks(*this), result, upstream);
}

FloatTensor Subject::broadcast_gradient(const FloatTensor& result, std::int64_t root,
                                        const std::optional<FloatTensor>& upstream) {
  return differentiation::broadcast_gradient(HostRanks(*this), result, root, upstream);
}

FloatTensor Subject::all_to_all_v_gradient(const VariableTensorExchange<FloatTensor>& result,
                                           const std::optional<FloatTensor>& upstream) {
  return differentiation::all_to_all_v_gradient(HostRanks(*this), result, upstream);
}

std::unique_ptr<SubjectWindow> Subject::window() {
  return std::make_unique<ScopeWindow<HostRanks, HostTransfer<HostRanks>>>(HostRanks(*this));
}

FloatTensor Subject::all_gather_int_gradient(const IntTensor&, const std::optional<FloatTensor>&) {
  differentiation::all_gather_int_gradient(HostRanks(*this));
}

FloatTensor Subject::all_to_all_v_int_gradient(const VariableTensorExchange<IntTensor>&,
                                               const std::optional<FloatTensor>&) {
  differentiation::all_to_all_v_int_gradient(HostRanks(*this));
}

}  // namespace lockstep::kit
