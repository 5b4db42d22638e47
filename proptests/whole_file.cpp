#include "whole_file.hpp"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include <lockstep/error.hpp>

namespace lockstep::kit {

void write_whole_file(const std::string& path, const std::string& text) {
  const std::string beside = path + ".part-" + std::to_string(::getpid());
  errno = 0;
  std::FILE* file = std::fopen(beside.c_str(), "wb");
  bool written = file != nullptr && std::fwrite(text.data(), 1, text.size(), file) == text.size();
  if (file != nullptr) written = std::fclose(file) == 0 && written;
  if (written && std::rename(beside.c_str(), path.c_str()) == 0) return;
  const std::string reason = errno == 0 ? "the system gave no reason" : std::strerror(errno);
  std::remove(beside.c_str());
  throw Error("cannot write " + path + ": " + reason);
}

}  // namespace lockstep::kit
