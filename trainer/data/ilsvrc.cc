#include "trainer/data/ilsvrc.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <filesystem>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <system_error>

#include "common/files.h"
#include "trainer/data/inflate.h"
#include "trainer/data/matlab.h"
#include "trainer/data/shard_index.h"
#include "trainer/data/shard_set.h"
#include "trainer/data/source.h"
#include "trainer/data/tar.h"

namespace imgd::data {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kTruthName = "ILSVRC2012_validation_ground_truth.txt";
constexpr std::string_view kMetaName = "meta.mat";
/// What is looked for beside an archive, the first that is there.
constexpr std::array<const char*, 4> kDevkitNames = {"ILSVRC2012_devkit_t12.tar.gz",
                                                     "ILSVRC2012_devkit_t12.tar", "ILSVRC2012_devkit_t12",
                                                     "imagenet_2012_validation_synset_labels.txt"};
constexpr uint64_t kMostBytes = uint64_t{16} << 20;  ///< of a file of the devkit
constexpr size_t kMostValImages = 10'000'000;
constexpr size_t kNamesShown = 5;

/// The two files of the devkit that are wanted, as they are.
struct DevkitFiles {
  std::optional<std::string> truth;
  std::optional<std::string> meta;
};

std::string_view BaseName(std::string_view path) { return path.substr(path.rfind('/') + 1); }

Result<DevkitFiles> ReadFolder(const fs::path& folder) {
  DevkitFiles files;
  std::error_code error;
  for (const auto& place : {folder, folder / "data", folder / "ILSVRC2012_devkit_t12" / "data"}) {
    if (!files.truth && fs::exists(place / kTruthName, error)) {
      IMGD_ASSIGN(files.truth, ReadFile(place / kTruthName, kMostBytes));
    }
    if (!files.meta && fs::exists(place / kMetaName, error)) {
      IMGD_ASSIGN(files.meta, ReadFile(place / kMetaName, kMostBytes));
    }
  }
  return files;
}

Result<DevkitFiles> ReadTar(const Source& archive) {
  DevkitFiles files;
  TarReader tar(archive, TarLinks::kPassedOver);
  while (!files.truth || !files.meta) {
    IMGD_ASSIGN(const auto entry, tar.Next());
    if (!entry) break;
    auto* file = BaseName(entry->name) == kTruthName ? &files.truth : &files.meta;
    if (file == &files.meta && BaseName(entry->name) != kMetaName) continue;
    if (entry->size > kMostBytes) {
      return Fail(ErrorCode::kDataLoss, "{}: {} has {} bytes, where at most {} are possible", archive.name(),
                  entry->name, entry->size, kMostBytes);
    }
    IMGD_ASSIGN(*file, ReadText(archive, entry->offset, entry->size));
  }
  return files;
}

/// The lines of a text without what stands at their ends; empty ones at its end are none.
std::vector<std::string_view> LinesOf(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    while (!line.empty() && std::string_view(" \t\r").find(line.back()) != std::string_view::npos)
      line.remove_suffix(1);
    lines.push_back(line);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  while (!lines.empty() && lines.back().empty()) lines.pop_back();
  return lines;
}

tl::unexpected<Error> BadLine(const std::string& file, size_t line, const std::string& what) {
  return tl::unexpected<Error>(
      Error{.code = ErrorCode::kDataLoss, .message = what, .file = file, .line = static_cast<int>(line)});
}

/// Position of a field of the struct array.
Result<size_t> FieldOf(const MatArray& synsets, const std::string& name, const std::string& file) {
  const auto found = std::ranges::find(synsets.fields, name);
  if (found != synsets.fields.end()) return static_cast<size_t>(found - synsets.fields.begin());
  return Fail(ErrorCode::kDataLoss, "{}: the structs of 'synsets' have no field '{}'", file, name);
}

std::optional<int32_t> WholeOf(const MatArray& array) {
  if (array.kind != MatArray::Kind::kNumbers || array.numbers.size() != 1) return std::nullopt;
  const double value = array.numbers[0];
  if (!(value >= 0 && value <= std::numeric_limits<int32_t>::max())) return std::nullopt;
  return static_cast<int32_t>(value);
}

/// The leaves of the tree, which are the classes; by WNID.
Result<std::vector<IlsvrcDevkit::Synset>> SynsetsOf(const std::string& meta, const std::string& file) {
  IMGD_ASSIGN(const auto variables, ReadMatFile(meta, file));
  const auto synsets = std::ranges::find(variables, "synsets", &MatArray::name);
  if (synsets == variables.end() || synsets->kind != MatArray::Kind::kStructs)
    return Fail(ErrorCode::kDataLoss, "{} has no array of structs named 'synsets'", file);
  IMGD_ASSIGN(const size_t id_at, FieldOf(*synsets, "ILSVRC2012_ID", file));
  IMGD_ASSIGN(const size_t wnid_at, FieldOf(*synsets, "WNID", file));
  IMGD_ASSIGN(const size_t words_at, FieldOf(*synsets, "words", file));
  IMGD_ASSIGN(const size_t children_at, FieldOf(*synsets, "num_children", file));
  const size_t width = synsets->fields.size();
  std::vector<IlsvrcDevkit::Synset> classes;
  std::set<int32_t> ids;
  for (size_t row = 0; row * width < synsets->items.size(); ++row) {
    const auto field = [&](size_t at) -> const MatArray& { return synsets->items[row * width + at]; };
    const auto id = WholeOf(field(id_at));
    const auto children = WholeOf(field(children_at));
    const std::string& wnid = field(wnid_at).text;
    if (!id || !children || !IsWnid(wnid)) {
      return Fail(ErrorCode::kDataLoss,
                  "{}: row {} of 'synsets' has no ILSVRC2012_ID, WNID such as n01440764 and num_children",
                  file, row + 1);
    }
    if (*children != 0) continue;
    if (!ids.insert(*id).second)
      return Fail(ErrorCode::kDataLoss, "{}: two synsets have the ILSVRC2012_ID {}", file, *id);
    classes.push_back({*id, wnid, field(words_at).text});
  }
  std::ranges::sort(classes, {}, &IlsvrcDevkit::Synset::wnid);
  const auto twice = std::ranges::adjacent_find(classes, {}, &IlsvrcDevkit::Synset::wnid);
  if (twice != classes.end())
    return Fail(ErrorCode::kDataLoss, "{}: the class {} is there twice", file, twice->wnid);
  if (classes.empty()) return Fail(ErrorCode::kDataLoss, "{} has no class without children", file);
  return classes;
}

/// Lines of ids to labels.
Status TakeTruth(const std::string& truth, const std::string& file, IlsvrcDevkit& devkit) {
  std::map<int32_t, int32_t> label_of_id;
  for (const auto& synset : devkit.synsets)
    label_of_id.emplace(synset.id, static_cast<int32_t>(label_of_id.size()));
  const auto lines = LinesOf(truth);
  for (size_t i = 0; i < lines.size(); ++i) {
    int32_t id = 0;
    const char* end = lines[i].data() + lines[i].size();
    const auto parsed = std::from_chars(lines[i].data(), end, id);
    const auto label = label_of_id.find(id);
    if (parsed.ec != std::errc() || parsed.ptr != end || label == label_of_id.end()) {
      return BadLine(file, i + 1,
                     fmt::format("found '{}' where the ILSVRC2012_ID of one of the {} classes is expected",
                                 lines[i].substr(0, 40), devkit.synsets.size()));
    }
    devkit.labels.push_back(label->second);
  }
  return {};
}

Result<IlsvrcDevkit> FromLines(const std::string& text, const std::string& file) {
  IlsvrcDevkit devkit{.name = file};
  const auto lines = LinesOf(text);
  for (size_t i = 0; i < lines.size(); ++i) {
    if (IsWnid(lines[i])) continue;
    return BadLine(
        file, i + 1,
        fmt::format("found '{}' where the WNID of an image's class, such as n01440764, is expected",
                    lines[i].substr(0, 40)));
  }
  const std::set<std::string_view> wnids(lines.begin(), lines.end());
  std::map<std::string_view, int32_t> label_of;
  for (const auto wnid : wnids) {
    label_of.emplace(wnid, static_cast<int32_t>(label_of.size()));
    devkit.synsets.push_back({.wnid = std::string(wnid)});
  }
  for (const auto line : lines) devkit.labels.push_back(label_of.at(line));
  if (lines.empty()) return Fail(ErrorCode::kDataLoss, "{} is empty", file);
  return devkit;
}

/// What the kit calls these classes; none where it has no words.
std::vector<std::string> WordsOf(const std::vector<std::string>& classes, const IlsvrcDevkit& devkit) {
  std::map<std::string_view, std::string_view> words_of;
  for (const auto& synset : devkit.synsets) {
    if (!synset.words.empty()) words_of.emplace(synset.wnid, synset.words);
  }
  if (words_of.empty()) return {};
  std::vector<std::string> words;
  for (const auto& name : classes) {
    const auto found = words_of.find(name);
    words.emplace_back(found == words_of.end() ? std::string_view() : found->second);
  }
  return words;
}

/// Images that lie in one archive.
class TarImages final : public Dataset {
 public:
  TarImages(std::shared_ptr<Source> archive, std::vector<TarEntry> images, const IlsvrcDevkit& devkit)
      : archive_(std::move(archive)), images_(std::move(images)) {
    for (const auto& synset : devkit.synsets) classes_.push_back(synset.wnid);
    class_words_ = WordsOf(classes_, devkit);
    labels_ = devkit.labels;
    shard_sizes_ = {static_cast<uint32_t>(images_.size())};
  }

  std::string name(size_t i) const override { return std::string(BaseName(images_[i].name)); }
  std::string place(size_t i) const override {
    return fmt::format("{} at byte {} of {}", images_[i].name, images_[i].offset, archive_->name());
  }
  const std::vector<uint32_t>& shard_sizes() const override { return shard_sizes_; }
  Result<uint64_t> FileBytes(size_t i) const override { return images_[i].size; }
  Status Read(size_t i, FileBuffer& out) const override {
    if (images_[i].size > kMaxFileBytes) {
      return Fail(ErrorCode::kDataLoss, "the file has {} MiB; at most {} MiB are allowed",
                  images_[i].size >> 20, kMaxFileBytes >> 20);
    }
    return archive_->ReadUntil(images_[i].offset, out.Take(images_[i].size), out.stop);
  }

 private:
  std::shared_ptr<Source> archive_;
  std::vector<TarEntry> images_;
  std::vector<uint32_t> shard_sizes_;
};

/// "n01440764, n01443537 and 3 more"
std::string Named(const std::vector<std::string>& words) {
  std::string text;
  for (size_t i = 0; i < std::min(words.size(), kNamesShown); ++i) text += (i == 0 ? "" : ", ") + words[i];
  if (words.size() > kNamesShown) text += fmt::format(" and {} more", words.size() - kNamesShown);
  return text;
}

Status CheckClasses(const std::vector<std::string>& found, const IlsvrcDevkit& devkit,
                    const std::string& archive) {
  std::vector<std::string> wanted;
  for (const auto& synset : devkit.synsets) wanted.push_back(synset.wnid);
  std::vector<std::string> missing;
  std::vector<std::string> unknown;
  std::ranges::set_difference(wanted, found, std::back_inserter(missing));
  std::ranges::set_difference(found, wanted, std::back_inserter(unknown));
  if (missing.empty() && unknown.empty()) return {};
  std::string what =
      fmt::format("{} has {} classes, {} has {}", archive, found.size(), devkit.name, wanted.size());
  if (!missing.empty()) what += fmt::format("; missing in the archive: {}", Named(missing));
  if (!unknown.empty()) what += fmt::format("; not in the devkit: {}", Named(unknown));
  return Fail(ErrorCode::kDataLoss, "{}", what);
}

/// The archive itself, or the one of that name in the folder.
Result<std::string> FindArchive(const std::string& where, IlsvrcPart part) {
  std::error_code error;
  if (!fs::is_directory(where, error)) {
    if (fs::exists(where, error)) return where;
    return Fail(ErrorCode::kNotFound, "no file or folder {}", where);
  }
  const char* name = part == IlsvrcPart::kTrain ? kIlsvrcTrainArchive : kIlsvrcValArchive;
  const fs::path archive = fs::path(where) / name;
  if (fs::exists(archive, error)) return archive.string();
  Error missing{.code = ErrorCode::kNotFound, .message = fmt::format("{} has no {}", where, name)};
  missing.hint = "image-net.org gives it to those who register; it is read as it is downloaded, not unpacked";
  return tl::unexpected<Error>(std::move(missing));
}

/// Whether it is a tar of tars. Errors: those of TarReader.
Result<bool> HoldsTars(const std::string& archive) {
  IMGD_ASSIGN(const auto file, OpenFileSource(archive));
  TarReader tar(*file);
  IMGD_ASSIGN(const auto first, tar.Next());
  return first && first->name.ends_with(".tar");
}

std::string DevkitBeside(const std::string& archive) {
  const fs::path folder = fs::path(archive).parent_path();
  std::error_code error;
  for (const char* name : kDevkitNames) {
    if (fs::exists(folder / name, error)) return (folder / name).string();
  }
  return "";
}

}  // namespace

bool IsIlsvrcValidationArchive(const std::string& path) { return BaseName(path) == kIlsvrcValArchive; }

Result<IlsvrcDevkit> ReadIlsvrcDevkit(const std::string& path) {
  std::error_code error;
  if (path.ends_with(".txt") && !fs::is_directory(path, error)) {
    IMGD_ASSIGN(const std::string text, ReadFile(path, kMostBytes));
    return FromLines(text, path);
  }
  DevkitFiles files;
  if (fs::is_directory(path, error)) {
    IMGD_ASSIGN(files, ReadFolder(path));
  } else {
    IMGD_ASSIGN(const auto archive, OpenUnpacked(path));
    IMGD_ASSIGN(files, ReadTar(*archive));
  }
  if (!files.truth || !files.meta) {
    return Fail(ErrorCode::kNotFound, "{} is no development kit of ILSVRC2012: it has no data/{}", path,
                files.meta ? kTruthName : kMetaName);
  }
  IlsvrcDevkit devkit{.name = path};
  IMGD_ASSIGN(devkit.synsets, SynsetsOf(*files.meta, fmt::format("{}/data/{}", path, kMetaName)));
  IMGD_TRY(TakeTruth(*files.truth, fmt::format("{}/data/{}", path, kTruthName), devkit));
  return devkit;
}

Result<std::unique_ptr<Dataset>> OpenIlsvrcValidation(const std::string& archive,
                                                      const IlsvrcDevkit& devkit) {
  IMGD_ASSIGN(auto file, OpenFileSource(archive));
  std::vector<TarEntry> images;
  TarReader tar(*file);
  for (;;) {
    IMGD_ASSIGN(auto entry, tar.Next());
    if (!entry) break;
    if (BaseName(entry->name).starts_with('.')) continue;  // what some systems put beside each file
    if (images.size() == kMostValImages)
      return Fail(ErrorCode::kDataLoss, "{} has more than {} files", archive, kMostValImages);
    images.push_back(std::move(*entry));
  }
  const auto base_name = [](const TarEntry& entry) { return BaseName(entry.name); };
  std::ranges::sort(images, {}, base_name);
  const auto twice = std::ranges::adjacent_find(images, {}, base_name);
  if (twice != images.end())
    return Fail(ErrorCode::kDataLoss, "{} has two files named {}", archive, base_name(*twice));
  if (images.empty() || images.size() != devkit.labels.size()) {
    return Fail(ErrorCode::kDataLoss, "{} has {} images, but {} says what {} images show", archive,
                images.size(), devkit.name, devkit.labels.size());
  }
  return std::make_unique<TarImages>(std::move(file), std::move(images), devkit);
}

Result<std::unique_ptr<Dataset>> OpenIlsvrcTraining(const std::string& archive, const IlsvrcDevkit* devkit) {
  IMGD_ASSIGN(auto set, ShardSet::Open(archive));
  if (devkit != nullptr) {
    IMGD_TRY(CheckClasses(set->classes(), *devkit, archive));
    set->SetClassWords(WordsOf(set->classes(), *devkit));
  }
  return set;
}

Result<std::unique_ptr<Dataset>> OpenIlsvrc2012(const std::string& where, IlsvrcPart part,
                                                const std::string& devkit) {
  IMGD_ASSIGN(const std::string archive, FindArchive(where, part));
  IMGD_ASSIGN(const bool of_tars, HoldsTars(archive));
  if (of_tars != (part == IlsvrcPart::kTrain)) {
    return Fail(ErrorCode::kInvalidArgument, "{} is {} archive, where that of the {} images is asked for",
                archive, of_tars ? "a training" : "no training", of_tars ? "validation" : "training");
  }
  const std::string devkit_path = devkit.empty() ? DevkitBeside(archive) : devkit;
  if (devkit_path.empty() && part == IlsvrcPart::kTrain) return OpenIlsvrcTraining(archive, nullptr);
  if (devkit_path.empty()) {
    Error missing{.code = ErrorCode::kNotFound,
                  .message = fmt::format("{} does not say what its images show, and there is no {} beside it",
                                         archive, kDevkitNames[0])};
    missing.hint =
        "it is among the downloads of ILSVRC2012 on image-net.org; --devkit takes it, the folder it unpacks "
        "to, or "
        "a text file with a WNID such as n01440764 on a line for each image, in the order of their names";
    return tl::unexpected<Error>(std::move(missing));
  }
  IMGD_ASSIGN(const auto kit, ReadIlsvrcDevkit(devkit_path));
  if (part == IlsvrcPart::kVal) return OpenIlsvrcValidation(archive, kit);
  return OpenIlsvrcTraining(archive, &kit);
}

}  // namespace imgd::data
