// The engine of the simulated devices: what runs when, and what is found.

#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "engine.hpp"
#include "intervals.hpp"
#include "kernel.hpp"

namespace lockstep::devices {
namespace {

// Appends a letter when it runs.
class Letter : public Work {
 public:
  Letter(std::string& log, char letter) : log_(log), letter_(letter) {}
  Progress advance() override {
    log_ += letter_;
    return Progress::done;
  }

 protected:
  std::string& log_;
  char letter_;
};

// One half of a pair that runs when both halves have had their turn.
struct Pair {
  NodeRef nodes[2];
  bool arrived[2] = {};
};
class Half : public Letter {
 public:
  Half(std::string& log, char letter, Pair& pair, int side)
      : Letter(log, letter), pair_(pair), side_(side) {}

  Progress advance() override {
    pair_.arrived[side_] = true;
    return pair_.arrived[1 - side_] ? Letter::advance() : Progress::blocked;
  }
  std::vector<NodeRef> wants() const override { return {pair_.nodes[0], pair_.nodes[1]}; }
  std::string awaited() const override { return "the other half"; }
  void abandon(const std::string& reason) override { log_ += "[" + reason + "]"; }

 private:
  Pair& pair_;
  int side_;
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

TEST(Devices, what_is_left_in_destroyed_streams_runs_late_and_does_not_pile_up) {
  Engine& engine = Engine::instance();
  std::string log;
  for (char letter = 'a'; letter <= 't'; ++letter) {
    void* const stream = engine.create_stream(0, false, 0);
    enqueue(engine.find_stream(stream), log, letter);
    EXPECT_EQ(engine.destroy_stream(stream, {"test"}), Status::success);
  }
  EXPECT_EQ(log, "abcd");
  EXPECT_EQ(engine.synchronize_device(0, {"test"}), Status::success);
  EXPECT_EQ(log, "abcdefghijklmnopqrst");
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
  Pair pair;
  const StreamRef one = new_stream(0);
  const StreamRef two = new_stream(1);
  enqueue(two, log, 'p');
  pair.nodes[0] = engine.enqueue(one, {"test"}, {}, std::make_unique<Half>(log, 'a', pair, 0)).node;
  pair.nodes[1] = engine.enqueue(two, {"test"}, {}, std::make_unique<Half>(log, 'b', pair, 1)).node;
  EXPECT_EQ(engine.synchronize(one, {"test"}), Status::success);
  EXPECT_EQ(log, "pba");
}

TEST(Devices, what_can_never_complete_is_given_up_and_named) {
  Engine& engine = Engine::instance();
  std::string log;
  Pair pair;
  const StreamRef stream = new_stream(3);
  pair.nodes[0] =
      engine.enqueue(stream, {"half", "rank 0 of 2"}, {}, std::make_unique<Half>(log, 'a', pair, 0))
          .node;
  testing::internal::CaptureStderr();
  EXPECT_EQ(engine.synchronize(stream, {"test"}), Status::launch_failure);
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_NE(
      said.find("half by rank 0 of 2 on " + engine.describe(stream) + " waits for the other half"),
      std::string::npos)
      << said;
  EXPECT_EQ(take_findings(), 1);
  EXPECT_EQ(log, "[it could never complete]");
  // The error stays with the device, and with no other.
  EXPECT_EQ(engine.device_error(3), Status::launch_failure);
  EXPECT_EQ(engine.device_error(0), Status::success);
}

TEST(Devices, a_pair_orders_what_comes_after_it) {
  Engine& engine = Engine::instance();
  std::string log;
  Pair pair;
  const StreamRef one = new_stream(0);
  const StreamRef two = new_stream(0);
  void* memory = nullptr;
  ASSERT_EQ(engine.allocate(MemoryKind::device, 0, 64, {"test"}, &memory), Status::success);
  const std::vector<Access> written = {{memory, 64, Touch::write, "memory"}};
  class Meeting : public Half {
   public:
    Meeting(std::string& log, char letter, Pair& pair, int side)
        : Half(log, letter, pair, side), pair_(pair) {}
    Progress advance() override {
      const Progress progress = Half::advance();
      if (progress == Progress::done) Engine::instance().meet({pair_.nodes[0], pair_.nodes[1]});
      return progress;
    }

   private:
    Pair& pair_;
  };
  engine.enqueue(one, {"first"}, written, std::make_unique<Letter>(log, 'w'));
  pair.nodes[0] =
      engine.enqueue(one, {"pair"}, {}, std::make_unique<Meeting>(log, 'a', pair, 0)).node;
  pair.nodes[1] =
      engine.enqueue(two, {"pair"}, {}, std::make_unique<Meeting>(log, 'b', pair, 1)).node;
  engine.enqueue(two, {"second"}, written, std::make_unique<Letter>(log, 'w'));
  EXPECT_EQ(engine.synchronize(two, {"test"}), Status::success);
  EXPECT_EQ(take_findings(), 0);
  // Without it they are unordered.
  const StreamRef three = new_stream(0);
  engine.enqueue(one, {"third"}, written, std::make_unique<Letter>(log, 'w'));
  engine.enqueue(three, {"fourth"}, written, std::make_unique<Letter>(log, 'w'));
  testing::internal::CaptureStderr();
  engine.synchronize(one, {"test"});
  engine.synchronize(three, {"test"});
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find("the other: third on"), std::string::npos) << said;
  EXPECT_EQ(take_findings(), 1);
}

TEST(Devices, a_loop_of_the_simulation_runs_in_the_place_of_a_kernel) {
  Engine& engine = Engine::instance();
  void* const handle = engine.create_stream(2, false, 0);
  void* memory = nullptr;
  ASSERT_EQ(engine.allocate(MemoryKind::device, 2, 400, {"test"}, &memory), Status::success);
  int sum = 0;
  EXPECT_EQ(launch(handle, {"fill"}, {{memory, 400, Touch::write, "out"}},
                   [&] { std::memset(engine.view(memory), 1, 400); }),
            Status::success);
  EXPECT_EQ(launch(handle, {"sum"}, {{memory, 400, Touch::read, "x"}},
                   [&] {
                     const auto* x = static_cast<const std::uint8_t*>(engine.view(memory));
                     for (int i = 0; i < 400; ++i) sum += x[i];
                   }),
            Status::success);
  EXPECT_EQ(sum, 0);
  EXPECT_EQ(engine.synchronize(engine.find_stream(handle), {"test"}), Status::success);
  EXPECT_EQ(sum, 400);
  // Of the wrong device it is refused.
  testing::internal::CaptureStderr();
  EXPECT_EQ(
      launch(engine.create_stream(1, false, 0), {"sum"}, {{memory, 400, Touch::read, "x"}}, [] {}),
      Status::invalid_value);
  EXPECT_NE(testing::internal::GetCapturedStderr().find("wrong-device"), std::string::npos);
  EXPECT_EQ(take_findings(), 1);
}

TEST(Devices, unwritten_memory_reads_as_a_nan_of_every_width) {
  Engine& engine = Engine::instance();
  void* memory = nullptr;
  ASSERT_EQ(engine.allocate(MemoryKind::pinned, 0, 64, {"test"}, &memory), Status::success);
  double wide;
  float narrow;
  std::memcpy(&wide, memory, sizeof wide);
  std::memcpy(&narrow, static_cast<char*>(memory) + 12, sizeof narrow);
  EXPECT_TRUE(std::isnan(wide));
  EXPECT_TRUE(std::isnan(narrow));
  std::uint16_t half;
  std::memcpy(&half, static_cast<char*>(memory) + 62, sizeof half);
  EXPECT_EQ(half & 0x7ff0, 0x7ff0);  // a NaN as f16 and as bf16
  EXPECT_NE(half & 0x000f, 0);
  EXPECT_EQ(engine.release(memory, true, {"test"}), Status::success);
}

TEST(Intervals, gaps_are_what_was_not_added) {
  Intervals set;
  set.add(10, 20);
  set.add(30, 40);
  using Gaps = std::vector<std::pair<std::size_t, std::size_t>>;
  EXPECT_EQ(set.gaps(0, 50), (Gaps{{0, 10}, {20, 30}, {40, 50}}));
  EXPECT_EQ(set.gaps(12, 18), Gaps{});
  EXPECT_EQ(set.gaps(15, 35), (Gaps{{20, 30}}));
  set.add(20, 30);
  EXPECT_EQ(set.gaps(10, 40), Gaps{});
  set.add(5, 45);
  EXPECT_EQ(set.gaps(0, 50), (Gaps{{0, 5}, {45, 50}}));
  EXPECT_EQ(set.gaps(45, 45), Gaps{});
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
  EXPECT_DEATH(*static_cast<volatile char*>(memory) = 1, "device-memory-on-host");
  EXPECT_EQ(engine.release(memory, false, {"test"}), Status::success);
  EXPECT_FALSE(engine.pointer_info(memory).has_value());
}

}  // namespace
}  // namespace lockstep::devices
