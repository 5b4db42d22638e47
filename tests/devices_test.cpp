// The engine of the simulated devices: what runs when, and what is found.

#include <gtest/gtest.h>

#include <unistd.h>

#include <atomic>
#include <cstring>
#include <thread>

#include "engine.hpp"

namespace lockstep::devices {
namespace {

// Appends a letter when it runs, and can be made to wait for another one.
class Letter : public Work {
 public:
  Letter(std::string& log, char letter, NodeRef* needs = nullptr, Letter** other = nullptr)
      : log_(log), letter_(letter), needs_(needs), other_(other) {}

  Progress advance() override {
    arrived_ = true;
    if (other_ != nullptr && (*other_ == nullptr || !(*other_)->arrived_)) return Progress::blocked;
    log_ += letter_;
    return Progress::done;
  }
  std::vector<NodeRef> wants() const override {
    return needs_ == nullptr ? std::vector<NodeRef>{} : std::vector<NodeRef>{*needs_};
  }
  std::string awaited() const override { return "the other half"; }
  void abandon(const std::string& reason) override { log_ += "[" + reason + "]"; }

 private:
  std::string& log_;
  char letter_;
  NodeRef* needs_;
  Letter** other_;
  bool arrived_ = false;
};

NodeRef enqueue(const StreamRef& stream, std::string& log, char letter) {
  return Engine::instance()
      .enqueue(stream, {"test"}, {}, std::make_unique<Letter>(log, letter))
      .node;
}

StreamRef new_stream(int device = 0, bool blocking = false) {
  Engine& engine = Engine::instance();
  return engine.find_stream(engine.create_stream(device, blocking, 0));
}

TEST(Devices, work_runs_when_it_is_waited_for_and_no_more_of_it) {
  Engine& engine = Engine::instance();
  std::string log;
  const StreamRef one = new_stream();
  const StreamRef two = new_stream();
  enqueue(one, log, 'a');
  enqueue(two, log, 'x');
  const NodeRef b = enqueue(one, log, 'b');
  enqueue(one, log, 'c');
  EXPECT_EQ(log, "");
  {
    Lock lock = engine.lock();
    EXPECT_EQ(engine.wait(lock, b, {"test"}), Status::success);
  }
  EXPECT_EQ(log, "ab");
  EXPECT_EQ(engine.synchronize(one, {"test"}), Status::success);
  EXPECT_EQ(log, "abc");
  EXPECT_EQ(engine.synchronize_device(0, {"test"}), Status::success);
  EXPECT_EQ(log, "abcx");
}

TEST(Devices, an_event_orders_two_streams) {
  Engine& engine = Engine::instance();
  std::string log;
  const StreamRef one = new_stream();
  const StreamRef two = new_stream();
  const EventRef event = engine.find_event(engine.create_event(0, false));
  enqueue(one, log, 'a');
  engine.record(event, one, {"test"});
  enqueue(one, log, 'b');
  enqueue(two, log, 'x');
  engine.wait_for(two, event, {"test"});
  enqueue(two, log, 'y');
  engine.synchronize(two, {"test"});
  EXPECT_EQ(log, "xay");
  engine.synchronize(one, {"test"});
}

TEST(Devices, a_later_record_does_not_move_an_earlier_wait) {
  Engine& engine = Engine::instance();
  std::string log;
  const StreamRef one = new_stream();
  const StreamRef two = new_stream();
  const EventRef event = engine.find_event(engine.create_event(0, false));
  enqueue(one, log, 'a');
  engine.record(event, one, {"test"});
  engine.wait_for(two, event, {"test"});
  enqueue(one, log, 'b');
  engine.record(event, one, {"test"});
  engine.synchronize(two, {"test"});
  EXPECT_EQ(log, "a");
  engine.synchronize(event, {"test"});
  EXPECT_EQ(log, "ab");
}

TEST(Devices, the_legacy_stream_and_blocking_streams_wait_for_each_other) {
  Engine& engine = Engine::instance();
  std::string log;
  const StreamRef legacy = engine.find_stream(nullptr);
  const StreamRef blocking = new_stream(0, true);
  const StreamRef apart = new_stream(0, false);
  enqueue(apart, log, 'z');
  enqueue(blocking, log, 'a');
  enqueue(legacy, log, 'b');
  enqueue(blocking, log, 'c');
  enqueue(legacy, log, 'd');
  engine.synchronize(blocking, {"test"});
  EXPECT_EQ(log, "abc");
  engine.synchronize(legacy, {"test"});
  EXPECT_EQ(log, "abcd");
  engine.synchronize(apart, {"test"});
  EXPECT_EQ(log, "abcdz");
}

TEST(Devices, a_blocked_work_pulls_its_peer_along) {
  Engine& engine = Engine::instance();
  std::string log;
  const StreamRef one = new_stream(0);
  const StreamRef two = new_stream(1);
  NodeRef first, second;
  auto a = std::make_unique<Letter>(log, 'a', &second, nullptr);
  Letter* left = a.get();
  Letter* right = nullptr;
  a = std::make_unique<Letter>(log, 'a', &second, &right);
  left = a.get();
  auto b = std::make_unique<Letter>(log, 'b', &first, &left);
  right = b.get();
  enqueue(two, log, 'p');
  first = engine.enqueue(one, {"test"}, {}, std::move(a)).node;
  second = engine.enqueue(two, {"test"}, {}, std::move(b)).node;
  EXPECT_EQ(engine.synchronize(one, {"test"}), Status::success);
  EXPECT_EQ(log, "pba");
}

TEST(Devices, polls_are_refused_at_first_and_make_progress_then) {
  Engine& engine = Engine::instance();
  std::string log;
  const StreamRef stream = new_stream();
  enqueue(stream, log, 'a');
  enqueue(stream, log, 'b');
  EXPECT_EQ(engine.query(stream), Status::not_ready);
  EXPECT_EQ(log, "");
  int polls = 1;
  while (engine.query(stream) == Status::not_ready) ++polls;
  EXPECT_EQ(log, "ab");
  EXPECT_LT(polls, 10);
}

class HostFunction : public Work {
 public:
  explicit HostFunction(std::atomic<bool>& ran) : ran_(ran) {}
  Progress advance() override {
    inside = Engine::instance().in_host_function();
    ran_.store(true);
    ran_.notify_all();
    return Progress::done;
  }
  bool tells_host() const override { return true; }
  static inline bool inside = false;

 private:
  std::atomic<bool>& ran_;
};

TEST(Devices, a_host_function_runs_although_the_program_waits_elsewhere) {
  Engine& engine = Engine::instance();
  const StreamRef stream = new_stream();
  std::atomic<bool> ran{false};
  engine.enqueue(stream, {"test"}, {}, std::make_unique<HostFunction>(ran));
  ran.wait(false);
  EXPECT_TRUE(HostFunction::inside);
  EXPECT_EQ(engine.synchronize(stream, {"test"}), Status::success);
}

TEST(Devices, memory_is_not_where_the_program_could_touch_it) {
  Engine& engine = Engine::instance();
  void* memory = nullptr;
  ASSERT_EQ(engine.allocate(MemoryKind::device, 1, 1000, {"test"}, &memory), Status::success);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(memory) % 256, 0u);
  EXPECT_NE(engine.view(memory), memory);
  const auto info = engine.pointer_info(static_cast<char*>(memory) + 999);
  ASSERT_TRUE(info.has_value());
  EXPECT_EQ(info->device, 1);
  EXPECT_EQ(info->base, memory);
  EXPECT_EQ(info->bytes, 1000u);
  EXPECT_FALSE(engine.pointer_info(static_cast<char*>(memory) + 1000).has_value());
  EXPECT_EXIT(*static_cast<volatile char*>(memory) = 1, testing::KilledBySignal(SIGSEGV), "");
  EXPECT_EQ(engine.release(memory, false, {"test"}), Status::success);
  EXPECT_FALSE(engine.pointer_info(memory).has_value());
}

}  // namespace
}  // namespace lockstep::devices
