#include "trainer/data/folder_writer.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <set>

#include "common/files.h"
#include "trainer/data/crc32c.h"
#include "trainer/data/image_folder.h"
#include "trainer/data/image_name.h"
#include "trainer/data/shard_writer.h"

namespace imgd::data {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxNameBytes = 255;

bool IsPlainName(std::string_view name) {
  return !name.empty() && name.front() != '.' && name.size() <= kMaxNameBytes &&
         name.find('/') == std::string_view::npos && name.find('\0') == std::string_view::npos;
}

/// Every part of the path can be a file's or a folder's, and none leads elsewhere or is passed over.
bool IsPlainPath(std::string_view path) {
  for (size_t start = 0; start <= path.size();) {
    const size_t slash = std::min(path.find('/', start), path.size());
    if (!IsPlainName(path.substr(start, slash - start))) return false;
    start = slash + 1;
  }
  return true;
}

/// Under a temporary name, then its own; not synced: that is done once for many.
Status WriteSmallFile(const std::string& path, std::span<const uint8_t> content) {
  const std::string temporary = path + ".tmp";
  UniqueFd fd(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0666));
  if (!fd.valid()) return FailErrno(errno, fmt::format("cannot create {}", temporary));
  const std::string_view text(reinterpret_cast<const char*>(content.data()), content.size());
  Status written = WriteAll(fd.get(), text, temporary);
  if (written && std::rename(temporary.c_str(), path.c_str()) == 0) return {};
  if (written) written = FailErrno(errno, fmt::format("cannot rename {} to {}", temporary, path));
  ::unlink(temporary.c_str());
  return written;
}

class FolderWriter final : public ShardWriter {
 public:
  FolderWriter(const OutputSet& set, std::string name) : set_(set), name_(std::move(name)) {}

  Status Add(const OutputImage& image) override {
    const std::string& class_name = set_.classes[static_cast<size_t>(image.label)];
    const std::string path = PathInFolder(class_name, image.name);
    if (!IsPlainPath(path)) {
      return Fail(ErrorCode::kInvalidArgument, "'{}' is no name for an image's file below a class folder",
                  image.name);
    }
    const fs::path parent = fs::path(path).parent_path();
    if (parent != class_name && parent != last_parent_) {
      IMGD_TRY(MakeFolders(fs::path(set_.folder) / parent));
      last_parent_ = parent;
    }
    crc_ = Crc32c(image.file, crc_);
    bytes_ += image.file.size();
    ++images_;
    return WriteSmallFile(set_.folder + "/" + path, image.file);
  }

  Result<SetDescription::Shard> Finish() override {
    const UniqueFd folder(::open(set_.folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!folder.valid() || ::syncfs(folder.get()) != 0) {
      return FailErrno(errno, fmt::format("cannot sync {}", set_.folder));
    }
    return SetDescription::Shard{name_, bytes_, images_, fmt::format("{:08x}", crc_)};
  }

 private:
  const OutputSet& set_;
  const std::string name_;
  fs::path last_parent_;
  uint64_t bytes_ = 0;
  uint32_t images_ = 0;
  uint32_t crc_ = 0;
};

}  // namespace

std::string PathInFolder(std::string_view class_name, std::string_view name) {
  while (name.starts_with('/')) name.remove_prefix(1);
  const bool has_class =
      name.size() > class_name.size() + 1 && name.starts_with(class_name) && name[class_name.size()] == '/';
  if (has_class) name.remove_prefix(class_name.size() + 1);
  return fmt::format("{}/{}", class_name, WithImageEnding(name));
}

Result<FolderNames> FolderNamesOf(const std::vector<std::string>& classes) {
  FolderNames out{.names = classes};
  bool numbers = true;
  for (size_t i = 0; i < classes.size(); ++i) numbers = numbers && classes[i] == std::to_string(i);
  if (numbers) {
    const size_t digits = std::to_string(std::max<size_t>(classes.size(), 1) - 1).size();
    for (auto& name : out.names) name.insert(0, digits - name.size(), '0');
  }
  std::set<std::string_view> seen;
  for (const auto& name : out.names) {
    if (!IsPlainName(name)) {
      return Fail(ErrorCode::kInvalidArgument, "the class '{}' can't be a folder's name", name);
    }
    if (!seen.insert(name).second) {
      return Fail(ErrorCode::kInvalidArgument, "two classes are called '{}'; they would share a folder",
                  name);
    }
  }
  out.renumbered = !std::ranges::is_sorted(out.names);
  return out;
}

Status MakeClassFolders(const std::string& folder, const std::vector<std::string>& names) {
  for (const auto& name : names) IMGD_TRY(MakeFolders(fs::path(folder) / name));
  return {};
}

Status MarkEmptyClasses(const std::string& folder, const std::vector<std::string>& names) {
  for (const auto& name : names) {
    const fs::path path = fs::path(folder) / name;
    std::error_code error;
    if (fs::is_empty(path, error) && !error) IMGD_TRY(WriteFileAtomically(path / kEmptyClassName, ""));
  }
  return {};
}

Result<std::unique_ptr<ShardWriter>> OpenFolderWriter(const OutputSet& set, const std::string& shard) {
  return std::make_unique<FolderWriter>(set, shard);
}

}  // namespace imgd::data
