// NCCL's enumerations as words and sizes.
#pragma once

#include <cstddef>
#include <string>

#include "nccl_header.hpp"

namespace lockstep::nccl {

bool is_datatype(ncclDataType_t datatype);
bool is_floating(ncclDataType_t datatype);
// Bytes of an element.
std::size_t size_of(ncclDataType_t datatype);
// "float32", "bfloat16", ...; the number when it is none.
std::string name_of(ncclDataType_t datatype);
// "ncclInvalidUsage", ...
std::string name_of(ncclResult_t result);

}  // namespace lockstep::nccl
