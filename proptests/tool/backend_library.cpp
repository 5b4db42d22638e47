#include "backend_library.hpp"

#include <dlfcn.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <sstream>

#include "exit_status.hpp"

namespace lockstep::tool {
namespace {

constexpr std::string_view prefix = "lockstep-backend-";
constexpr std::string_view suffix = ".so";

std::vector<std::filesystem::path> directories() {
  std::vector<std::filesystem::path> list;
  if (const char* path = std::getenv("LOCKSTEP_BACKEND_PATH")) {
    std::istringstream entries(path);
    for (std::string entry; std::getline(entries, entry, ':');) {
      if (!entry.empty()) list.emplace_back(entry);
    }
  }
  std::error_code error;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error);
  if (!error) {
    list.push_back(self.parent_path());
    list.push_back(self.parent_path().parent_path() / "backends");  // in a build tree
  }
  list.emplace_back(LOCKSTEP_BACKEND_DIRECTORY);
  return list;
}

}  // namespace

std::unique_ptr<kit::Backend> load_backend(const std::filesystem::path& file) {
  const auto fail = [&](const std::string& reason) {
    throw Failure(bad_usage, file.string() + " is not a backend: " + reason);
  };
  std::error_code error;
  if (!std::filesystem::exists(file, error)) fail("there is no such file");
  // With a slash, so that the loader does not go looking for it in the system's directories.
  const std::filesystem::path exact = std::filesystem::absolute(file);
  void* library = ::dlopen(exact.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) fail(std::string("it cannot be loaded: ") + ::dlerror());
  const auto* entry = static_cast<const kit::BackendEntry*>(::dlsym(library, "lockstep_backend"));
  if (entry == nullptr) {
    fail("it has no symbol `lockstep_backend` (see LOCKSTEP_BACKEND in lockstep/kit/backend.hpp)");
  }
  if (entry->abi != kit::backend_abi) {
    fail("it was built for version " + std::to_string(entry->abi) +
         " of the backend interface, this tool needs version " + std::to_string(kit::backend_abi));
  }
  return std::unique_ptr<kit::Backend>(entry->make());
}

std::vector<FoundBackend> find_backends() {
  std::map<std::string, std::filesystem::path> found;
  for (const std::filesystem::path& directory : directories()) {
    std::error_code error;
    for (const auto& entry : std::filesystem::directory_iterator(directory, error)) {
      const std::string file = entry.path().filename().string();
      if (file.size() <= prefix.size() + suffix.size() || !file.starts_with(prefix) ||
          !file.ends_with(suffix)) {
        continue;
      }
      found.try_emplace(file.substr(prefix.size(), file.size() - prefix.size() - suffix.size()),
                        entry.path());
    }
  }
  std::vector<FoundBackend> list;
  for (auto& [name, file] : found) list.push_back({name, file});
  // The simulator first: it is the quickest, and what everything else is compared with.
  std::ranges::stable_partition(list, [](const FoundBackend& b) { return b.name == "sim"; });
  return list;
}

std::filesystem::path backend_file(const std::string& name_or_path) {
  if (name_or_path.find('/') != std::string::npos || name_or_path.ends_with(suffix)) {
    return name_or_path;
  }
  const std::vector<FoundBackend> known = find_backends();
  std::string names;
  for (const FoundBackend& backend : known) {
    if (backend.name == name_or_path) return backend.file;
    names += (names.empty() ? "" : ", ") + backend.name;
  }
  throw Failure(bad_usage, "--backend: '" + name_or_path + "': no such backend; there " +
                               (names.empty() ? "are none here" : "is " + names) +
                               ", or give the path of a backend library");
}

}  // namespace lockstep::tool
