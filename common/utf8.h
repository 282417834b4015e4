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

}  // namespace imgd
