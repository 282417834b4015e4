#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "common/error.h"

namespace imgd::data {

/// A data set kept as one folder for each class, as torchvision's ImageFolder reads it: classes are the
/// sorted names of the sub-folders, labels their ranks, images the files below them (any depth) in sorted
/// order.
class ImageFolder {
 public:
  /// Lists the folder. Files that are not images by their ending (.jpg .jpeg .JPEG .JPG) are passed over.
  /// Errors: kNotFound when there is no such folder; kInvalidArgument when it has no class folder or no
  /// image, saying what was found instead.
  static Result<ImageFolder> Open(const std::filesystem::path& root);

  size_t size() const { return labels_.size(); }
  const std::vector<std::string>& classes() const { return classes_; }
  int32_t label(size_t i) const { return labels_[i]; }
  /// Path below root().
  const std::string& name(size_t i) const { return names_[i]; }
  std::filesystem::path path(size_t i) const { return root_ / names_[i]; }
  const std::filesystem::path& root() const { return root_; }

 private:
  std::filesystem::path root_;
  std::vector<std::string> classes_;
  std::vector<std::string> names_;
  std::vector<int32_t> labels_;
};

}  // namespace imgd::data
