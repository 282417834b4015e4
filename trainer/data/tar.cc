#include "trainer/data/tar.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <string_view>
#include <utility>
#include <vector>

namespace imgd::data {
namespace {

constexpr uint64_t kBlock = 512;
/// Long names and pax records; more is no name.
constexpr uint64_t kMaxTextBytes = 1 << 20;
constexpr uint64_t kZerosAtOnce = 64 << 10;

std::string_view FieldText(std::string_view field) { return field.substr(0, field.find('\0')); }

/// Octal text, or GNU's base-256 for large numbers.
std::optional<uint64_t> Number(std::string_view field) {
  if ((static_cast<uint8_t>(field[0]) & 0x80) != 0) {
    uint64_t value = static_cast<uint8_t>(field[0]) & 0x7F;
    for (const char c : field.substr(1)) {
      if (value >> 55 != 0) return std::nullopt;
      value = value << 8 | static_cast<uint8_t>(c);
    }
    return value;
  }
  uint64_t value = 0;
  const size_t start = std::min(field.find_first_not_of(' '), field.size());
  for (const char c : field.substr(start)) {
    if (c == ' ' || c == '\0') break;
    if (c < '0' || c > '7' || value >> 60 != 0) return std::nullopt;
    value = value << 3 | static_cast<uint64_t>(c - '0');
  }
  return value;
}

bool IsPlainFile(char type) { return type == '0' || type == '\0' || type == '7'; }
/// Entries that carry no content: links, devices, folders, queues, a volume's name.
bool HasNoContent(char type) { return (type >= '1' && type <= '6') || type == 'V'; }

/// What an entry is that stands for something outside of it; empty for others.
std::string_view NameOfLink(char type) {
  switch (type) {
    case '1':
      return "hard link";
    case '2':
      return "symbolic link";
    case '3':
    case '4':
      return "device";
    case '6':
      return "pipe";
    default:
      return "";
  }
}

}  // namespace

struct TarReader::Header {
  char block[kBlock];

  std::string_view field(size_t offset, size_t size) const { return {block + offset, size}; }
  char type() const { return block[156]; }
  std::optional<uint64_t> size() const { return Number(field(124, 12)); }
  std::string name() const {
    const std::string_view name = FieldText(field(0, 100));
    const bool posix = field(257, 6) == std::string_view("ustar\0", 6);
    const std::string_view prefix = posix ? FieldText(field(345, 155)) : std::string_view();
    return prefix.empty() ? std::string(name) : fmt::format("{}/{}", prefix, name);
  }
  bool is_zero() const {
    return std::all_of(block, block + kBlock, [](char c) { return c == 0; });
  }
  /// The sum of all bytes, the checksum's own counted as spaces; old programs summed signed ones.
  bool checksum_fits() const {
    const auto wanted = Number(field(148, 8));
    uint64_t plain = 0;
    int64_t with_sign = 0;
    for (size_t i = 0; i < kBlock; ++i) {
      const char c = i >= 148 && i < 156 ? ' ' : block[i];
      plain += static_cast<uint8_t>(c);
      with_sign += static_cast<signed char>(c);
    }
    return wanted && (*wanted == plain || static_cast<int64_t>(*wanted) == with_sign);
  }
};

tl::unexpected<Error> TarReader::Bad(const std::string& what) const {
  return Fail(ErrorCode::kDataLoss, "{} is no good tar archive at byte {}: {}", source_.name(), at_, what);
}

/// All that is left is zeros: a hole in the middle of an archive looks like its end.
Status TarReader::CheckEnd() {
  // Archives of other things than images may be packed, and nobody knows where those end (OpenUnpacked).
  if (links_ == TarLinks::kPassedOver) return {};
  std::vector<uint8_t> bytes;
  for (uint64_t at = at_; at < source_.size(); at += bytes.size()) {
    bytes.resize(std::min(kZerosAtOnce, source_.size() - at));
    IMGD_TRY(source_.ReadAt(at, bytes));
    const auto data = std::ranges::find_if(bytes, [](uint8_t byte) { return byte != 0; });
    if (data == bytes.end()) continue;
    return Bad(
        fmt::format("the zeros that end an archive begin here, but there is data behind them at byte {}",
                    at + static_cast<uint64_t>(data - bytes.begin())));
  }
  has_end_ = source_.size() - at_ >= 2 * kBlock;
  return {};
}

/// False at the archive's end: blocks of zeros, or nothing more.
Result<bool> TarReader::ReadHeader(Header& header) {
  if (at_ >= source_.size()) return false;
  if (source_.size() - at_ < kBlock) return Bad("it ends within a header");
  IMGD_TRY(source_.ReadAt(at_, {reinterpret_cast<uint8_t*>(header.block), kBlock}));
  if (header.is_zero()) {
    IMGD_TRY(CheckEnd());
    return false;
  }
  if (!header.checksum_fits()) return Bad("the header's checksum is wrong");
  const auto size = header.size();
  if (!size) return Bad("the size is no number");
  at_ += kBlock;
  return true;
}

Status TarReader::Skip(uint64_t size) {
  const uint64_t left = source_.size() - at_;
  if (size > left) return Bad(fmt::format("a file of {} bytes, where {} are left", size, left));
  // The last file's padding may be missing.
  at_ += std::min(left, (size + kBlock - 1) / kBlock * kBlock);
  return {};
}

Result<std::string> TarReader::ReadText(uint64_t size) {
  if (size > kMaxTextBytes) return Bad(fmt::format("a name or extended header of {} bytes", size));
  const uint64_t from = at_;
  IMGD_TRY(Skip(size));
  return data::ReadText(source_, from, size);
}

/// Records "LENGTH KEY=VALUE\n", of which the length counts itself.
Status TarReader::TakePax(uint64_t size, Overrides& overrides) {
  IMGD_ASSIGN(const std::string text, ReadText(size));
  std::string_view rest = text;
  while (!rest.empty() && rest[0] != '\0') {
    size_t length = 0;
    const auto parsed = std::from_chars(rest.data(), rest.data() + rest.size(), length);
    const auto digits = static_cast<size_t>(parsed.ptr - rest.data());
    if (parsed.ec != std::errc() || length > rest.size() || length < digits + 2 || rest[digits] != ' ' ||
        rest[length - 1] != '\n') {
      return Bad("an extended header that can't be read");
    }
    const std::string_view record = rest.substr(digits + 1, length - digits - 2);
    rest.remove_prefix(length);
    const size_t equals = record.find('=');
    if (equals == std::string_view::npos) return Bad("an extended header that can't be read");
    const std::string_view key = record.substr(0, equals);
    const std::string_view value = record.substr(equals + 1);
    if (key == "path") overrides.name = std::string(value);
    if (key == "size") {
      uint64_t number = 0;
      const auto end = value.data() + value.size();
      const auto result = std::from_chars(value.data(), end, number);
      if (result.ec != std::errc() || result.ptr != end) return Bad("an extended header's size is no number");
      overrides.size = number;
    }
    if (key.starts_with("GNU.sparse")) return Bad("sparse files can't be read");
  }
  return {};
}

Result<std::optional<TarEntry>> TarReader::Next() {
  Overrides overrides;
  Header header;
  for (;;) {
    IMGD_ASSIGN(const bool more, ReadHeader(header));
    if (!more) return std::optional<TarEntry>();
    const uint64_t size = *header.size();
    switch (header.type()) {
      case 'x':
        IMGD_TRY(TakePax(size, overrides));
        continue;
      case 'g': {  // for all files: comments, in practice
        Overrides ignored;
        IMGD_TRY(TakePax(size, ignored));
        continue;
      }
      case 'L': {
        IMGD_ASSIGN(const std::string name, ReadText(size));
        overrides.name = std::string(FieldText(name));
        continue;
      }
      case 'K':
        IMGD_TRY(Skip(size));
        continue;
      case 'S':
        return Bad("sparse files can't be read");
      default:
        break;
    }
    if (!IsPlainFile(header.type()) && !HasNoContent(header.type())) {
      return Bad(fmt::format("an entry of the unknown type '{}'", header.type()));
    }
    std::string name = overrides.name ? *overrides.name : header.name();
    if (const auto link = NameOfLink(header.type()); !link.empty() && links_ == TarLinks::kRefused)
      return Bad(fmt::format("'{}' is a {}, where only files and folders can be read", name, link));
    const uint64_t content = HasNoContent(header.type()) ? 0 : overrides.size.value_or(size);
    const TarEntry entry{std::move(name), at_, content};
    IMGD_TRY(Skip(content));
    overrides = {};
    // In the oldest archives a folder is a plain file whose name ends so.
    if (IsPlainFile(header.type()) && !entry.name.ends_with('/')) return std::optional<TarEntry>(entry);
  }
}

}  // namespace imgd::data
