#include <lockstep/kit/check.hpp>

#include <cstdio>
#include <cstdlib>
#include <memory>

#include <lockstep/kit/case_file.hpp>
#include <lockstep/kit/program_oracle.hpp>

#include "watchdog.hpp"
#include "whole_file.hpp"

namespace lockstep::kit {
namespace {

std::string read_whole_file(const std::string& path) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rb"),
                                                             std::fclose);
  if (!file) throw Error("cannot read " + path);
  std::string text;
  char block[4096];
  for (std::size_t read; (read = std::fread(block, 1, sizeof block, file.get())) > 0;) {
    text.append(block, read);
  }
  return text;
}

// In the options' directory.
std::string file_name(const CheckOptions& options, const std::string& backend,
                      const std::string& property, std::uint64_t index) {
  return "lockstep-" + backend + "-" + property + "-seed" + std::to_string(options.verify.seed) +
         "-" + std::to_string(index) + ".json";
}

// Says what hangs and leaves the case behind, since nothing else will.
class HangReporter final : public VerifyObserver {
 public:
  HangReporter(const CheckOptions& options, std::string backend)
      : options_(options),
        backend_(std::move(backend)),
        watchdog_(options.timeout, [this](const Watchdog::LastWords& words) { report(words); }) {}

  void starting(const PropertyReport& property, std::uint64_t index, const Case& c) override {
    property_ = &property;
    index_ = index;
    case_ = &c;
    watchdog_.arm(c);
  }
  void finished() override { watchdog_.disarm(); }

 private:
  void report(const Watchdog::LastWords& words) const {
    std::string where;
    try {
      const std::string name = file_name(options_, backend_, property_->name, index_);
      where = "the case is in " + write_whole_file_in(options_.directory, name, write_case(*case_));
    } catch (const std::exception& error) {
      where = error.what();
    }
    std::fprintf(stderr, "\nlockstep: backend %s %s case %llu of %s%s; %s\n", backend_.c_str(),
                 words.before.c_str(), static_cast<unsigned long long>(index_),
                 property_->name.c_str(), words.after.c_str(), where.c_str());
    std::fflush(stderr);
  }

  const CheckOptions& options_;
  const std::string backend_;
  const PropertyReport* property_ = nullptr;
  std::uint64_t index_ = 0;
  const Case* case_ = nullptr;
  Watchdog watchdog_;  // last: its thread looks at the others
};

// The case with what the backend gives in it, where that is wrong again.
Case with_received(Backend& backend, Case c) {
  Transcript received = run_case(backend, c);
  Case recorded = c;
  recorded.recorded = RecordedBackend{backend.info().name, backend.info().sum_rule};
  for (std::size_t step = 0; step < c.steps.size(); ++step) {
    recorded.steps[step].received = std::move(received[step]);
  }
  return judge_received(recorded) ? recorded : c;
}

CheckResult check_one(Backend& backend, const std::string& path) {
  const Case c = read_case(read_whole_file(path), path);
  const auto divergence = run_and_judge(backend, c);
  CheckResult result;
  result.holds = !divergence;
  result.report = path + ": ";
  result.report += divergence ? backend.info().name + " differs from the oracle (" +
                                    divergence->aspect + ")\n" + divergence->explanation + "\n"
                              : "holds\n";
  return result;
}

}  // namespace

CheckResult check(Backend& backend, const CheckOptions& options) {
  if (const char* path = std::getenv("LOCKSTEP_CASE"); path != nullptr && *path != '\0') {
    return check_one(backend, path);
  }
  const BackendInfo info = backend.info();
  HangReporter observer(options, info.name);
  const VerifyReport report = verify(backend, options.verify, &observer);
  CheckResult result;
  result.holds = report.holds();
  for (const PropertyReport& property : report.properties) {
    result.report += std::string(name(property.verdict)) + ": " + property.clause + "\n";
  }
  for (const PropertyReport& property : report.properties) {
    if (!property.counterexample) continue;
    const Counterexample& found = *property.counterexample;
    const Case recorded = with_received(backend, found.shrunk);
    const std::string path = write_whole_file_in(
        options.directory, file_name(options, info.name, property.name, found.index),
        write_case(recorded));
    result.files.push_back(path);
    result.report += "\nBroken: " + property.clause + "\n" + explain(found);
    result.report += "The case is in " + path + ".\n";
    if (recorded.recorded)
      result.report += "Judge what was received:  lockstep replay " + path + "\n";
    if (!options.library.empty()) {
      result.report +=
          "Run it again:  lockstep replay --backend " + options.library + " " + path + "\n";
    }
    result.report +=
        "Run it again in this test:  LOCKSTEP_CASE=" + path + " and the test's own command\n";
  }
  return result;
}

}  // namespace lockstep::kit
