// Runs the tests between processes. See mpi_processes.hpp.

#include <unistd.h>

#include <iostream>
#include <sstream>
#include <string>

#include "mpi_processes.hpp"

namespace {

// Only process 0 reports progress; the others speak up when something fails.
class FailuresOnly : public ::testing::EmptyTestEventListener {
 public:
  explicit FailuresOnly(int rank) : rank_(rank) {}

 private:
  void OnTestStart(const ::testing::TestInfo& test) override {
    name_ = std::string(test.test_suite_name()) + "." + test.name();
  }
  void OnTestPartResult(const ::testing::TestPartResult& result) override {
    if (!result.failed()) return;
    std::ostringstream text;
    text << "[rank " << rank_ << "] " << name_ << "\n"
         << (result.file_name() != nullptr ? result.file_name() : "") << ":" << result.line_number()
         << ": " << result.message() << "\n";
    std::cerr << text.str() << std::flush;
  }

  int rank_;
  std::string name_;
};

}  // namespace

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  alarm(240);  // a test that hangs ends the job
  const lockstep::mpi::Environment mpi;
  lockstep::testing::environment = &mpi;
  int rank = 0;
  int size = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  if (size != lockstep::testing::ranks) {
    if (rank == 0)
      std::cerr << "this test needs " << lockstep::testing::ranks << " processes: mpirun -np 4\n";
    return 2;
  }
  ::testing::TestEventListeners& listeners = ::testing::UnitTest::GetInstance()->listeners();
  if (rank != 0) {
    delete listeners.Release(listeners.default_result_printer());
    listeners.Append(new FailuresOnly(rank));
  }
  // Every process exits with the worst result of all.
  int result = RUN_ALL_TESTS();
  MPI_Allreduce(MPI_IN_PLACE, &result, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
  return result;
}
