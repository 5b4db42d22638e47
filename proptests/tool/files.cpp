#include "files.hpp"

#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>

#include <lockstep/error.hpp>

#include "exit_status.hpp"
#include "whole_file.hpp"

namespace lockstep::tool {
namespace {

[[noreturn]] void fail(const std::string& what, const std::filesystem::path& path,
                       const std::string& reason) {
  throw Failure(bad_usage, "cannot " + what + " " + path.string() + ": " + reason);
}

std::string last_error() {
  return errno == 0 ? "the system gave no reason" : std::strerror(errno);
}

}  // namespace

std::string read_file(const std::filesystem::path& path) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) fail("read", path, "it is a directory");
  errno = 0;
  std::ifstream in(path, std::ios::binary);
  if (!in) fail("read", path, last_error());
  std::string text(std::istreambuf_iterator<char>(in), {});
  if (in.bad()) fail("read", path, last_error());
  return text;
}

void write_file(const std::filesystem::path& path, const std::string& text) {
  try {
    kit::write_whole_file(path.string(), text);
  } catch (const Error& error) {
    throw Failure(bad_usage, error.what());
  }
}

void require_directory(const std::filesystem::path& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error) fail("make the directory", path, error.message());
  if (!std::filesystem::is_directory(path, error)) {
    fail("write into", path, "it is not a directory");
  }
}

void require_parent_directory(const std::filesystem::path& file) {
  std::error_code error;
  const std::filesystem::path parent = std::filesystem::absolute(file, error).parent_path();
  if (!std::filesystem::is_directory(parent, error)) {
    fail("write", file, parent.string() + " is not a directory");
  }
  if (std::filesystem::is_directory(file, error)) fail("write", file, "it is a directory");
}

}  // namespace lockstep::tool
