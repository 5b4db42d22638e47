// A node of a document and the way to it, for readers that say where a document goes wrong.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>

#include "json_document.hpp"

namespace lockstep::kit {

// Made on the stack, one from another on the way down: a place refers to its parent, which must
// outlive it. Every read throws CaseFileError when the node is something else.
class Place {
 public:
  Place(const JsonNode& root, std::string_view text, std::string_view name)
      : node_(root), parent_(nullptr), index_(0), text_(text), name_(name) {}

  // Throws "name:line: <JSON pointer>: what".
  [[noreturn]] void refuse(const std::string& what) const;
  // Throws "found <this node>, wanted <wanted>" so.
  [[noreturn]] void refuse_kind(const std::string& wanted) const;
  // "/steps/0/inputs/1"; "the document" for the root.
  std::string pointer() const;

  JsonNode::Kind kind() const { return node_.kind; }
  bool is_null() const { return kind() == JsonNode::Kind::null; }
  bool is_list() const { return kind() == JsonNode::Kind::list; }
  // A string's content or a number's digits.
  std::string_view text() const { return node_.text; }

  // Refuses anything but an object with some of these keys. `what` names such an object, as in
  // "a step".
  void require_object(std::string_view what, std::initializer_list<std::string_view> keys) const;
  bool has(std::string_view key) const { return find(key) != nullptr; }
  // The member of that name, which must be there.
  Place at(std::string_view key) const;

  // Refuses anything but a list, and returns its length.
  std::size_t require_list(std::string_view what) const;
  // Refuses anything but a list of that length; `each` says what one entry is for.
  void require_list_of(std::size_t length, std::string_view each) const;
  Place operator[](std::size_t index) const;

  // A string; `wanted` is for the message.
  std::string_view string(const std::string& wanted) const;
  bool boolean() const;
  // A whole number, or its decimal digits in a string.
  std::int64_t integer(const std::string& wanted) const;
  std::int64_t integer_between(std::int64_t low, std::int64_t high) const;

 private:
  Place(const JsonNode& node, const Place& parent, std::size_t index)
      : node_(node), parent_(&parent), index_(index), text_(parent.text_), name_(parent.name_) {}
  const JsonNode* find(std::string_view key) const;

  const JsonNode& node_;
  const Place* parent_;
  std::size_t index_;  // in the parent
  std::string_view text_;
  std::string_view name_;
};

}  // namespace lockstep::kit
