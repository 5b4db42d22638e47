// Files that are written whole or not at all.
#pragma once

#include <string>

namespace lockstep::kit {

// Writes beside the file and renames. Throws Error that names the file and the system's reason.
void write_whole_file(const std::string& path, const std::string& text);

}  // namespace lockstep::kit
