#include <algorithm>

#include <lockstep/kit/case_file.hpp>

#include "json_document.hpp"

namespace lockstep::kit {
namespace {

// A case needs seven levels: document, steps, step, expected, outcome, gradient, values.
constexpr int deepest = 12;
// A step, the richest object of a case, has six keys.
constexpr std::size_t most_keys = 16;

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

class Parser {
 public:
  Parser(std::string_view text, std::string_view name) : text_(text), name_(name) {}

  JsonDocument document() {
    skip_space();
    value(document_.root, 0);
    skip_space();
    if (at_ < text_.size()) refuse("nothing more after the document");
    return std::move(document_);
  }

 private:
  [[noreturn]] void refuse_at(std::size_t offset, const std::string& what) const {
    const TextPosition place = position_in(text_, offset);
    throw CaseFileError(std::string(name_) + ":" + std::to_string(place.line) + ":" +
                        std::to_string(place.column) + ": " + what);
  }

  // Refuses whatever stands here.
  [[noreturn]] void refuse(const std::string& wanted) const {
    const std::string found = at_ < text_.size() ? quoted(text_.substr(at_, 1)) : "end of the text";
    refuse_at(at_, "found " + found + ", wanted " + wanted);
  }

  // The byte that stands here; a NUL at the end, which no rule accepts either.
  char here() const { return at_ < text_.size() ? text_[at_] : '\0'; }

  bool take(char wanted) {
    if (here() != wanted) return false;
    ++at_;
    return true;
  }

  void skip_space() {
    while (here() == ' ' || here() == '\t' || here() == '\n' || here() == '\r') ++at_;
  }

  void value(JsonNode& node, int depth) {
    node.offset = at_;
    switch (here()) {
      case '{':
        return object(node, depth);
      case '[':
        return list(node, depth);
      case '"':
        node.kind = JsonNode::Kind::string;
        node.text = string();
        return;
      case 'n':
        return word(node, JsonNode::Kind::null, "null");
      case 't':
        return word(node, JsonNode::Kind::boolean, "true");
      case 'f':
        return word(node, JsonNode::Kind::boolean, "false");
      default:
        return number(node);
    }
  }

  void word(JsonNode& node, JsonNode::Kind kind, std::string_view letters) {
    if (text_.substr(at_, letters.size()) != letters) refuse("a value");
    node.kind = kind;
    node.text = text_.substr(at_, letters.size());
    at_ += letters.size();
  }

  void digits(const char* wanted) {
    if (!is_digit(here())) refuse(wanted);
    while (is_digit(here())) ++at_;
  }

  void number(JsonNode& node) {
    const std::size_t begin = at_;
    if (!take('-') && !is_digit(here())) refuse("a value");
    if (take('0')) {
      if (is_digit(here())) refuse("no digit after a leading zero");
    } else {
      digits("a digit");
    }
    if (take('.')) digits("a digit after the decimal point");
    if (take('e') || take('E')) {
      if (!take('+')) take('-');
      digits("a digit of the exponent");
    }
    node.kind = JsonNode::Kind::number;
    node.text = text_.substr(begin, at_ - begin);
  }

  std::string_view string() {
    ++at_;  // the opening quote
    const std::size_t begin = at_;
    std::string* unescaped = nullptr;
    while (!take('"')) {
      if (here() == '\\') {
        if (unescaped == nullptr) {
          unescaped = &document_.unescaped.emplace_back(text_.substr(begin, at_ - begin));
        }
        ++at_;
        unescaped->push_back(escape());
      } else if (const auto byte = static_cast<unsigned char>(here()); byte < 0x20 || byte > 0x7f) {
        refuse("an ASCII character other than a control character, or the closing quote");
      } else {
        if (unescaped != nullptr) unescaped->push_back(here());
        ++at_;
      }
    }
    return unescaped != nullptr ? std::string_view(*unescaped)
                                : text_.substr(begin, at_ - 1 - begin);
  }

  // What follows a backslash.
  char escape() {
    constexpr std::string_view letters = "\"\\/bfnrt";
    constexpr std::string_view meanings = "\"\\/\b\f\n\r\t";
    if (const std::size_t which = letters.find(here()); which != std::string_view::npos) {
      ++at_;
      return meanings[which];
    }
    if (!take('u')) refuse("one of \" \\ / b f n r t u after a backslash");
    unsigned code = 0;
    for (int i = 0; i < 4; ++i, ++at_) {
      constexpr std::string_view hexadecimal = "0123456789abcdef";
      const char letter = here() >= 'A' && here() <= 'F' ? static_cast<char>(here() + 32) : here();
      const std::size_t digit = hexadecimal.find(letter);
      if (digit == std::string_view::npos) refuse("four hexadecimal digits after \\u");
      code = code * 16 + static_cast<unsigned>(digit);
    }
    if (code > 0x7f) {
      at_ -= 4;
      refuse("an ASCII character; no string of a case has any other");
    }
    return static_cast<char>(code);
  }

  void enter(int depth) const {
    if (depth == deepest) refuse_at(at_, "nested deeper than any case is");
  }

  void list(JsonNode& node, int depth) {
    enter(depth);
    node.kind = JsonNode::Kind::list;
    ++at_;
    skip_space();
    if (take(']')) return;
    do {
      skip_space();
      value(node.items.emplace_back(), depth + 1);
      skip_space();
    } while (take(','));
    if (!take(']')) refuse("',' or ']'");
  }

  void object(JsonNode& node, int depth) {
    enter(depth);
    node.kind = JsonNode::Kind::object;
    ++at_;
    skip_space();
    if (take('}')) return;
    do {
      skip_space();
      member(node, depth);
      skip_space();
    } while (take(','));
    if (!take('}')) refuse("',' or '}'");
  }

  void member(JsonNode& object, int depth) {
    const std::size_t begin = at_;
    if (here() != '"') refuse("a key in double quotes");
    const std::string_view key = string();
    if (std::ranges::find(object.items, key, &JsonNode::key) != object.items.end()) {
      refuse_at(begin, "the key " + quoted(key) + " is repeated");
    }
    if (object.items.size() == most_keys)
      refuse_at(begin, "more keys than any object of a case has");
    skip_space();
    if (!take(':')) refuse("':'");
    skip_space();
    JsonNode& node = object.items.emplace_back();
    node.key = key;
    value(node, depth + 1);
  }

  std::string_view text_;
  std::string_view name_;
  std::size_t at_ = 0;
  JsonDocument document_;
};

}  // namespace

TextPosition position_in(std::string_view text, std::size_t offset) {
  const std::string_view before = text.substr(0, offset);
  const std::size_t line_begin = before.rfind('\n') + 1;  // npos + 1 is 0
  return {static_cast<std::size_t>(std::ranges::count(before, '\n')) + 1, offset - line_begin + 1};
}

JsonDocument parse_json(std::string_view text, std::string_view name) {
  return Parser(text, name).document();
}

namespace {

void append_escaped(std::string& shown, unsigned char byte) {
  constexpr std::string_view digits = "0123456789abcdef";
  shown += {'\\', 'x', digits[byte >> 4], digits[byte & 15]};
}

}  // namespace

std::string quoted(std::string_view text) {
  constexpr std::size_t longest = 40;
  std::string shown = "\"";
  for (const char c : text.substr(0, longest)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte > 0x7e) {
      append_escaped(shown, byte);
    } else {
      if (c == '"' || c == '\\') shown += '\\';
      shown += c;
    }
  }
  shown += text.size() > longest ? "...\"" : "\"";
  return shown;
}

std::string printable(std::string_view text) {
  std::string shown;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if ((byte < 0x20 && c != '\n' && c != '\t') || byte == 0x7f) {
      append_escaped(shown, byte);
    } else {
      shown += c;
    }
  }
  return shown;
}

}  // namespace lockstep::kit
