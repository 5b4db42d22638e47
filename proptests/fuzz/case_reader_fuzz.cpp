// What the reader of case files does with any text whatever: refuse it with CaseFileError, or read
// a case that is written and read back the same. The oracle then answers the cases that are small.
//
//   CXX=clang++ meson setup build-fuzz -Dfuzz=true -Db_sanitize=address,undefined -Db_lundef=false
//   ninja -C build-fuzz proptests/fuzz/case-reader-fuzz
//   build-fuzz/proptests/fuzz/case-reader-fuzz -rss_limit_mb=512 -malloc_limit_mb=64 CORPUS
//   tests/cases
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include <lockstep/kit/case_file.hpp>
#include <lockstep/kit/judge.hpp>
#include <lockstep/kit/program_oracle.hpp>

namespace {

using lockstep::kit::Case;

[[noreturn]] void fail(const char* what, const std::string& text) {
  std::fprintf(stderr, "%s\n%s\n", what, text.c_str());
  std::abort();
}

// Gathers of gathers grow with the power of the steps; that is no fault of the reader.
bool is_small(const Case& c) {
  double elements = 1, growth = 1;
  for (const lockstep::kit::Step& step : c.steps) {
    if (step.repeat > 3) return false;
    growth *= static_cast<double>(step.members());
    for (const auto& input : step.inputs) {
      if (input && !input->from_step) elements += static_cast<double>(input->tensor.elements());
    }
  }
  return growth * elements < 1e5;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  Case c;
  try {
    c = lockstep::kit::read_case(text);
  } catch (const lockstep::kit::CaseFileError&) {
    return 0;
  }
  const std::string written = write_case(c);
  if (write_case(lockstep::kit::read_case(written)) != written)
    fail("reads back otherwise", written);
  if (!is_small(c)) return 0;
  try {
    if (judge_expected(with_expected(c))) fail("the oracle disagrees with itself", written);
    if (c.recorded) (void)judge_received(c);
  } catch (const lockstep::kit::NoSuchValue&) {
  }
  return 0;
}
