#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace imgd::cli {

/// A key of the keyboard.
struct Key {
  enum class Kind {
    kText,
    kUp,
    kDown,
    kLeft,
    kRight,
    kPageUp,
    kPageDown,
    kHome,
    kEnd,
    kEnter,
    kTab,
    kEscape,
    kErase
  };

  Kind kind = Kind::kText;
  std::string text;  ///< of kText: one character, UTF-8

  bool Is(std::string_view character) const { return kind == Kind::kText && text == character; }
  bool operator==(const Key&) const = default;
};

/// Makes keys of what a terminal sends: a key may be several bytes, and these may come in pieces.
class KeyReader {
 public:
  /// The keys that end in `bytes`. Sequences of unknown keys are dropped.
  std::vector<Key> Take(std::string_view bytes);

  /// Nothing more came for a while: what began with an escape was the key Esc.
  std::vector<Key> Settle();

  /// Whether a key has begun and not ended.
  bool Pending() const { return !pending_.empty(); }

 private:
  std::string pending_;
};

}  // namespace imgd::cli
