// Reading and writing case files: JSON, as docs/case-file.md describes.
#pragma once

#include <string>
#include <string_view>

#include <lockstep/error.hpp>
#include <lockstep/kit/case.hpp>

namespace lockstep::kit {

// A case file that is not one. The message names the place ("name:line:column" where the text is not
// JSON, "name:line" and a JSON pointer where the document is not a case), what is there and what
// should be.
class CaseFileError : public Error {
 public:
  using Error::Error;
};

// Reads one case; `name` is the file's name for messages. Everything is checked before anything is
// returned: keys, families, lengths, references to earlier steps, members of groups, ranks that
// have left. Memory stays proportional to the text, whatever shapes it claims.
Case read_case(std::string_view text, std::string_view name = "case");

// Writes a case, `expected` included where steps have it: indented for a person and ending with a
// newline, or on one line without one. Of an expected outcome only what a case file can say is
// written; one of kind `broken` throws InvalidArgument.
enum class Layout { indented, one_line };
std::string write_case(const Case& c, Layout layout = Layout::indented);

}  // namespace lockstep::kit
