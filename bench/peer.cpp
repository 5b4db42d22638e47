#include "peer.hpp"

#include <exception>
#include <iostream>
#include <vector>

#include <CLI/CLI.hpp>

#include "bench_measure.hpp"
#include "bench_report.hpp"
#include "exit_status.hpp"
#include "files.hpp"

namespace lockstep::bench {
namespace {

// Elements of the result of a call with `elements` on each of `ranks`.
std::size_t result_elements(Operation operation, std::size_t elements, std::size_t ranks) {
  if (operation == Operation::all_gather_float) return elements * ranks;
  if (operation == Operation::reduce_scatter_sum) return elements / ranks;
  return elements;
}

std::vector<double> measure_cell(const Cell& cell, const Method& method, Peer& peer) {
  std::vector<float> send(static_cast<std::size_t>(cell.bytes_per_rank) / sizeof(float));
  fill(DType::f32, std::as_writable_bytes(std::span(send)), method.data, peer.rank(), cell.ranks);
  std::vector<float> receive(
      result_elements(cell.operation, send.size(), static_cast<std::size_t>(cell.ranks)));
  return measure(
      method,
      [&] {
        peer.call(cell.operation, send, receive);
        read_result(std::as_bytes(std::span(receive)));
      },
      [&](double seconds) { return peer.slowest(seconds); });
}

}  // namespace

int peer_main(int argc, char** argv, const std::function<void(const PeerArguments&)>& body) {
  CLI::App app("Measures another library as `lockstep bench` measures Lockstep, on f32.");
  PeerArguments arguments;
  Arguments& plan = arguments.plan;
  plan.dtypes = "f32";
  app.add_option("--ranks", plan.ranks, "The world size, where no launcher says it");
  app.add_option("--bytes", plan.bytes, "A list of sizes such as 64,16Mi")->capture_default_str();
  app.add_option("--op", plan.operations, "A list of operations; all on floats if absent");
  app.add_option("--data", plan.data, "normal or adversarial")->capture_default_str();
  app.add_option("--runs", plan.runs, "How often each is measured")->capture_default_str();
  app.add_option("--seconds", plan.seconds, "How long one run takes, about")->capture_default_str();
  app.add_option("--json", arguments.json, "Write the results to this file as well");
  try {
    app.parse(argc, argv);
    body(arguments);
    return tool::all_held;
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? tool::all_held : tool::bad_usage;
  } catch (const tool::Failure& failure) {
    std::cerr << argv[0] << ": " << failure.what() << std::endl;
    return failure.status();
  } catch (const std::exception& error) {
    std::cerr << argv[0] << ": " << error.what() << std::endl;
    return tool::backend_broke;
  }
}

void measure_peer(const std::string& name, Peer& peer, const PeerArguments& arguments) {
  Arguments asked = arguments.plan;
  asked.ranks = std::to_string(peer.ranks());
  const Plan chosen = plan(asked);
  Report report;
  for (const Cell& cell : chosen.cells) {
    if (!peer.offers(cell.operation)) continue;
    std::vector<double> seconds = measure_cell(cell, chosen.method, peer);
    const auto rule = is_sum(cell.operation) ? std::optional(SumRule::unspecified) : std::nullopt;
    report.measurements.push_back({cell, rule, name, std::move(seconds)});
  }
  if (peer.rank() != 0) return;
  report.peak_rss_bytes = peak_rss_bytes();
  std::cout << table(report) << std::flush;
  if (arguments.json) tool::write_file(*arguments.json, bench_json(report));
}

}  // namespace lockstep::bench
