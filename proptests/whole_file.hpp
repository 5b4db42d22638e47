// Files that are written whole or not at all.
#pragma once

#include <string>

namespace lockstep::kit {

// Writes beside the file and renames; a link is followed. What is there and is no ordinary file,
// such as a pipe or a device, is written to instead. Throws Error that names the file and the
// system's reason.
void write_whole_file(const std::string& path, const std::string& text);

// The same for a file in a directory, which is made first where it is missing. Returns its path.
std::string write_whole_file_in(const std::string& directory, const std::string& name,
                                const std::string& text);

}  // namespace lockstep::kit
