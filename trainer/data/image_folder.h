#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "common/error.h"
#include "trainer/data/dataset.h"

namespace imgd::data {

/// In a class folder without images: the class is meant, and keeps its label.
constexpr const char* kEmptyClassName = ".empty";

/// A data set kept as one folder for each class, as torchvision's ImageFolder reads it: classes are the
/// sorted names of the sub-folders, labels their ranks, images the files below them (any depth) in sorted
/// order.
class ImageFolder final : public Dataset {
 public:
  /// Lists the folder. Files that are not images by their ending (.jpg, .jpeg, .png, in capitals or not) are
  /// passed over; notes() say of images in other forms.
  /// A class folder without images must hold a file kEmptyClassName.
  /// Errors: kNotFound when there is no such folder; kInvalidArgument when it has no class folder or no
  /// image, saying what was found instead.
  static Result<ImageFolder> Open(const std::filesystem::path& root);

  /// Path below root().
  std::string name(size_t i) const override { return names_[i]; }
  std::string place(size_t i) const override { return path(i).string(); }
  /// None: each file costs the same whenever it is read.
  const std::vector<uint32_t>& shard_sizes() const override;
  Result<uint64_t> FileBytes(size_t i) const override;
  Status Read(size_t i, FileBuffer& out) const override;

  std::filesystem::path path(size_t i) const { return root_ / names_[i]; }
  const std::filesystem::path& root() const { return root_; }

 private:
  std::filesystem::path root_;
  std::vector<std::string> names_;
};

}  // namespace imgd::data
