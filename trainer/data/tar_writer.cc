#include "trainer/data/tar_writer.h"

#include <array>
#include <cstring>

namespace imgd::data {
namespace {

constexpr size_t kTarBlock = 512;
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
  IMGD_ASSIGN(auto file, OutputFile::Create(path));
  return TarWriter(std::move(file));
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
  IMGD_TRY(file_.Write({reinterpret_cast<const uint8_t*>(header.data()), kTarBlock}));
  const uint64_t offset = file_.bytes();
  IMGD_TRY(file_.Write(content));
  static constexpr std::array<uint8_t, kTarBlock> kZeros{};
  if (const size_t over = content.size() % kTarBlock; over != 0) {
    IMGD_TRY(file_.Write(std::span(kZeros).first(kTarBlock - over)));
  }
  return offset;
}

Status TarWriter::Finish() {
  static constexpr std::array<uint8_t, 2 * kTarBlock> kEnd{};
  IMGD_TRY(file_.Write(kEnd));
  return file_.Finish();
}

}  // namespace imgd::data
