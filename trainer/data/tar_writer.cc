#include "trainer/data/tar_writer.h"

#include <array>
#include <cstring>

#include "trainer/data/source.h"

namespace imgd::data {
namespace {

constexpr size_t kTarBlock = 512;
constexpr size_t kNameBytes = 100;
constexpr size_t kPrefixBytes = 155;
// As Python's tarfile calls them.
constexpr std::string_view kPaxName = "././@PaxHeader";

using Header = TarWriter::Header;

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

/// "LENGTH path=NAME\n", where the length counts its own digits too.
std::string PaxPath(std::string_view name) {
  const std::string rest = fmt::format(" path={}\n", name);
  size_t length = rest.size();
  while (std::to_string(length).size() + rest.size() != length)
    length = std::to_string(length).size() + rest.size();
  return std::to_string(length) + rest;
}

/// All of a header but the name.
void Fill(Header& header, char type, size_t size) {
  PutText(header, 100, "0000644");
  PutText(header, 108, "0000000");
  PutText(header, 116, "0000000");
  PutText(header, 124, fmt::format("{:011o}", size));
  PutText(header, 136, "00000000000");
  PutText(header, 148, "        ");
  header[156] = type;
  PutText(header, 257, std::string_view("ustar\00000", 8));
  unsigned sum = 0;
  for (const char c : header) sum += static_cast<uint8_t>(c);
  PutText(header, 148, std::string_view(fmt::format("{:06o}", sum).c_str(), 7));
}

}  // namespace

Result<TarWriter> TarWriter::Create(const std::string& path) {
  IMGD_ASSIGN(auto file, OutputFile::Create(path));
  return TarWriter(std::move(file));
}

Result<uint64_t> TarWriter::Add(const std::string& name, std::span<const uint8_t> content) {
  if (name.empty()) return Fail(ErrorCode::kInvalidArgument, "a file in a tar archive needs a name");
  Header header{};
  if (!PutName(header, name)) {
    Header pax{};
    PutText(pax, 0, kPaxName);
    IMGD_TRY(AddEntry(pax, 'x', AsBytes(PaxPath(name))));
    PutText(header, 0, std::string_view(name).substr(0, kNameBytes));  // for readers that know no pax
  }
  IMGD_TRY(AddEntry(header, '0', content));
  return file_.bytes() - (content.size() + kTarBlock - 1) / kTarBlock * kTarBlock;
}

/// `header` has its name.
Status TarWriter::AddEntry(Header& header, char type, std::span<const uint8_t> content) {
  Fill(header, type, content.size());
  IMGD_TRY(file_.Write({reinterpret_cast<const uint8_t*>(header.data()), kTarBlock}));
  IMGD_TRY(file_.Write(content));
  static constexpr std::array<uint8_t, kTarBlock> kZeros{};
  const size_t over = content.size() % kTarBlock;
  return over == 0 ? Status() : file_.Write(std::span(kZeros).first(kTarBlock - over));
}

Status TarWriter::Finish() {
  static constexpr std::array<uint8_t, 2 * kTarBlock> kEnd{};
  IMGD_TRY(file_.Write(kEnd));
  return file_.Finish();
}

}  // namespace imgd::data
