#pragma once

#include <cstdint>
#include <ctime>
#include <string>

#include "common/error.h"
#include "common/files.h"

namespace imgd::data {

/// A file or folder below a root, open.
struct ServedFile {
  UniqueFd fd;
  bool is_folder = false;
  uint64_t size = 0;
  timespec changed{};
  std::string etag;  ///< with its quotes; of size and time of change
};

/// Opens `path` (as IsServedPath allows) below the folder `root` without leaving it: links lead only within.
/// Errors: kNotFound, also for what is neither a plain file nor a folder; kPermissionDenied.
Result<ServedFile> OpenBelow(int root, const std::string& path);

/// "Wed, 01 Jan 2025 00:00:00 GMT"
std::string HttpTime(const timespec& time);

/// The folder's files and folders but for those with a dot in front, sorted: as nginx's autoindex_format
/// json, or as a page with links.
std::string ListingJson(const ServedFile& folder);
std::string ListingHtml(const ServedFile& folder, const std::string& path);

}  // namespace imgd::data
