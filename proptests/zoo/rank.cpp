#include "rank.hpp"

#include <algorithm>
#include <thread>

#include <lockstep/error.hpp>

#include "gradient_over.hpp"

namespace lockstep::zoo {
namespace {

Tensor deep_copy(const Tensor& x) {
  return Tensor::from_bytes(x.dtype(), x.shape(), x.bytes());
}

template <class T>
Answer answer(VariableTensorExchange<T> exchange) {
  return {std::move(exchange.value), std::move(exchange.receive_counts)};
}

Answer made(const sim::Communicator& c, const Call& call) {
  switch (call.operation) {
    case Operation::all_gather_float:
      return {c.all_gather_float(FloatTensor(call.x)), {}};
    case Operation::all_gather_int:
      return {c.all_gather_int(IntTensor(call.x)), {}};
    case Operation::reduce_scatter_sum:
      return {c.reduce_scatter_sum(FloatTensor(call.x)), {}};
    case Operation::all_reduce_sum:
      return {c.all_reduce_sum(FloatTensor(call.x)), {}};
    case Operation::broadcast_float:
      return {c.broadcast_float(FloatTensor(call.x), call.root), {}};
    case Operation::all_to_all_v_float:
      return answer(c.all_to_all_v_float(FloatTensor(call.x), call.send_counts));
    case Operation::all_to_all_v_int:
      return answer(c.all_to_all_v_int(IntTensor(call.x), call.send_counts));
    case Operation::split:
      break;
  }
  throw InvalidArgument("no operation on tensors");
}

}  // namespace

std::shared_ptr<Board> Boards::of(bool is_world, const std::vector<int>& ranks) {
  std::lock_guard lock(mutex_);
  std::shared_ptr<Board>& board = boards_[{is_world, ranks}];
  if (!board) board = std::make_shared<Board>(ranks.size());
  return board;
}

void Patience::begin_case() {
  std::lock_guard lock(mutex_);
  deadline_ = Clock::now() + limit_;
  exhausted_ = false;
}

void Patience::exhaust() {
  Clock::time_point deadline;
  {
    std::lock_guard lock(mutex_);
    deadline = deadline_;
    exhausted_ = true;
  }
  std::this_thread::sleep_until(deadline);
  throw Error("the call hangs: it had not returned after " + std::to_string(limit_.count()) +
              " ms, when the kit gave it up");
}

bool Patience::exhausted() const {
  std::lock_guard lock(mutex_);
  return exhausted_;
}

Rank::Rank(sim::Communicator right, bool is_world, std::vector<int> world_ranks, SumRule rule,
           std::shared_ptr<Boards> boards, std::shared_ptr<Memory> everywhere, Patience& patience)
    : right_(std::move(right)),
      is_world_(is_world),
      world_ranks_(std::move(world_ranks)),
      rule_(rule),
      boards_(std::move(boards)),
      board_(boards_->of(is_world_, world_ranks_)),
      everywhere_(std::move(everywhere)),
      patience_(patience) {}

Answer Rank::right(const Call& call) {
  Call own = call;
  own.x = deep_copy(call.x);
  // On a finished communicator calls are no meeting any more, and others may still read the board.
  if (!finished_) board_->post(rank(), rights_++, own);
  try {
    Answer answer = made(right_, own);
    answer.value = deep_copy(answer.value);
    return answer;
  } catch (const TransportError&) {
    finished_ = true;
    throw;
  }
}

Answer Rank::had_they_passed(std::span<const Call> calls, SumRule rule) const {
  std::vector<reference::Call> theirs;
  for (const Call& call : calls) {
    theirs.push_back({call.operation, &call.x, call.root, call.send_counts});
  }
  std::vector<Answer> answers(calls.size());
  if (const auto breach = reference::evaluate(theirs, rule, answers)) {
    throw InvalidArgument("a fault made calls that do not fit together: " + breach->explanation);
  }
  Answer& own = answers[static_cast<std::size_t>(rank())];
  own.value = deep_copy(own.value);
  return std::move(own);
}

Tensor Rank::right_gradient(const GradientCall& call) {
  GradientCall own = call;
  own.result.value = deep_copy(call.result.value);
  if (own.upstream) own.upstream = deep_copy(*call.upstream);
  return deep_copy(gradient_over(right_, own));
}

Tensor Rank::agreed_upstream(const GradientCall& call) {
  std::optional<FloatTensor> upstream;
  if (call.upstream) upstream = FloatTensor(deep_copy(*call.upstream));
  return differentiation::agreed_upstream(right_, call.forward.operation,
                                          FloatTensor(call.result.value), upstream);
}

std::vector<Tensor> Rank::everybodys(const Tensor& x) {
  const Tensor flat = deep_copy(x).reshape(Shape{1, x.elements()});
  const Tensor all = right_.all_gather_float(FloatTensor(flat));
  std::vector<Tensor> by_rank;
  for (int rank = 0; rank < size(); ++rank) {
    by_rank.push_back(deep_copy(all.slice_rows(rank, rank + 1)).reshape(x.shape()));
  }
  return by_rank;
}

std::vector<std::vector<std::int64_t>> Rank::tell_all(std::span<const std::int64_t> integers) {
  return differentiation::HostIntegers<sim::Communicator>::gather(right_, integers);
}

bool Rank::anybody(bool says) {
  const std::int64_t own[] = {says ? 1 : 0};
  const auto all = tell_all(own);
  return std::ranges::any_of(all, [](const auto& of_rank) { return of_rank[0] != 0; });
}

std::shared_ptr<Rank> Rank::group(const std::vector<int>& ranks) const {
  return std::make_shared<Rank>(right_.group(ranks), false, ranks, rule_, boards_, everywhere_,
                                patience_);
}

void Rank::remember(const Call& call, const Answer& answer) {
  for (Memory* memory : {&here_, everywhere_.get()}) {
    ++memory->calls;
    memory->breached = false;
    memory->call = call;
    memory->answer = answer;
  }
}

void Rank::remember_gradient(const Tensor& gradient) {
  for (Memory* memory : {&here_, everywhere_.get()}) memory->gradient = gradient;
}

void Rank::remember_breach() {
  for (Memory* memory : {&here_, everywhere_.get()}) {
    ++memory->calls;
    memory->breached = true;
  }
}

void Rank::remember_loss() {
  for (Memory* memory : {&here_, everywhere_.get()}) memory->lost = true;
}

}  // namespace lockstep::zoo
