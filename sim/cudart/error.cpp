// Errors: their names, and the last one of each thread.

#include <cctype>
#include <cstdlib>
#include <cstring>
#include <map>

#include "finding.hpp"
#include "runtime.hpp"

namespace lockstep::cudart {
namespace {

thread_local cudaError_t last_error = cudaSuccess;

// Errors that stay with the device until the process ends.
bool stays(cudaError_t error) {
  return error == cudaErrorIllegalAddress || error == cudaErrorLaunchFailure;
}

struct Names {
  std::map<cudaError_t, std::string> names;
  std::map<cudaError_t, std::string> sentences;

  void add(cudaError_t error, const char* name) {
    names.emplace(error, name);
    // "cudaErrorInvalidValue" reads "invalid value".
    std::string words;
    for (const char* c = name + std::strlen("cudaError"); *c != '\0'; ++c) {
      const bool upper = std::isupper(static_cast<unsigned char>(*c)) != 0;
      if (upper && !words.empty()) words += ' ';
      words += static_cast<char>(std::tolower(static_cast<unsigned char>(*c)));
    }
    sentences.emplace(error, error == cudaSuccess ? "no error" : words);
  }

  Names() {
#define ERROR(name) add(name, #name);
#include "error_names.inc"
#undef ERROR
  }
};

const Names& all() {
  static const Names& names = *new Names;
  return names;
}

}  // namespace

cudaError_t translate(Status status) {
  switch (status) {
    case Status::success:
      return cudaSuccess;
    case Status::not_ready:
      return cudaErrorNotReady;
    case Status::invalid_value:
      return cudaErrorInvalidValue;
    case Status::invalid_device:
      return cudaErrorInvalidDevice;
    case Status::invalid_handle:
      return cudaErrorInvalidResourceHandle;
    case Status::out_of_memory:
      return cudaErrorMemoryAllocation;
    case Status::illegal_address:
      return cudaErrorIllegalAddress;
    case Status::launch_failure:
      return cudaErrorLaunchFailure;
    case Status::not_permitted:
      return cudaErrorNotPermitted;
    case Status::not_supported:
      return cudaErrorNotSupported;
  }
  return cudaErrorUnknown;
}

cudaError_t keep(cudaError_t error) {
  if (error != cudaSuccess) last_error = error;
  return error;
}

cudaError_t refuse(const char* function, const char* reason) {
  devices::refuse(function, reason);
  return keep(cudaErrorNotSupported);
}

int refuse_by_name(const char* function);
int refuse_by_name(const char* function) {
  return refuse(function, "not covered by the simulated runtime; it did nothing");
}

bool permitted(const Call& call) {
  if (!Engine::instance().in_host_function()) return true;
  devices::Finding finding;
  finding.rule = "call-from-host-function";
  finding.call = call;
  finding.what = "a host function, which runs in the order of a stream, calls the runtime.";
  finding.advice = "Let it signal a thread of the program, and call from there.";
  devices::report(finding);
  return false;
}

const std::string& process_name() {
  static const std::string& name = *new std::string([]() -> std::string {
    for (const char* variable : {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID"}) {
      if (const char* rank = std::getenv(variable)) return std::string("process ") + rank;
    }
    return "";
  }());
  return name;
}

}  // namespace lockstep::cudart

using namespace lockstep::cudart;

extern "C" {

cudaError_t cudaGetLastError() {
  const cudaError_t error = last_error;
  if (!stays(error)) last_error = cudaSuccess;
  return error;
}

cudaError_t cudaPeekAtLastError() {
  return last_error;
}

const char* cudaGetErrorName(cudaError_t error) {
  const auto found = all().names.find(error);
  return found == all().names.end() ? "unrecognized error code" : found->second.c_str();
}

const char* cudaGetErrorString(cudaError_t error) {
  const auto found = all().sentences.find(error);
  return found == all().sentences.end() ? "unrecognized error code" : found->second.c_str();
}

}  // extern "C"
