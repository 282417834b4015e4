#include "trainer/data/convert_source.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <map>
#include <system_error>

#include "common/url.h"
#include "trainer/data/bounding_boxes.h"
#include "trainer/data/crc32c.h"
#include "trainer/data/ilsvrc.h"
#include "trainer/data/shard_index.h"
#include "trainer/data/shard_list.h"
#include "trainer/data/shard_set.h"
#include "trainer/data/source.h"
#include "trainer/data/subset.h"

namespace imgd::data {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kPieceOfArchive = uint64_t{4} << 20;
constexpr std::array<const char*, 3> kPartFolders = {"train", "val", "validation"};

std::string PartNameOf(std::string_view folder) { return folder == "train" ? "train" : "val"; }

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
  return source && HoldsTars(**source).value_or(false);
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
  for (const auto& part : PartsOf(where)) {
    IMGD_ASSIGN(const auto inner, LookIntoFolder(part.where));
    if (source.form && inner.form != source.form) {
      return Fail(ErrorCode::kInvalidArgument, "{} holds train/ as {} and {}/ as {}; convert them one by one",
                  where, NameOf(*source.form), fs::path(part.where).filename().string(), NameOf(*inner.form));
    }
    source.form = inner.form;
    source.parts.push_back(part);
  }
  if (!source.parts.empty()) return source;
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
  const bool is_url = IsUrl(where);
  if (is_url && !IsShardName(NameOfFile(where))) {
    if (auto parts = PartsOf(where); !parts.empty()) source.parts = std::move(parts);
    return source;
  }
  source.form = FormOfShards(is_url ? NameOfFile(where) : where);
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
  if (!is_pattern && !IsUrl(where)) {
    if (!fs::exists(where, error)) return Fail(ErrorCode::kNotFound, "no folder or file {}", where);
    if (!IsShardName(where)) {
      return Fail(ErrorCode::kInvalidArgument,
                  "{} is a file, but no shard by its name (.tar, .rec, .tfrecord, train-00000-of-01024)",
                  where);
    }
  }
  return LookAtName(where);
}

/// Of a server, whose folders can't be listed as such.
std::vector<SourcePart> PartsAt(const std::string& url) {
  auto settings = SourceSettings::FromEnvironment();
  if (!settings) return {};
  const SourceOpener opener(std::move(*settings));
  const auto whole = ListShards(url, opener);
  const bool is_away = !whole && whole.error().code != ErrorCode::kNotFound &&
                       whole.error().code != ErrorCode::kFailedPrecondition;  // it lists nothing as JSON
  if (is_away || (whole && !whole->shards.empty())) return {};
  std::vector<SourcePart> parts;
  for (const char* name : kPartFolders) {
    const std::string part = PartNameOf(name);
    if (!parts.empty() && parts.back().name == part) continue;
    const std::string where = Beside(url, name);
    const auto list = ListShards(where, opener);
    if (list && !list->shards.empty()) parts.push_back({part, where});
  }
  return parts;
}

}  // namespace

std::vector<SourcePart> PartsOf(const std::string& folder) {
  if (IsUrl(folder)) return IsShardName(NameOfFile(folder)) ? std::vector<SourcePart>() : PartsAt(folder);
  std::vector<SourcePart> parts;
  for (const char* name : kPartFolders) {
    const std::string part = PartNameOf(name);
    if (!parts.empty() && parts.back().name == part) continue;  // val/ and validation/: the former
    const std::string where = In(folder, name);
    std::error_code error;
    if (!fs::is_directory(where, error)) continue;
    const auto inner = List(where);
    const bool is_set = inner && (!inner->folders.empty() || !inner->shards.empty() ||
                                  inner->Has(inner->others, kConversionPlanName));
    if (is_set) parts.push_back({part, where});
  }
  return parts;
}

Status CheckOutside(const std::string& source, const std::string& out) {
  std::error_code error;
  if (!fs::is_directory(source, error)) return {};
  const fs::path from = fs::canonical(source, error);
  if (error) return FailErrno(error.value(), fmt::format("cannot look at {}", source));
  fs::path to = fs::weakly_canonical(fs::absolute(out, error), error);
  if (error) return FailErrno(error.value(), fmt::format("cannot look at {}", out));
  to = fs::path(to.string() + "/").lexically_normal();
  const bool inside = std::mismatch(from.begin(), from.end(), to.begin(), to.end()).first == from.end();
  if (!inside) return {};
  return Fail(ErrorCode::kInvalidArgument,
              "{} lies in {}, which it is made from; take a folder outside of it", out, source);
}

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

namespace {

/// Which file it is, by its content.
Result<std::string> IdOf(const std::string& path) {
  IMGD_ASSIGN(const auto source, OpenSource(path));
  std::vector<uint8_t> piece;
  uint32_t crc = 0;
  for (uint64_t at = 0; at < source->size(); at += piece.size()) {
    piece.resize(static_cast<size_t>(std::min(kPieceOfArchive, source->size() - at)));
    IMGD_TRY(source->ReadAt(at, piece));
    crc = Crc32c(piece, crc);
  }
  return fmt::format("{} {} {:08x}", fs::path(path).filename().string(), source->size(), crc);
}

std::vector<ObjectBox> SharesOf(const ImageBoxes& image, const std::map<std::string, int32_t>& labels) {
  std::vector<ObjectBox> out;
  if (image.width <= 0 || image.height <= 0) return out;
  const auto share = [](int32_t edge, int32_t whole) {
    return static_cast<float>(edge) / static_cast<float>(whole);
  };
  for (const auto& box : image.boxes) {
    const auto label = labels.find(box.wnid);
    out.push_back({.xmin = share(box.xmin, image.width),
                   .ymin = share(box.ymin, image.height),
                   .xmax = share(box.xmax, image.width),
                   .ymax = share(box.ymax, image.height),
                   .label = label == labels.end() ? -1 : label->second});
  }
  return out;
}

}  // namespace

Result<Boxes> OpenBoxes(const std::vector<std::string>& archives, const std::vector<std::string>& classes) {
  Boxes out;
  auto all = std::make_shared<std::vector<BoundingBoxes>>();
  for (const auto& archive : archives) {
    IMGD_ASSIGN(auto read, BoundingBoxes::Read(archive));
    all->push_back(std::move(read));
    IMGD_ASSIGN(const std::string id, IdOf(archive));
    out.id += (out.id.empty() ? "" : ", ") + id;
  }
  std::map<std::string, int32_t> labels;
  for (const auto& name : classes) labels.emplace(name, static_cast<int32_t>(labels.size()));
  out.of = [all, labels](std::string_view name) {
    for (const auto& archive : *all) {
      if (const ImageBoxes* found = archive.Find(name)) return SharesOf(*found, labels);
    }
    return std::vector<ObjectBox>();
  };
  return out;
}

}  // namespace imgd::data
