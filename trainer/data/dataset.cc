#include "trainer/data/dataset.h"

#include <filesystem>
#include <system_error>

#include "common/dataset_ref.h"
#include "common/url.h"
#include "trainer/data/ilsvrc.h"
#include "trainer/data/image_folder.h"
#include "trainer/data/shard_set.h"

namespace imgd::data {
namespace {

namespace fs = std::filesystem;

/// Whether the folder itself holds shards, rather than folders of images.
bool HoldsShards(const fs::path& folder) {
  std::error_code error;
  if (fs::exists(folder / kDescriptionName, error) || fs::exists(folder / kConversionPlanName, error))
    return true;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    if (IsShardName(it->path().filename().string())) return true;
  }
  return false;
}

template <typename T>
Result<std::unique_ptr<Dataset>> Opened(Result<std::unique_ptr<T>> set) {
  if (!set) return tl::unexpected<Error>(std::move(set).error());
  return std::unique_ptr<Dataset>(std::move(*set));
}

}  // namespace

bool IsShardSet(const std::string& where) {
  if (IsIlsvrcValidationArchive(where)) return false;  // it has no labels of its own
  if (IsUrl(where)) return true;
  std::error_code error;
  const bool is_folder = fs::is_directory(where, error);
  const bool is_pattern = where.find_first_of("*?[{") != std::string::npos || IsShardName(where);
  return is_folder ? HoldsShards(where) : is_pattern;
}

Result<std::unique_ptr<Dataset>> OpenDataset(const std::string& where) {
  if (ParseDatasetRef(where)) {
    return Fail(ErrorCode::kInvalidArgument,
                "{} is a name that imgd knows; without it, name the folder, pattern or URL itself", where);
  }
  if (IsIlsvrcValidationArchive(where)) return OpenIlsvrc2012(where, IlsvrcPart::kVal);
  if (IsShardSet(where)) return Opened(ShardSet::Open(where));
  IMGD_ASSIGN(auto folder, ImageFolder::Open(where));
  return std::unique_ptr<Dataset>(std::make_unique<ImageFolder>(std::move(folder)));
}

}  // namespace imgd::data
