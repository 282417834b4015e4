#pragma once

#include <fmt/format.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

namespace imgd {

/// A fresh folder that goes with this object.
class TempDir {
 public:
  TempDir() {
    std::string name = std::filesystem::temp_directory_path() / "imgd-test-XXXXXX";
    path_ = ::mkdtemp(name.data());
  }
  ~TempDir() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path operator/(std::string_view name) const { return path_ / name; }

  std::filesystem::path Write(std::string_view name, std::string_view content) const {
    std::ofstream(path_ / name, std::ios::binary) << content;
    return path_ / name;
  }
  /// An executable shell script.
  std::filesystem::path Script(std::string_view name, std::string_view body) const {
    auto path = Write(name, fmt::format("#!/bin/sh\n{}", body));
    std::filesystem::permissions(path, std::filesystem::perms::owner_all);
    return path;
  }

 private:
  std::filesystem::path path_;
};

}  // namespace imgd
