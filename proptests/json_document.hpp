// A JSON text as a tree, for case files.
//
// Why not a JSON library: an element is rounded once, from its decimal digits to its own dtype, so
// the reader needs every number as it was written. Libraries hand out doubles and 64-bit integers:
// that rounds twice, forgets the sign of -0, and refuses 1e400, which is a lawful way to say
// infinity. They also forget where things stood, and keep or drop repeated keys in silence.
//
// All of JSON (RFC 8259) is accepted but for what no case contains: characters outside ASCII,
// objects of more than a handful of keys, deep nesting. Refusing those here bounds the work.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::kit {

struct JsonNode {
  enum class Kind : std::uint8_t { null, boolean, number, string, list, object };

  Kind kind = Kind::null;
  std::size_t offset = 0;  // in bytes, of where it begins in the text
  std::string_view key;    // its name, in an object
  std::string_view text;   // a string's content; anything else but lists and objects as written
  std::vector<JsonNode> items;  // of a list or an object, in the order of the text
};

// Where a byte stands, counted from 1; columns count bytes.
struct TextPosition {
  std::size_t line;
  std::size_t column;
};
TextPosition position_in(std::string_view text, std::size_t offset);

// Owns what its nodes refer to, together with the text that it was parsed from, which must outlive
// it.
struct JsonDocument {
  JsonNode root;
  std::deque<std::string> unescaped;  // the content of strings that were written with escapes
};

// Throws CaseFileError, with `name`, line and column, for a text that is not JSON.
JsonDocument parse_json(std::string_view text, std::string_view name);

// Text as a message shows it: quoted, escaped, and cut when it is long.
std::string quoted(std::string_view text);
// Text of somebody else's, over several lines perhaps, without what a terminal would obey.
std::string printable(std::string_view text);

}  // namespace lockstep::kit
