#include <algorithm>

#include <lockstep/dtype.hpp>
#include <lockstep/element_text.hpp>
#include <lockstep/kit/case_file.hpp>

#include "document_place.hpp"

namespace lockstep::kit {
namespace {

std::string shown(const JsonNode& node) {
  switch (node.kind) {
    case JsonNode::Kind::list:
      return "a list of " + std::to_string(node.items.size());
    case JsonNode::Kind::object:
      return "an object";
    case JsonNode::Kind::string:
      return quoted(node.text);
    default:
      break;
  }
  constexpr std::size_t longest = 40;
  return std::string(node.text.substr(0, longest)) + (node.text.size() > longest ? "..." : "");
}

}  // namespace

void Place::refuse(const std::string& what) const {
  throw CaseFileError(std::string(name_) + ":" +
                      std::to_string(position_in(text_, node_.offset).line) + ": " + pointer() +
                      ": " + what);
}

void Place::refuse_kind(const std::string& wanted) const {
  refuse("found " + shown(node_) + ", wanted " + wanted);
}

std::string Place::pointer() const {
  if (parent_ == nullptr) return "the document";
  // No key of a case has a character that a pointer would have to escape, and unknown keys are
  // reported at the object that they stand in.
  const std::string last = node_.key.empty() ? std::to_string(index_) : std::string(node_.key);
  return (parent_->parent_ == nullptr ? "" : parent_->pointer()) + "/" + last;
}

const JsonNode* Place::find(std::string_view key) const {
  const auto found = std::ranges::find(node_.items, key, &JsonNode::key);
  return found == node_.items.end() ? nullptr : &*found;
}

void Place::require_object(std::string_view what,
                           std::initializer_list<std::string_view> keys) const {
  if (kind() != JsonNode::Kind::object) refuse_kind(std::string(what));
  for (const JsonNode& item : node_.items) {
    if (std::ranges::find(keys, item.key) != keys.end()) continue;
    std::string list;
    for (std::string_view key : keys) list += (list.empty() ? "" : ", ") + std::string(key);
    refuse("unknown key " + quoted(item.key) + "; the keys of " + std::string(what) + " are " +
           list);
  }
}

Place Place::at(std::string_view key) const {
  const JsonNode* node = find(key);
  if (node == nullptr) refuse("the key " + quoted(key) + " is missing");
  return Place(*node, *this, 0);
}

std::size_t Place::require_list(std::string_view what) const {
  if (!is_list()) refuse_kind(std::string(what));
  return node_.items.size();
}

void Place::require_list_of(std::size_t length, std::string_view each) const {
  if (is_list() && node_.items.size() == length) return;
  refuse_kind("a list of " + std::to_string(length) + ", one entry for each " + std::string(each));
}

Place Place::operator[](std::size_t index) const {
  return Place(node_.items[index], *this, index);
}

std::string_view Place::string(const std::string& wanted) const {
  if (kind() != JsonNode::Kind::string) refuse_kind(wanted);
  return text();
}

bool Place::boolean() const {
  if (kind() != JsonNode::Kind::boolean) refuse_kind("true or false");
  return text() == "true";
}

std::int64_t Place::integer(const std::string& wanted) const {
  const bool textual = kind() == JsonNode::Kind::number || kind() == JsonNode::Kind::string;
  std::int64_t value = 0;
  if (!textual || text().starts_with("0x") ||
      !parse_element(DType::i64, text(), reinterpret_cast<std::byte*>(&value))) {
    refuse_kind(wanted);
  }
  return value;
}

std::int64_t Place::integer_between(std::int64_t low, std::int64_t high) const {
  const std::string wanted =
      "a whole number from " + std::to_string(low) + " to " + std::to_string(high);
  const std::int64_t value = integer(wanted);
  if (value < low || value > high) refuse_kind(wanted);
  return value;
}

}  // namespace lockstep::kit
