// lockstep: verify | replay | oracle | mutants | bench | backends | simulate

#include <cerrno>
#include <cstring>
#include <functional>
#include <iostream>
#include <new>

#include <CLI/CLI.hpp>

#include <lockstep/kit/backend.hpp>
#include <lockstep/kit/case_file.hpp>
#include <lockstep/kit/program_oracle.hpp>

#include "backend_library.hpp"
#include "commands.hpp"
#include "exit_status.hpp"
#include "launch.hpp"

namespace lockstep::tool {
namespace {

constexpr const char* statuses =
    "Exit status: 0 all held, 1 a divergence, 2 bad usage or input, 3 the backend broke,\n"
    "77 the backend cannot run here.";

constexpr const char* commands = "verify, replay, oracle, mutants, bench, backends, simulate";

void describe_verify(CLI::App& app, VerifyArguments& arguments, std::function<int()>& command) {
  CLI::App* verify = app.add_subcommand("verify", "Run generated cases on backends and judge them");
  verify
      ->add_option("--backend", arguments.backends,
                   "A backend's name or library; may be repeated. All that can run here if absent")
      ->allow_extra_args(false);
  verify->add_option("--ranks", arguments.ranks, "World sizes, A..B or A");
  verify->add_option("--cases", arguments.cases, "How many cases in all")->capture_default_str();
  verify->add_option("--seed", arguments.seed,
                     "Same seed, same cases; drawn and printed if absent");
  verify->add_option("--property", arguments.properties, "Only this clause; may be repeated")
      ->allow_extra_args(false);
  verify->add_option("--json", arguments.json, "Write the report to this file as well");
  verify->add_option("--out", arguments.out, "Where the cases that broke something go")
      ->capture_default_str();
  verify->add_option("--sum-rule", arguments.sum_rule,
                     "exact, rank_order or unspecified, for backends that offer several");
  verify
      ->add_option("--timeout", arguments.timeout,
                   "Seconds after which a case counts as hanging; as many again for every 10,000 "
                   "calls of it")
      ->capture_default_str();
  verify->callback([&] { command = [&] { return verify_command(arguments); }; });
}

void describe_replay(CLI::App& app, ReplayArguments& arguments, std::function<int()>& command) {
  CLI::App* replay = app.add_subcommand("replay", "Run case files on a backend and judge them");
  replay->add_option("CASE", arguments.cases, "Case files")->required();
  replay->add_option("--backend", arguments.backend,
                     "A backend's name or library. If absent, sim; and what was recorded is judged "
                     "as it is");
  replay->add_option("--sum-rule", arguments.sum_rule,
                     "exact, rank_order or unspecified, for backends that offer several");
  replay
      ->add_option("--timeout", arguments.timeout,
                   "Seconds after which a case counts as hanging; as many again for every 10,000 "
                   "calls of it")
      ->capture_default_str();
  replay->callback([&] { command = [&] { return replay_command(arguments); }; });
}

void describe_oracle(CLI::App& app, OracleArguments& arguments, std::function<int()>& command) {
  CLI::App* oracle = app.add_subcommand("oracle", "Fill in what a case must give on every rank");
  oracle
      ->add_option("CASE", arguments.file,
                   "A case file; or - for one case per line in, one per line out")
      ->capture_default_str();
  oracle->callback([&] { command = [&] { return oracle_command(arguments); }; });
}

void describe_mutants(CLI::App& app, MutantsArguments& arguments, std::function<int()>& command) {
  CLI::App* mutants =
      app.add_subcommand("mutants", "Check that every deliberately wrong backend is caught");
  mutants
      ->add_option("--cases", arguments.cases,
                   "After how many cases a wrong backend counts as one that got away")
      ->capture_default_str();
  mutants->add_option("--seed", arguments.seed,
                      "Same seed, same cases; drawn and printed if absent");
  mutants
      ->add_option("--mutant", arguments.mutants,
                   "Only this one, and how it was caught; may be repeated")
      ->allow_extra_args(false);
  mutants->add_option("--json", arguments.json, "Write the results to this file as well");
  mutants->callback([&] { command = [&] { return mutants_command(arguments); }; });
}

void describe_bench(CLI::App& app, BenchArguments& arguments, std::function<int()>& command) {
  CLI::App* bench = app.add_subcommand("bench", "Measure how long calls take, one after the other");
  bench::Arguments& plan = arguments.plan;
  bench->add_option("--backend", arguments.backend, "A backend's name or library")
      ->capture_default_str();
  bench->add_option("--ranks", plan.ranks, "World sizes, a list of A or A..B")
      ->capture_default_str();
  bench
      ->add_option("--bytes", plan.bytes,
                   "What each rank passes, a list of sizes such as 64,4Ki,16Mi; rounded up to what "
                   "the operation can divide")
      ->capture_default_str();
  bench->add_option("--op", plan.operations, "A list of operations; all if absent");
  bench
      ->add_option("--dtype", plan.dtypes, "A list of dtypes, each for the operations that take it")
      ->capture_default_str();
  bench->add_option("--sum-rule", arguments.sum_rules,
                    "A list of exact, rank_order, unspecified; the backend's own if absent");
  bench->add_option("--data", plan.data, "Floats: normal, or adversarial (exponents far apart)")
      ->capture_default_str();
  bench->add_option("--runs", plan.runs, "How often each is measured")->capture_default_str();
  bench->add_option("--seconds", plan.seconds, "How long one run takes, about")
      ->capture_default_str();
  bench->add_option("--json", arguments.json, "Write the results to this file as well");
  bench->add_option("--lines", arguments.lines)->group("");  // between the tool's own processes
  bench->callback([&] { command = [&] { return bench_command(arguments); }; });
}

void describe_simulate(CLI::App& app, SimulateArguments& arguments, std::function<int()>& command) {
  CLI::App* simulate = app.add_subcommand(
      "simulate", "Run a CUDA and NCCL host program on simulated devices that check it");
  simulate->add_option("--devices", arguments.devices, "How many the program finds; 8 if absent");
  simulate->add_option("--seed", arguments.seed,
                       "In which order work runs: 0 as late as the program allows (the default), "
                       "any other number another legal order");
  simulate->add_option("--memory", arguments.memory, "Of each device, such as 16Gi (the default)");
  simulate->add_option("--timeout", arguments.timeout,
                       "Seconds without progress after which waiting is given up; 30 if absent");
  simulate->add_flag("--abort", arguments.abort, "End the program at the first finding");
  simulate->add_option("--json", arguments.json, "Write the findings to this file, one per line");
  simulate->add_option("PROGRAM", arguments.program, "The program and its arguments, after --")
      ->required();
  simulate->positionals_at_end();
  simulate->footer(
      "Exit status: the program's own; 86 where that is 0 and there were findings, 2 bad usage,\n"
      "77 where this build has no simulated devices.");
  simulate->callback([&] { command = [&] { return simulate_command(arguments); }; });
}

int run(int argc, char** argv) {
  CLI::App app("Checks backends of tensor collectives against an exact oracle.", "lockstep");
  app.footer(statuses);
  VerifyArguments verify;
  ReplayArguments replay;
  OracleArguments oracle;
  MutantsArguments mutants;
  BenchArguments bench;
  SimulateArguments simulate;
  std::function<int()> command;
  describe_verify(app, verify, command);
  describe_replay(app, replay, command);
  describe_oracle(app, oracle, command);
  describe_mutants(app, mutants, command);
  describe_bench(app, bench, command);
  describe_simulate(app, simulate, command);
  std::string probed;
  CLI::App* probe = app.add_subcommand("probe")->group("");  // the tool asks itself
  probe->add_option("FILE", probed)->required();
  probe->callback([&] { command = [&] { return probe_command(probed); }; });
  app.add_subcommand("backends", "What can run here, and why not the rest")->callback([&] {
    command = backends_command;
  });
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // help was asked for
    const std::string word = argc > 1 ? argv[1] : "";
    if (app.get_subcommands().empty() && !word.empty() && word[0] != '-') {
      throw Failure(bad_usage, "there is no command '" + word + "': " + commands);
    }
    throw Failure(bad_usage, std::string(error.what()) + "\nRun with --help for more information.");
  }
  if (!command) throw Failure(bad_usage, std::string("a command is needed: ") + commands);
  return command();
}

int run_and_report(int argc, char** argv) {
  const auto say = [](const std::string& message, ExitStatus status) {
    std::cerr << "lockstep: " << message << std::endl;
    return status;
  };
  try {
    const int status = run(argc, argv);
    errno = 0;
    if (std::cout.flush()) return status;
    const std::string reason = errno == 0 ? "" : std::string(": ") + std::strerror(errno);
    return say("the output was lost, standard output cannot be written" + reason, bad_usage);
  } catch (const Failure& failure) {
    return say(failure.what(), failure.status());
  } catch (const kit::BackendBroken& error) {
    return say(std::string("the backend broke: ") + error.what(), backend_broke);
  } catch (const std::bad_alloc&) {
    return say("out of memory: the case needs more than this machine has", bad_usage);
  } catch (const Error& error) {  // a case file that is none, or a value that is not there
    return say(error.what(), bad_usage);
  } catch (const std::exception& error) {
    return say(std::string("unforeseen: ") + error.what(), backend_broke);
  }
}

}  // namespace
}  // namespace lockstep::tool

int main(int argc, char** argv) {
  lockstep::tool::remember_command(argv[0]);
  return lockstep::tool::deliver_status(lockstep::tool::run_and_report(argc, argv));
}
