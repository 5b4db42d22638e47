// Words for reports.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "allocation.hpp"
#include "work.hpp"

namespace lockstep::devices {

std::string bytes_text(std::size_t bytes);         // "1 byte", "4096 bytes"
std::string address_text(std::uintptr_t address);  // "0x7f..."
std::string range_text(const Access& access);      // "4096 bytes at 0x7f... (sendbuff)"
std::string text(const Allocation& allocation);    // "4096 bytes at 0x7f... from cudaMalloc, ..."
const char* verb(Touch touch);                     // "reads"

}  // namespace lockstep::devices
