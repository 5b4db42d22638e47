#include "kernel.hpp"

namespace lockstep::devices {
namespace {

class Kernel : public Work {
 public:
  explicit Kernel(std::function<void()> body) : body_(std::move(body)) {}

  Progress advance() override {
    body_();
    return Progress::done;
  }
  bool unlocked() const override { return true; }

 private:
  std::function<void()> body_;
};

}  // namespace

Status launch(void* stream, const Call& call, std::vector<Access> accesses,
              std::function<void()> body) {
  Engine& engine = Engine::instance();
  const StreamRef found = engine.find_stream(stream, DefaultStream::legacy, &call);
  if (!found) return Status::invalid_handle;
  return engine.enqueue(found, call, std::move(accesses), std::make_unique<Kernel>(std::move(body)))
      .status;
}

}  // namespace lockstep::devices
