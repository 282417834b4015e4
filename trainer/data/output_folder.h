#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "common/error.h"
#include "common/files.h"

namespace imgd::data {

/// A folder that one conversion at a time writes to: it is locked (flock(2) on a hidden file in it) as long
/// as this lives, against threads and other processes, also after a crash of one.
class OutputFolder {
 public:
  /// Makes the folder where it is missing. Errors: kAlreadyExists when another conversion has it; as
  /// mkdir(2), open(2).
  static Result<OutputFolder> Lock(const std::string& path);
  OutputFolder(OutputFolder&&) = default;
  OutputFolder& operator=(OutputFolder&&) = delete;
  /// Takes the lock's file away, and what was made here and is still empty.
  ~OutputFolder();

  const std::string& path() const { return path_; }
  std::string Path(const std::string& name) const { return (std::filesystem::path(path_) / name).string(); }
  /// Whether nothing but the lock is in it.
  bool IsEmpty() const;

 private:
  OutputFolder(std::string path, UniqueFd lock, std::vector<std::filesystem::path> made)
      : path_(std::move(path)), lock_(std::move(lock)), made_(std::move(made)) {}

  std::string path_;
  UniqueFd lock_;
  std::vector<std::filesystem::path> made_;  ///< innermost first
};

}  // namespace imgd::data
