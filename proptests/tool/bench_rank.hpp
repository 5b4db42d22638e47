// One rank's part of a measurement.
#pragma once

#include <vector>

#include <lockstep/kit/subject.hpp>

#include "bench_measure.hpp"
#include "bench_report.hpp"

namespace lockstep::bench {

// Seconds of one call, once per run, the same on every rank: of the slowest one. Throws what the
// backend throws.
std::vector<double> measure_rank(const Cell& cell, const Method& method, int rank,
                                 kit::Subject& world);

}  // namespace lockstep::bench
