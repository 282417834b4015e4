#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "common/error.h"

namespace imgd::data {

/// Where an image goes below the set's folder: its class, then its name with the ending of an image's file,
/// less the class where the name begins with it.
std::string PathInFolder(std::string_view class_name, std::string_view name);

/// Names that folders can have so that a reader, who sorts them, gives each class its label again: as they
/// are where they are sorted, with zeros in front where they are the labels themselves. Others are as they
/// are, and get new labels: `renumbered` says so. Errors: kInvalidArgument for two classes of one name, and
/// for what is no name of a folder.
struct FolderNames {
  std::vector<std::string> names;  ///< by label
  bool renumbered = false;
};
Result<FolderNames> FolderNamesOf(const std::vector<std::string>& classes);

/// Makes a folder for each class. Errors: as mkdir(2).
Status MakeClassFolders(const std::string& folder, const std::vector<std::string>& names);
/// Puts kEmptyClassName into those that have nothing in them. Errors: as open(2).
Status MarkEmptyClasses(const std::string& folder, const std::vector<std::string>& names);

}  // namespace imgd::data
