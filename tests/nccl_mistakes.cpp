// Small NCCL programs, each with one classic mistake, and the same programs without it. Host code
// like that of any NCCL program: it knows nothing of the simulation that it is run on.
//
//   nccl-mistakes NAME       with the mistake; goes on after errors, as careless programs do
//   nccl-mistakes --right    all of them, put right; exits 1 if a call fails or a result is wrong
//   nccl-mistakes --list     their names
#include "nccl_mistakes.hpp"

#include <cstring>

int main(int count_of_arguments, char** arguments) {
  if (count_of_arguments == 5 && std::strcmp(arguments[1], "--rank-1") == 0) {
    mistaken = std::strcmp(arguments[4], "mistaken") == 0;
    return be_rank_1(arguments[2], arguments[3]);
  }
  const std::string what = count_of_arguments > 1 ? arguments[1] : "--list";
  for (const std::span<const Program> programs :
       {mistakes_in_calls(), mistakes_in_communicators(), mistakes_of_processes()}) {
    for (const Program& program : programs) {
      if (what == "--list") {
        std::printf("%s\n", program.name);
      } else if (what == "--right") {
        std::printf("%s\n", program.name);
        program.run();
      } else if (what == program.name) {
        mistaken = true;
        program.run();
        return 0;
      }
    }
  }
  return what == "--right" ? (failures == 0 ? 0 : 1) : what == "--list" ? 0 : 2;
}
