#include "trainer/data/image_folder.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <limits>
#include <system_error>

#include "common/files.h"
#include "trainer/data/image_name.h"
#include "trainer/data/shard_index.h"

namespace imgd::data {
namespace {

namespace fs = std::filesystem;

// Deeper than this is a link that leads back up.
constexpr int kMaxDepth = 32;
constexpr size_t kFoldersShown = 5;

bool IsHidden(const std::string& name) { return name.starts_with('.'); }

struct Listing {
  std::vector<std::string> folders;  // sorted
  std::vector<std::string> images;   // sorted
  size_t others = 0;
  std::vector<std::string> unread;  ///< of the others, images in forms that are not read
};

/// Files that are no images.
struct Others {
  size_t count = 0;
  size_t unread = 0;
  std::string first_unread;
};

Result<Listing> List(const fs::path& folder) {
  Listing listing;
  std::error_code error;
  fs::directory_iterator it(folder, error);
  for (; !error && it != fs::directory_iterator(); it.increment(error)) {
    std::string name = it->path().filename().string();
    if (IsHidden(name)) continue;
    std::error_code ignored;  // a link to nowhere is no folder
    if (it->is_directory(ignored)) {
      listing.folders.push_back(std::move(name));
    } else if (HasImageEnding(name)) {
      listing.images.push_back(std::move(name));
    } else {
      ++listing.others;
      if (IsUnreadImageEnding(name.substr(name.rfind('.') + 1))) listing.unread.push_back(std::move(name));
    }
  }
  if (error) return FailErrno(error.value(), fmt::format("cannot list {}", folder.string()));
  std::ranges::sort(listing.folders);
  std::ranges::sort(listing.images);
  return listing;
}

// All folders below a class with their images.
using Folders = std::vector<std::pair<std::string, std::vector<std::string>>>;

Status Walk(const fs::path& root, const std::string& folder, int depth, Folders& folders, Others& others) {
  if (depth > kMaxDepth) {
    return Fail(ErrorCode::kInvalidArgument, "{} is more than {} folders deep; does a link lead back up?",
                (root / folder).string(), kMaxDepth);
  }
  IMGD_ASSIGN(Listing listing, List(root / folder));
  others.count += listing.others;
  others.unread += listing.unread.size();
  if (others.first_unread.empty() && !listing.unread.empty())
    others.first_unread = (root / folder / *std::ranges::min_element(listing.unread)).string();
  folders.emplace_back(folder, std::move(listing.images));
  for (const auto& sub : listing.folders)
    IMGD_TRY(Walk(root, folder + "/" + sub, depth + 1, folders, others));
  return {};
}

// torchvision's order: by the folder's path as a string, then by the file's name.
Status AddImages(const fs::path& root, const std::string& class_name, std::vector<std::string>& names,
                 Others& others) {
  Folders folders;
  IMGD_TRY(Walk(root, class_name, 1, folders, others));
  std::ranges::sort(folders);
  for (const auto& [folder, images] : folders) {
    for (const auto& image : images) names.push_back(folder + "/" + image);
  }
  return {};
}

std::string Joined(const std::vector<std::string>& words) {
  std::string text;
  for (size_t i = 0; i < std::min(words.size(), kFoldersShown); ++i) text += (i == 0 ? "" : ", ") + words[i];
  if (words.size() > kFoldersShown) text += fmt::format(" and {} more", words.size() - kFoldersShown);
  return text;
}

Status CheckIsFolder(const fs::path& root) {
  std::error_code error;
  const auto status = fs::status(root, error);
  if (status.type() == fs::file_type::not_found) {
    return Fail(ErrorCode::kNotFound, "no folder {}", root.string());
  }
  if (error) return FailErrno(error.value(), fmt::format("cannot open {}", root.string()));
  if (status.type() != fs::file_type::directory) {
    return Fail(ErrorCode::kInvalidArgument, "{} is a file, not a folder with one folder for each class",
                root.string());
  }
  return {};
}

}  // namespace

Result<ImageFolder> ImageFolder::Open(const fs::path& root) {
  IMGD_TRY(CheckIsFolder(root));
  IMGD_ASSIGN(Listing top, List(root));
  if (top.folders.empty()) {
    return Fail(
        ErrorCode::kInvalidArgument,
        "{} has no class folder, only {} images and {} other files; it must hold one folder of images "
        "for each class",
        root.string(), top.images.size(), top.others);
  }
  ImageFolder set;
  set.root_ = root;
  std::vector<std::string> empty;
  Others others;
  for (const auto& name : top.folders) {
    const size_t before = set.names_.size();
    IMGD_TRY(AddImages(root, name, set.names_, others));
    std::error_code ignored;
    if (set.names_.size() == before && !fs::exists(root / name / kEmptyClassName, ignored))
      empty.push_back(name);
    set.labels_.resize(set.names_.size(), static_cast<int32_t>(set.classes_.size()));
    set.classes_.push_back(name);
  }
  if (set.names_.empty()) {
    return Fail(
        ErrorCode::kInvalidArgument,
        "no image below {}: {} class folders with {} other files, but none ends in .jpg, .jpeg or .png",
        root.string(), top.folders.size(), others.count);
  }
  if (!empty.empty()) {
    return Fail(ErrorCode::kInvalidArgument,
                "{} of the {} class folders of {} have no image (.jpg, .jpeg, .png): {}", empty.size(),
                top.folders.size(), root.string(), Joined(empty));
  }
  if (set.names_.size() > std::numeric_limits<uint32_t>::max()) {
    return Fail(ErrorCode::kInvalidArgument, "{} has {} images; at most {} are possible", root.string(),
                set.names_.size(), std::numeric_limits<uint32_t>::max());
  }
  if (others.unread > 0) set.notes_.push_back(UnreadImagesNote(others.unread, others.first_unread));
  return set;
}

const std::vector<uint32_t>& ImageFolder::shard_sizes() const {
  static const std::vector<uint32_t> kNone;
  return kNone;
}

Result<uint64_t> ImageFolder::FileBytes(size_t i) const {
  struct stat status {};
  if (::stat(path(i).c_str(), &status) != 0) {
    const int why = errno;
    std::error_code ignored;
    if (why == ENOENT && fs::is_symlink(path(i), ignored))
      return Fail(ErrorCode::kDataLoss, "a link to a file that isn't there");
    return FailErrno(why, fmt::format("cannot look at {}", path(i).string()));
  }
  if (!S_ISREG(status.st_mode)) return Fail(ErrorCode::kDataLoss, "not a plain file");
  return static_cast<uint64_t>(status.st_size);
}

Status ImageFolder::Read(size_t i, FileBuffer& out) const {
  UniqueFd fd(::open(path(i).c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK));
  if (!fd.valid()) return FailErrno(errno, "cannot open the file");
  struct stat status {};
  if (::fstat(fd.get(), &status) != 0) return FailErrno(errno, "cannot look at the file");
  if (!S_ISREG(status.st_mode)) return Fail(ErrorCode::kDataLoss, "not a plain file");
  const auto size = static_cast<size_t>(status.st_size);
  if (size > kMaxFileBytes) {
    return Fail(ErrorCode::kDataLoss, "the file has {} MiB; at most {} MiB are allowed", size >> 20,
                kMaxFileBytes >> 20);
  }
  // One request for the whole file instead of a growing read-ahead window.
  ::posix_fadvise(fd.get(), 0, status.st_size, POSIX_FADV_WILLNEED);
  const auto memory = out.Take(size);
  size_t done = 0;
  while (done < size) {
    const ssize_t n = ::read(fd.get(), memory.data() + done, size - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return FailErrno(errno, "cannot read the file");
    if (n == 0) break;  // it has become shorter; the decoder says what is missing
    done += static_cast<size_t>(n);
  }
  out.size = done;
  return {};
}

}  // namespace imgd::data
