// Files, read whole and written whole or not at all. Everything that goes wrong is a Failure with
// status 2 that names the file and the system's reason.
#pragma once

#include <filesystem>
#include <string>

namespace lockstep::tool {

std::string read_file(const std::filesystem::path& path);

// Writes beside the file and renames, so that nobody ever sees a part of it.
void write_file(const std::filesystem::path& path, const std::string& text);

// Makes the directory unless it exists.
void require_directory(const std::filesystem::path& path);
// The directory that a file is to be written into must exist.
void require_parent_directory(const std::filesystem::path& file);

}  // namespace lockstep::tool
