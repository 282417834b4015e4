#include "server/store/archive.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <fstream>
#include <optional>

namespace imgd {
namespace {

constexpr size_t kSizeAt = 124;
constexpr size_t kSizeBytes = 12;
constexpr size_t kChecksumAt = 148;
constexpr uint64_t kMostOctal = (uint64_t{1} << 33) - 1;

void Put(std::string& block, size_t at, std::string_view text) {
  std::copy(text.begin(), text.end(), block.begin() + static_cast<std::ptrdiff_t>(at));
}

/// Of all bytes, those of the sum itself as blanks.
uint32_t ChecksumOf(std::string_view block) {
  uint32_t sum = 0;
  for (size_t i = 0; i < block.size(); ++i) {
    const bool own = i >= kChecksumAt && i < kChecksumAt + 8;
    sum += own ? uint32_t{' '} : static_cast<unsigned char>(block[i]);
  }
  return sum;
}

std::string SizeField(uint64_t size) {
  if (size <= kMostOctal) return fmt::format("{:011o}", size);
  std::string field(kSizeBytes, '\0');
  for (size_t i = kSizeBytes; i > 4; --i, size >>= 8) field[i - 1] = static_cast<char>(size & 0xff);
  field[0] = static_cast<char>(0x80);
  return field;
}

std::optional<uint64_t> ReadOctal(std::string_view field) {
  uint64_t value = 0;
  for (const char c : field) {
    if (c == '\0' || c == ' ') break;
    if (c < '0' || c > '7') return std::nullopt;
    value = value * 8 + static_cast<uint64_t>(c - '0');
  }
  return value;
}

std::optional<uint64_t> ReadSize(std::string_view field) {
  if (static_cast<unsigned char>(field[0]) != 0x80) return ReadOctal(field);
  uint64_t value = 0;
  for (const char c : field.substr(4)) value = value << 8 | static_cast<unsigned char>(c);
  return value;
}

class TarFile {
 public:
  explicit TarFile(const std::filesystem::path& path) : path_(path), in_(path, std::ios::binary) {}

  Status ReadAll(const std::function<Status(const std::string&, uint64_t)>& begin,
                 const std::function<Status(std::string_view)>& bytes) {
    if (!in_) return FailErrno(errno, fmt::format("cannot open {}", path_.native()));
    while (true) {
      std::array<char, kTarBlock> block{};
      IMGD_TRY(Fill(block.data(), block.size()));
      const std::string_view header(block.data(), block.size());
      if (header.find_first_not_of('\0') == std::string_view::npos) return {};
      const auto size = ReadSize(header.substr(kSizeAt, kSizeBytes));
      const auto sum = ReadOctal(header.substr(kChecksumAt, 8));
      if (!size || !sum || *sum != ChecksumOf(header) || header.substr(257, 5) != "ustar") {
        return Fail(ErrorCode::kDataLoss,
                    "{} is no backup of imgd: no tar header was found where one should be", path_.native());
      }
      IMGD_TRY(begin(std::string(header.substr(0, std::min(header.find('\0'), size_t{100}))), *size));
      IMGD_TRY(ReadFileBytes(*size, bytes));
    }
  }

 private:
  Status Fill(char* out, size_t count) {
    in_.read(out, static_cast<std::streamsize>(count));
    if (in_) return {};
    return imgd::Fail(ErrorCode::kDataLoss, "{} is cut short: it is no whole backup", path_.native());
  }

  Status ReadFileBytes(uint64_t size, const std::function<Status(std::string_view)>& bytes) {
    std::string piece;
    for (uint64_t left = size; left > 0; left -= piece.size()) {
      piece.resize(std::min<uint64_t>(left, size_t{1} << 20));
      IMGD_TRY(Fill(piece.data(), piece.size()));
      IMGD_TRY(bytes(piece));
    }
    piece.resize(TarPadding(size).size());
    return Fill(piece.data(), piece.size());
  }

  const std::filesystem::path& path_;
  std::ifstream in_;
};

}  // namespace

std::string TarHeader(std::string_view name, uint64_t size, int64_t time_seconds) {
  std::string block(kTarBlock, '\0');
  Put(block, 0, name.substr(0, 99));
  Put(block, 100, "0000600");
  Put(block, 108, "0000000");
  Put(block, 116, "0000000");
  Put(block, kSizeAt, SizeField(size));
  Put(block, 136, fmt::format("{:011o}", std::max<int64_t>(time_seconds, 0)));
  Put(block, 156, "0");
  Put(block, 257, "ustar");
  Put(block, 263, "00");
  Put(block, kChecksumAt, fmt::format("{:06o}", ChecksumOf(block)));
  block[kChecksumAt + 7] = ' ';
  return block;
}

std::string TarPadding(uint64_t size) {
  return std::string((kTarBlock - size % kTarBlock) % kTarBlock, '\0');
}

std::string TarEnd() { return std::string(2 * kTarBlock, '\0'); }

Status ReadTar(const std::filesystem::path& path,
               const std::function<Status(const std::string&, uint64_t)>& begin,
               const std::function<Status(std::string_view)>& bytes) {
  return TarFile(path).ReadAll(begin, bytes);
}

}  // namespace imgd
