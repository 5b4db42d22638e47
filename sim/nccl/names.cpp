#include "names.hpp"

#include <array>

namespace lockstep::nccl {
namespace {

struct Datatype {
  const char* name;
  std::size_t size;
  bool floating;
};

// In the order of ncclDataType_t.
constexpr std::array<Datatype, ncclNumTypes> datatypes = {{{"int8", 1, false},
                                                           {"uint8", 1, false},
                                                           {"int32", 4, false},
                                                           {"uint32", 4, false},
                                                           {"int64", 8, false},
                                                           {"uint64", 8, false},
                                                           {"float16", 2, true},
                                                           {"float32", 4, true},
                                                           {"float64", 8, true},
                                                           {"bfloat16", 2, true},
                                                           {"float8e4m3", 1, true},
                                                           {"float8e5m2", 1, true}}};

constexpr std::array<const char*, ncclNumResults> results = {
    "ncclSuccess",         "ncclUnhandledCudaError", "ncclSystemError", "ncclInternalError",
    "ncclInvalidArgument", "ncclInvalidUsage",       "ncclRemoteError", "ncclInProgress"};

}  // namespace

bool is_datatype(ncclDataType_t datatype) {
  return datatype >= 0 && datatype < ncclNumTypes;
}

bool is_floating(ncclDataType_t datatype) {
  return datatypes[static_cast<std::size_t>(datatype)].floating;
}

std::size_t size_of(ncclDataType_t datatype) {
  return datatypes[static_cast<std::size_t>(datatype)].size;
}

std::string name_of(ncclDataType_t datatype) {
  if (!is_datatype(datatype)) return "datatype " + std::to_string(static_cast<int>(datatype));
  return datatypes[static_cast<std::size_t>(datatype)].name;
}

std::string name_of(ncclResult_t result) {
  if (result < 0 || result >= ncclNumResults) {
    return "result " + std::to_string(static_cast<int>(result));
  }
  return results[static_cast<std::size_t>(result)];
}

}  // namespace lockstep::nccl
