// Backends as the tool finds and loads them.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include <lockstep/kit/backend.hpp>

namespace lockstep::tool {

// Loads a backend library and makes its backend. Throws Failure, status 2, that names the file and
// says why it is none: no shared library, no entry point, another version of the interface. The
// library stays loaded for the rest of the process, since the backend may leave threads and
// handlers behind.
std::unique_ptr<kit::Backend> load_backend(const std::filesystem::path& file);

// What a backend says of itself, asked in a process of its own: two backends may need libraries
// that one process cannot hold together, as the real and the simulated NCCL are. Throws Failure
// with the reason where it cannot be asked.
kit::BackendInfo ask_backend(const std::filesystem::path& file);
// What that process does: prints the answer.
int probe_command(const std::string& file);

// A library `lockstep-backend-NAME.so` that was found.
struct FoundBackend {
  std::string name;
  std::filesystem::path file;
};

// All that are found, by name: in the directories of LOCKSTEP_BACKEND_PATH (separated by colons),
// beside the tool, and where the project installs backends. Of several of one name the first
// counts.
std::vector<FoundBackend> find_backends();

// The file for what the user wrote after --backend: a path (something with a slash, or ending in
// .so) or the name of a backend that is found. Throws Failure, status 2, that lists the known
// names.
std::filesystem::path backend_file(const std::string& name_or_path);

}  // namespace lockstep::tool
