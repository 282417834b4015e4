#include "trainer/data/convert_source.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <map>
#include <system_error>

#include "trainer/data/bounding_boxes.h"
#include "trainer/data/ilsvrc.h"
#include "trainer/data/shard_index.h"
#include "trainer/data/shard_set.h"
#include "trainer/data/source.h"
#include "trainer/data/subset.h"
#include "trainer/data/tar.h"

namespace imgd::data {
namespace {

namespace fs = std::filesystem;

Result<std::unique_ptr<Dataset>> OpenIlsvrcPart(const std::string& where, const std::string& part,
                                                const std::string& devkit) {
  std::error_code error;
  const bool only_val = part.empty() && (IsIlsvrcValidationArchive(where) ||
                                         (fs::exists(fs::path(where) / kIlsvrcValArchive, error) &&
                                          !fs::exists(fs::path(where) / kIlsvrcTrainArchive, error)));
  return OpenIlsvrc2012(where, part == "val" || only_val ? IlsvrcPart::kVal : IlsvrcPart::kTrain, devkit);
}

SourceForm FormOfShards(const std::string& name) {
  switch (FormOf(name)) {
    case ShardForm::kRecordIo:
      return SourceForm::kRecordIo;
    case ShardForm::kTfRecord:
      return SourceForm::kTfRecord;
    case ShardForm::kTar:
      break;
  }
  return SourceForm::kWebDataset;
}

/// A tar of tars is ImageNet's training archive under whatever name; one that can't be read will be said when
/// it is opened.
bool IsTarOfTars(const std::string& path) {
  const auto source = OpenFileSource(path);
  if (!source) return false;
  const auto first = TarReader(**source).Next();
  return first && *first && (*first)->name.ends_with(".tar");
}

struct Folder {
  std::vector<std::string> folders;
  std::vector<std::string> shards;  ///< sorted
  std::vector<std::string> others;
  bool Has(const std::vector<std::string>& names, std::string_view name) const {
    return std::ranges::find(names, name) != names.end();
  }
};

Result<Folder> List(const std::string& where) {
  Folder folder;
  std::error_code error;
  for (fs::directory_iterator it(where, error), end; !error && it != end; it.increment(error)) {
    std::string name = it->path().filename().string();
    std::error_code ignored;
    if (it->is_directory(ignored)) {
      if (!name.starts_with('.')) folder.folders.push_back(std::move(name));
    } else {
      (IsShardName(name) ? folder.shards : folder.others).push_back(std::move(name));
    }
  }
  if (error) return FailErrno(error.value(), fmt::format("cannot list {}", where));
  for (auto* names : {&folder.folders, &folder.shards, &folder.others}) std::ranges::sort(*names);
  return folder;
}

std::string In(const std::string& folder, std::string_view name) {
  return (fs::path(folder) / name).string();
}

/// TFRecords of two sets in one folder, as ImageNet's usually lie.
std::vector<SourcePart> PartsByPattern(const std::string& where, const Folder& folder) {
  if (where.find_first_of("*?[]{}\\") != std::string::npos || folder.Has(folder.others, kDescriptionName))
    return {};
  const auto has = [&](std::string_view start) {
    return std::ranges::any_of(folder.shards, [&](const auto& name) { return name.starts_with(start); });
  };
  if (!has("train-")) return {};
  for (const char* val : {"validation-", "val-"}) {
    if (has(val))
      return {{"train", In(where, "train-*-of-*")}, {"val", In(where, fmt::format("{}*-of-*", val))}};
  }
  return {};
}

Result<ConvertSource> LookIntoFolder(const std::string& where) {
  IMGD_ASSIGN(const Folder folder, List(where));
  ConvertSource source;
  const bool train = folder.Has(folder.shards, kIlsvrcTrainArchive);
  const bool val = folder.Has(folder.shards, kIlsvrcValArchive);
  if (train || val) {
    source.form = SourceForm::kIlsvrc2012;
    if (train) source.parts.push_back({"train", where});
    if (val) source.parts.push_back({"val", where});
    return source;
  }
  if (!folder.shards.empty()) {
    source.form = FormOfShards(folder.shards.front());
    if (*source.form == SourceForm::kTfRecord) source.parts = PartsByPattern(where, folder);
    if (source.parts.empty()) source.parts.push_back({"", where});
    return source;
  }
  if (folder.Has(folder.folders, "train") && folder.Has(folder.folders, "val")) {
    for (const char* name : {"train", "val"}) {
      IMGD_ASSIGN(const auto inner, LookIntoFolder(In(where, name)));
      if (source.form && inner.form != source.form) {
        return Fail(ErrorCode::kInvalidArgument,
                    "{} holds train/ as {} and val/ as {}; convert them one by one", where,
                    NameOf(*source.form), NameOf(*inner.form));
      }
      source.form = inner.form;
      source.parts.push_back({name, In(where, name)});
    }
    return source;
  }
  if (folder.folders.empty() && !folder.Has(folder.others, kConversionPlanName)) {
    return Fail(
        ErrorCode::kInvalidArgument,
        "{} holds no data set: neither shards (.tar, .rec, .tfrecord, train-00000-of-01024) nor a folder "
        "for each class, only {} other files",
        where, folder.others.size());
  }
  source.form = SourceForm::kImageFolder;
  source.parts.push_back({"", where});
  return source;
}

ConvertSource LookAtName(const std::string& where) {
  ConvertSource source{.parts = {{"", where}}};
  const bool is_url = where.find("://") != std::string::npos;
  if (is_url && !IsShardName(where)) return source;
  source.form = FormOfShards(where);
  const std::string file = fs::path(where).filename().string();
  if (file == kIlsvrcValArchive) {
    source.form = SourceForm::kIlsvrc2012;
    source.parts.front().name = "val";
  } else if (file == kIlsvrcTrainArchive || (file.ends_with(".tar") && !is_url && IsTarOfTars(where))) {
    source.form = SourceForm::kIlsvrc2012;
    source.parts.front().name = "train";
  }
  return source;
}

Result<ConvertSource> Look(const std::string& where) {
  std::error_code error;
  if (fs::is_directory(where, error)) return LookIntoFolder(where);
  const bool is_pattern = where.find_first_of("*?[{") != std::string::npos;
  const bool is_url = where.find("://") != std::string::npos;
  if (!is_pattern && !is_url) {
    if (!fs::exists(where, error)) return Fail(ErrorCode::kNotFound, "no folder or file {}", where);
    if (!IsShardName(where)) {
      return Fail(ErrorCode::kInvalidArgument,
                  "{} is a file, but no shard by its name (.tar, .rec, .tfrecord, train-00000-of-01024)",
                  where);
    }
  }
  return LookAtName(where);
}

}  // namespace

std::string_view NameOf(SourceForm form) {
  static constexpr std::array<std::string_view, 5> kNames = {"ilsvrc2012", "imagefolder", "webdataset",
                                                             "tfrecord", "recordio"};
  return kNames[static_cast<size_t>(form)];
}

Result<ConvertSource> FindSource(const std::string& where, std::optional<SourceForm> wanted) {
  IMGD_ASSIGN(auto source, Look(where));
  if (!wanted || !source.form || *wanted == *source.form) return source;
  return Fail(ErrorCode::kInvalidArgument, "--from {}: found {} in {}", NameOf(*wanted), NameOf(*source.form),
              where);
}

Result<std::unique_ptr<Dataset>> OpenPart(const ConvertSource& source, const SourcePart& part,
                                          const SourceExtras& extras,
                                          const std::vector<std::string>* classes_of_train) {
  auto opened = source.form == SourceForm::kIlsvrc2012 ? OpenIlsvrcPart(part.where, part.name, extras.devkit)
                                                       : OpenDataset(part.where);
  if (!opened) return opened;
  auto set = std::move(*opened);
  if (!extras.classes.empty()) {
    if (classes_of_train == nullptr) IMGD_TRY(CheckClasses(*set, extras.classes, part.where));
    return Subset::Of(std::move(set), extras.classes);
  }
  if (classes_of_train == nullptr || set->classes() == *classes_of_train) return set;
  for (const auto& name : set->classes()) {
    if (std::ranges::find(*classes_of_train, name) != classes_of_train->end()) continue;
    return Fail(ErrorCode::kInvalidArgument, "{} has the class '{}', which the training part lacks",
                part.where, name);
  }
  return Subset::Of(std::move(set), *classes_of_train);
}

Result<BoxesOf> OpenBoxes(const std::string& archive, const std::vector<std::string>& classes) {
  IMGD_ASSIGN(auto read, BoundingBoxes::Read(archive));
  auto boxes = std::make_shared<const BoundingBoxes>(std::move(read));
  std::map<std::string, int32_t> labels;
  for (const auto& name : classes) labels.emplace(name, static_cast<int32_t>(labels.size()));
  return [boxes, labels](std::string_view name) {
    std::vector<ObjectBox> out;
    const ImageBoxes* found = boxes->Find(name);
    if (found == nullptr || found->width <= 0 || found->height <= 0) return out;
    const auto share = [](int32_t edge, int32_t whole) {
      return static_cast<float>(edge) / static_cast<float>(whole);
    };
    for (const auto& box : found->boxes) {
      const auto label = labels.find(box.wnid);
      out.push_back({.xmin = share(box.xmin, found->width),
                     .ymin = share(box.ymin, found->height),
                     .xmax = share(box.xmax, found->width),
                     .ymax = share(box.ymax, found->height),
                     .label = label == labels.end() ? -1 : label->second});
    }
    return out;
  };
}

}  // namespace imgd::data
