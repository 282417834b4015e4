#include "trainer/data/tar_writer.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "trainer/data/crc32c.h"

namespace imgd::data {
namespace {

constexpr size_t kTarBlock = 512;
constexpr size_t kBufferBytes = size_t{1} << 20;
constexpr size_t kNameBytes = 100;
constexpr size_t kPrefixBytes = 155;

using Header = std::array<char, kTarBlock>;

void PutText(Header& header, size_t offset, std::string_view text) {
  std::memcpy(header.data() + offset, text.data(), text.size());
}

/// False when the name fits neither the name's field nor, cut at a '/', prefix and name.
bool PutName(Header& header, std::string_view name) {
  if (name.size() <= kNameBytes) {
    PutText(header, 0, name);
    return true;
  }
  const size_t cut = name.find('/', name.size() - kNameBytes - 1);
  if (cut == std::string_view::npos || cut > kPrefixBytes) return false;
  PutText(header, 345, name.substr(0, cut));
  PutText(header, 0, name.substr(cut + 1));
  return true;
}

}  // namespace

Result<TarWriter> TarWriter::Create(const std::string& path) {
  const std::string temporary = path + ".tmp";
  UniqueFd fd(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
  if (!fd.valid()) return FailErrno(errno, fmt::format("cannot create {}", temporary));
  return TarWriter(path, std::move(fd));
}

TarWriter::~TarWriter() {
  if (fd_.valid()) ::unlink(temporary().c_str());
}

Status TarWriter::Write(std::span<const uint8_t> bytes) {
  crc_ = Crc32c(bytes, crc_);
  bytes_ += bytes.size();
  buffer_.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (buffer_.size() < kBufferBytes) return {};
  IMGD_TRY(WriteAll(fd_.get(), buffer_, temporary()));
  buffer_.clear();
  return {};
}

Result<uint64_t> TarWriter::Add(const std::string& name, std::span<const uint8_t> content) {
  Header header{};
  if (name.empty() || !PutName(header, name)) {
    return Fail(ErrorCode::kInvalidArgument,
                "'{}' is no name for a file in a tar archive: it must have 1 to {} bytes", name, kNameBytes);
  }
  PutText(header, 100, "0000644");
  PutText(header, 108, "0000000");
  PutText(header, 116, "0000000");
  PutText(header, 124, fmt::format("{:011o}", content.size()));
  PutText(header, 136, "00000000000");
  PutText(header, 148, "        ");
  header[156] = '0';
  PutText(header, 257, std::string_view("ustar\00000", 8));
  unsigned sum = 0;
  for (const char c : header) sum += static_cast<uint8_t>(c);
  PutText(header, 148, std::string_view(fmt::format("{:06o}", sum).c_str(), 7));
  IMGD_TRY(Write({reinterpret_cast<const uint8_t*>(header.data()), kTarBlock}));
  const uint64_t offset = bytes_;
  IMGD_TRY(Write(content));
  static constexpr std::array<uint8_t, kTarBlock> kZeros{};
  if (const size_t over = content.size() % kTarBlock; over != 0) {
    IMGD_TRY(Write(std::span(kZeros).first(kTarBlock - over)));
  }
  return offset;
}

Status TarWriter::Finish() {
  static constexpr std::array<uint8_t, 2 * kTarBlock> kEnd{};
  IMGD_TRY(Write(kEnd));
  IMGD_TRY(WriteAll(fd_.get(), buffer_, temporary()));
  if (::fsync(fd_.get()) != 0) return FailErrno(errno, fmt::format("cannot sync {}", temporary()));
  if (std::rename(temporary().c_str(), path_.c_str()) != 0) {
    return FailErrno(errno, fmt::format("cannot rename {} to {}", temporary(), path_));
  }
  fd_.reset();
  return {};
}

}  // namespace imgd::data
