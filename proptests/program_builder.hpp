// Writes a generated program step by step, and knows what every rank holds after each.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <vector>

#include <lockstep/kit/case.hpp>
#include <lockstep/kit/relations.hpp>
#include <lockstep/shape.hpp>

#include "dice.hpp"

namespace lockstep::kit {

class ProgramBuilder {
 public:
  ProgramBuilder(Dice& dice, int world);

  // Appends a call that fits the contract, on the whole world or on a group. Takes the results of
  // an earlier step now and then, where they fit.
  void call(Operation operation, std::vector<int> group = {});
  // Appends a call like the latest that had tensors of its own and fitted the contract: operation,
  // group, shapes and counts are the same, the elements are others. False when there is none.
  bool call_again();
  // Appends a call and those related to it; the call alone where the relation does not apply to it,
  // or would make it too large.
  void related_calls(Relation relation, std::vector<int> group = {});
  // Appends calls that break the contract in one to three ways (faults.hpp).
  void broken_call(Operation operation, std::vector<int> group = {});
  // The steps become one forward window, on tensors that are mostly fed onward.
  void open_window() { case_.window = true; }
  // All further tensors are small.
  void keep_small();
  // The latest step is called so often; less often where it moves much.
  void repeat(std::int64_t times);
  // Asks for the gradient of the latest step, which nobody has left before: upstream gradients that
  // some members may lack, and that now and then are unlike their results.
  void differentiate();
  // The next step is the first that these ranks do not enter; it is on the whole world.
  void leave(std::span<const int> ranks, Departure how = Departure::returns);

  // Ranks that are still there.
  std::vector<int> present() const;
  const Case& program() const { return case_; }
  Case take() { return std::move(case_); }

 private:
  // What a rank got back from a step.
  struct Result {
    DType dtype;
    Shape shape;
  };

  int members(const std::vector<int>& group) const;
  int world_rank(const std::vector<int>& group, int member) const;
  Step fresh_call(Operation operation, const std::vector<int>& group);
  std::optional<Step> fed_call(Operation operation, const std::vector<int>& group);
  // Elements for a call: one tensor per member, of these shapes.
  std::vector<Tensor> fresh_elements(Operation operation, DType dtype,
                                     const std::vector<Shape>& shapes);
  // What else a relation needs to know of calls that begin with this one (related_calls.hpp).
  std::vector<std::int64_t> draw_parameter(Relation relation, const Step& base);
  void draw_layouts(Step& step);
  void append(Step step);
  // The results of a step without a breach, per member; nothing when it has one.
  std::optional<std::vector<Result>> results_of(const Step& step) const;

  Dice& dice_;
  std::int64_t budget_;
  Case case_;
  std::vector<std::vector<std::optional<Result>>> results_;  // [step][world rank]
  std::vector<bool> gone_;                                   // per world rank
  std::map<int, Departure> leaving_;                         // in the next step
  std::set<std::vector<int>> lost_;                          // groups that met a missing rank
};

// A root of a communicator of `ranks`: the last and the first are where mistakes show.
std::int64_t draw_root(Dice& dice, int ranks);

}  // namespace lockstep::kit
