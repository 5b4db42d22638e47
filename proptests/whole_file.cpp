#include "whole_file.hpp"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include <lockstep/error.hpp>

namespace lockstep::kit {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void cannot_write(const std::string& path, const std::string& reason) {
  throw Error("cannot write " + path + ": " + reason);
}

std::string last_error() {
  return errno == 0 ? "the system gave no reason" : std::strerror(errno);
}

bool write(const std::string& path, const std::string& text) {
  errno = 0;
  std::FILE* file = std::fopen(path.c_str(), "wb");
  if (file == nullptr) return false;
  const bool written = std::fwrite(text.data(), 1, text.size(), file) == text.size();
  return std::fclose(file) == 0 && written;
}

}  // namespace

void write_whole_file(const std::string& path, const std::string& text) {
  if (path.empty()) cannot_write("a file without a name", "name one");
  std::error_code error;
  const fs::file_status there = fs::status(path, error);
  if (fs::is_directory(there)) cannot_write(path, "it is a directory");
  if (fs::exists(there) && !fs::is_regular_file(there)) {
    if (!write(path, text)) cannot_write(path, last_error());
    return;
  }
  std::string target = path;
  if (fs::exists(there) && fs::is_symlink(path, error)) {
    if (const fs::path whole = fs::canonical(path, error); !error) target = whole.string();
  }
  const std::string beside = target + ".part-" + std::to_string(::getpid());
  if (write(beside, text) && std::rename(beside.c_str(), target.c_str()) == 0) return;
  const std::string reason = last_error();
  std::remove(beside.c_str());
  cannot_write(path, reason);
}

std::string write_whole_file_in(const std::string& directory, const std::string& name,
                                const std::string& text) {
  std::error_code error;
  fs::create_directories(directory, error);  // where that fails, so does writing
  std::string path = directory + "/" + name;
  write_whole_file(path, text);
  return path;
}

}  // namespace lockstep::kit
