#pragma once

#include <fmt/format.h>

#include <cstring>
#include <string>
#include <utility>
#include <vector>

namespace imgd::data {

/// Writes the checksum that the header at the archive's start should have.
inline void FixTarChecksum(std::string& archive) {
  std::memset(&archive[148], ' ', 8);
  unsigned sum = 0;
  for (size_t i = 0; i < 512; ++i) sum += static_cast<uint8_t>(archive[i]);
  std::memcpy(&archive[148], fmt::format("{:06o}", sum).c_str(), 7);
}

/// One entry of a tar archive in the ustar format: header, content, padding.
inline std::string TarMember(const std::string& name, const std::string& content, char type = '0') {
  std::string out(512, '\0');
  std::memcpy(out.data(), name.data(), name.size());
  std::memcpy(&out[100], "0000644", 7);
  std::memcpy(&out[124], fmt::format("{:011o}", content.size()).c_str(), 11);
  out[156] = type;
  std::memcpy(&out[257], "ustar\00000", 8);
  FixTarChecksum(out);
  out += content;
  out.resize((out.size() + 511) / 512 * 512);
  return out;
}

/// A whole archive.
inline std::string Tar(const std::vector<std::pair<std::string, std::string>>& files) {
  std::string out;
  for (const auto& [name, content] : files) out += TarMember(name, content);
  return out + std::string(1024, '\0');
}

}  // namespace imgd::data
