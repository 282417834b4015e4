#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace imgd {

/// Where the first byte is that belongs to no character of UTF-8 (Unicode 15, table 3-7: no overlong forms,
/// no surrogates); nothing when all do.
std::optional<size_t> FindInvalidUtf8(std::string_view text);

/// `text` with U+FFFD in the place of each byte that belongs to no character; for names of files and users,
/// which may be any bytes, where protobuf takes only UTF-8.
std::string ToUtf8(std::string_view text);

/// Where the first character is that is not to be seen but does something where it is shown: C0 and C1
/// controls, DEL, the ends of line and paragraph and the directions of Unicode; nothing where there is none.
std::optional<size_t> FindControl(std::string_view text);

/// `text` as a line of a log, an event or a terminal: what somebody named or said begins no other line and
/// moves no cursor. A space is in the place of each control character, U+FFFD in that of each byte that
/// belongs to no character.
std::string OneLine(std::string_view text);

}  // namespace imgd
