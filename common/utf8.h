#pragma once

#include <string>
#include <string_view>

namespace imgd {

/// Bytes of the character that `text` starts with; 0 if it does not start with valid UTF-8 (RFC 3629: no
/// overlong forms, no surrogates, at most U+10FFFF), or is empty.
size_t Utf8Length(std::string_view text);

/// `text` with every byte that is not part of valid UTF-8 replaced by U+FFFD: what protobuf and JSON take.
std::string ToUtf8(std::string_view text);

}  // namespace imgd
