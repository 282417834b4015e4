#include "trainer/data/convert.h"

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <system_error>
#include <thread>
#include <unordered_set>
#include <vector>

#include "common/files.h"
#include "trainer/data/crc32c.h"
#include "trainer/data/folder_writer.h"
#include "trainer/data/permutation.h"
#include "trainer/data/shard_set.h"
#include "trainer/data/source_check.h"
#include "trainer/data/subset.h"

namespace imgd::data {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kFolderBlock = 1000;  ///< files of an ImageFolder that are synced together
constexpr size_t kSizeSamples = 32;      ///< images that are made smaller to guess all sizes
constexpr size_t kPollEvery = 1024;      ///< images, where each costs little

tl::unexpected<Error> Bad(std::string message) {
  return tl::unexpected<Error>(Error{.code = ErrorCode::kInvalidArgument, .message = std::move(message)});
}

Status CheckOptions(const ConvertOptions& options) {
  if (options.jobs < 1 || options.jobs > 1024) return Bad("jobs must be from 1 to 1024");
  if (options.shard_bytes < 1) return Bad("the size of a shard must be at least 1 byte");
  const auto is_plain = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-' || c == '.';
  };
  const std::string& name = options.name;
  if (name.empty() || name.size() > 200 || name[0] == '.' || name[0] == '-' ||
      !std::ranges::all_of(name, is_plain)) {
    return Bad(
        fmt::format("'{}' is no name for a set: letters, digits, '_', '-' and '.' are allowed, the "
                    "first no '-' or '.'",
                    name));
  }
  if (options.images.resize < 0) return Bad("the short side must have at least 1 pixel");
  if (options.images.quality < 1 || options.images.quality > 100)
    return Bad("the quality must be from 1 to 100");
  if (options.images.resize > 0 && !options.images.repair) {
    return Bad("images can't be made smaller without being coded anew, which repairs them");
  }
  if (options.first_label < 0 || options.first_label > 1) return Bad("labels begin at 0 or 1");
  return {};
}

class Converter {
 public:
  Converter(const Dataset& set, const ConvertOptions& options, const std::string& out,
            const ConvertProgress& progress)
      : set_(set), options_(options), progress_(progress) {
    output_.form = options.form;
    output_.folder = out;
    output_.name = options.name;
    output_.classes = set.classes();
    output_.first_label = options.first_label;
    output_.index = options.index;
    output_.boxes = options.boxes;
  }

  Result<ConvertResult> Run() {
    IMGD_TRY(CheckOptions(options_));
    IMGD_TRY(NameFolders());
    IMGD_TRY(CheckNames());
    IMGD_TRY(CountShards());
    IMGD_TRY(OpenPlan());
    IMGD_TRY(CheckSource());
    IMGD_TRY(MakeClasses());
    notes_.resize(output_.shards);
    {
      std::vector<std::jthread> threads;
      for (int i = 0; i < options_.jobs; ++i) threads.emplace_back([this] { Work(); });
    }
    if (failure_) return tl::unexpected<Error>(*failure_);
    return Finish();
  }

 private:
  std::string Path(const std::string& name) const { return (fs::path(output_.folder) / name).string(); }
  std::string NotePath(uint64_t shard) const {
    return Path(fmt::format(".{}.done", ShardNameOf(output_, shard)));
  }
  bool ToFolder() const { return options_.form == OutputForm::kImageFolder; }
  uint32_t First(uint64_t shard) const { return static_cast<uint32_t>(shard * set_.size() / output_.shards); }

  Status NameFolders() {
    if (!ToFolder()) return {};
    IMGD_ASSIGN(auto folders, FolderNamesOf(output_.classes));
    if (folders.renumbered) {
      remarks_.emplace_back(
          "the classes are not in sorted order, so that their labels in this ImageFolder are "
          "others than in the source");
    } else if (folders.names != output_.classes) {
      remarks_.emplace_back(
          "zeros were put before the classes' numbers, so that their sorted order is that of "
          "the labels");
    }
    output_.classes = std::move(folders.names);
    return {};
  }

  Status CheckNames() {
    std::unordered_set<std::string> names;
    for (size_t i = 0; i < set_.size(); ++i) {
      if (i % kPollEvery == 0) IMGD_TRY(Advance(0, 0));
      const auto [name, added] = names.insert(UniqueNameOf(output_, set_.name(i), set_.label(i)));
      if (!added) return Bad(fmt::format("two images have the name '{}', which must be unique", *name));
    }
    return {};
  }

  Status CountShards() {
    uint64_t shards = options_.shards;
    if (ToFolder()) {
      shards = (set_.size() + kFolderBlock - 1) / kFolderBlock;
    } else if (shards == 0) {
      IMGD_ASSIGN(const uint64_t bytes, GuessBytes());
      shards = bytes / options_.shard_bytes + 1;
    }
    shards = std::min<uint64_t>(shards, set_.size());
    if (shards > kMaxShards)
      return Bad(fmt::format("{} shards; at most {} are possible", shards, kMaxShards));
    output_.shards = shards;
    return {};
  }

  /// How large all shards will be.
  Result<uint64_t> GuessBytes() {
    uint64_t bytes = 0;
    for (size_t i = 0; i < set_.size(); ++i) {
      if (i % kPollEvery == 0) IMGD_TRY(Advance(0, 0));
      IMGD_ASSIGN(const uint64_t size, set_.FileBytes(i));
      bytes += size;
    }
    if (options_.images.resize > 0) {
      IMGD_ASSIGN(const double share, ShareLeft());
      bytes = static_cast<uint64_t>(static_cast<double>(bytes) * share);
    }
    return bytes + uint64_t{2048} * set_.size();  // two headers and padding each
  }

  /// What making images smaller leaves of their bytes, by a few from all over the set.
  Result<double> ShareLeft() {
    ImagePreparer preparer(options_.images);
    FileBuffer buffer;
    double before = 0;
    double after = 0;
    const size_t count = std::min(kSizeSamples, set_.size());
    for (size_t k = 0; k < count; ++k) {
      const size_t i = k * set_.size() / count;
      IMGD_ASSIGN(const uint64_t size, set_.FileBytes(i));
      if (size > Dataset::kMaxFileBytes) continue;
      IMGD_TRY(Read(static_cast<uint32_t>(i), buffer));
      const PreparedImage image = preparer.Prepare(buffer.bytes());
      before += static_cast<double>(buffer.size);
      after += image.keep ? static_cast<double>(image.file.size()) : 0;
    }
    return before > 0 ? after / before : 1;
  }

  /// That the folder is free, or holds a part of this very conversion.
  Status OpenPlan() {
    IMGD_TRY(MakeFolders(output_.folder));
    const std::string plan = Plan();
    std::error_code error;
    if (fs::exists(Path(kConversionPlanName), error)) {
      IMGD_ASSIGN(const std::string found, ReadFile(Path(kConversionPlanName)));
      if (found == plan) return {};
      return Bad(fmt::format("{} holds a part of another conversion; remove the folder, or take another",
                             output_.folder));
    }
    if (!fs::is_empty(output_.folder, error)) {
      return Fail(ErrorCode::kAlreadyExists, "{} is not empty; take a new folder", output_.folder);
    }
    return WriteFileAtomically(Path(kConversionPlanName), plan);
  }

  /// All that the bytes of the shards depend on, but for the images themselves.
  std::string Plan() const {
    uint32_t names = 0;
    for (size_t i = 0; i < set_.size(); ++i) {
      const std::string line = fmt::format("{} {}\n", set_.label(i), set_.name(i));
      names = Crc32c(AsBytes(line), names);
    }
    const ImageRules& rules = options_.images;
    const nlohmann::ordered_json json = {{"form", NameOf(options_.form)},
                                         {"name", options_.name},
                                         {"shards", output_.shards},
                                         {"seed", options_.seed},
                                         {"images", set_.size()},
                                         {"names_crc32c", names},
                                         {"resize", rules.resize},
                                         {"quality", rules.quality},
                                         {"repair", rules.repair},
                                         {"restart", rules.restart},
                                         {"index", options_.index},
                                         {"first_label", options_.first_label},
                                         {"boxes", static_cast<bool>(options_.boxes)},
                                         {"classes", output_.classes}};
    return json.dump(1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
  }

  Status CheckSource() {
    const auto* subset = dynamic_cast<const Subset*>(&set_);
    const auto* shards = dynamic_cast<const ShardSet*>(subset != nullptr ? &subset->whole() : &set_);
    if (shards == nullptr || !HasChecksums(*shards)) return {};
    state_.doing = "checking";
    auto wrong = CheckChecksums(*shards, options_.jobs, [this](uint64_t images, uint64_t bytes) {
      return Advance(images, bytes).has_value();
    });
    if (!wrong && wrong.error().code == ErrorCode::kCancelled) return Stopped();
    if (!wrong) return tl::unexpected<Error>(std::move(wrong).error());
    state_ = {.doing = "writing"};
    report_.checksums = std::move(*wrong);
    if (report_.checksums.count == 0 || !options_.strict) return {};
    return Fail(ErrorCode::kDataLoss, "{} of the source's checksums are wrong, the first of {}",
                report_.checksums.count, report_.checksums.names.front());
  }

  Status MakeClasses() { return ToFolder() ? MakeClassFolders(output_.folder, output_.classes) : Status(); }

  void Work() {
    FileBuffer buffer;
    ImagePreparer preparer(options_.images);
    for (uint64_t shard = next_++; shard < output_.shards; shard = next_++) {
      auto note = WriteShard(shard, preparer, buffer);
      const std::lock_guard lock(mutex_);
      if (!note && !failure_) failure_ = note.error();
      if (failure_) return;
      notes_[shard] = std::move(*note);
    }
  }

  Result<ShardNote> WriteShard(uint64_t shard, ImagePreparer& preparer, FileBuffer& buffer) {
    const uint32_t count = First(shard + 1) - First(shard);
    if (auto finished = Finished(shard)) {
      ++kept_;
      IMGD_TRY(CheckStrict(finished->report));
      IMGD_TRY(Advance(count, 0, count));
      return *finished;
    }
    IMGD_ASSIGN(const auto writer, OpenShardWriter(output_, shard));
    ConvertReport report;
    for (uint32_t i = First(shard); i < First(shard + 1); ++i) {
      const uint32_t sample = ToFolder() ? i : order_(i);
      IMGD_TRY(WriteImage(sample, preparer, buffer, *writer, report));
      IMGD_TRY(CheckStrict(report));
      IMGD_TRY(Advance(1, buffer.size));
    }
    IMGD_ASSIGN(auto done, writer->Finish());
    ShardNote note{done.name, done.bytes, done.images, done.crc32c, std::move(report)};
    IMGD_TRY(WriteFileAtomically(NotePath(shard), note.ToJson()));
    return note;
  }

  Status WriteImage(uint32_t sample, ImagePreparer& preparer, FileBuffer& buffer, ShardWriter& writer,
                    ConvertReport& report) {
    buffer.size = 0;
    IMGD_ASSIGN(const uint64_t size, set_.FileBytes(sample));
    if (size > Dataset::kMaxFileBytes) {
      report.AddLeftOut(Finding::kTooLarge, fmt::format("{}: {} MiB", set_.name(sample), size >> 20));
      return {};
    }
    IMGD_TRY(Read(sample, buffer));
    const std::string name = set_.name(sample);
    const PreparedImage image = preparer.Prepare(buffer.bytes());
    report.Add(image, name, options_.images.repair);
    if (!image.keep) return {};
    return writer.Add({.name = name,
                       .id = sample,
                       .label = set_.label(sample),
                       .file = image.file,
                       .facts = image.facts,
                       .restarts = image.restarts});
  }

  Status Read(uint32_t sample, FileBuffer& buffer) const {
    Status read = set_.Read(sample, buffer);
    if (read) return {};
    Error error = std::move(read).error();
    error.message = fmt::format("{}: {}", set_.place(sample), error.message);
    return tl::unexpected<Error>(std::move(error));
  }

  Status CheckStrict(const ConvertReport& report) const {
    if (!options_.strict || report.left_out.empty()) return {};
    const auto& [kind, entry] = *report.left_out.begin();
    return Fail(ErrorCode::kDataLoss, "an image would have to be left out ({}): {}", kind,
                entry.names.front());
  }

  /// A shard is finished when its note is there, which is written after it.
  std::optional<ShardNote> Finished(uint64_t shard) const {
    const auto json = ReadFile(NotePath(shard));
    if (!json) return std::nullopt;
    auto note = ShardNote::Parse(*json, NotePath(shard));
    if (!note || note->name != ShardNameOf(output_, shard)) return std::nullopt;
    std::error_code error;
    if (!ToFolder() && (fs::file_size(Path(note->name), error) != note->bytes || error)) return std::nullopt;
    return std::move(*note);
  }

  Status Advance(uint64_t images, uint64_t bytes, uint64_t skipped = 0) {
    const std::lock_guard lock(mutex_);
    state_.done += images;
    state_.bytes += bytes;
    state_.skipped += skipped;
    state_.total = set_.size();
    if (!progress_ || progress_(state_)) return {};
    return Stopped();
  }

  tl::unexpected<Error> Stopped() const {
    return Fail(ErrorCode::kCancelled, "stopped after {} of {} images; the same command goes on with it",
                state_.done, set_.size());
  }

  Result<ConvertResult> Finish() {
    SetDescription description{.name = options_.name, .classes = output_.classes};
    if (options_.form == OutputForm::kTfRecord) {
      description.first_label = options_.first_label;
      remarks_.push_back(fmt::format("labels in the records begin at {}", options_.first_label));
    }
    ConvertResult result{.shards = output_.shards, .kept = kept_};
    for (const auto& note : notes_) {
      description.shards.push_back({note.name, note.bytes, note.images, note.crc32c});
      result.bytes += note.bytes;
      report_.Merge(note.report);
    }
    result.images = report_.written;
    if (result.images == 0)
      return Fail(ErrorCode::kDataLoss, "none of the {} images could be used", set_.size());
    const ReportHead head{options_.name, std::string(NameOf(options_.form)), set_.size(), options_.images,
                          remarks_};
    IMGD_TRY(WriteFileAtomically(Path(kReportName), ReportToJson(head, report_)));
    if (ToFolder()) {
      IMGD_TRY(MarkEmptyClasses(output_.folder, output_.classes));
    } else {
      IMGD_TRY(WriteFileAtomically(Path(kDescriptionName), description.ToJson()));
    }
    std::error_code ignored;
    fs::remove(Path(kConversionPlanName), ignored);
    for (uint64_t shard = 0; shard < output_.shards; ++shard) fs::remove(NotePath(shard), ignored);
    result.report = std::move(report_);
    result.remarks = std::move(remarks_);
    return result;
  }

  const Dataset& set_;
  const ConvertOptions& options_;
  const ConvertProgress& progress_;
  OutputSet output_;
  const Permutation order_{static_cast<uint32_t>(set_.size()), options_.seed, 0, Purpose::kConversion};
  std::vector<std::string> remarks_;
  ConvertReport report_;  ///< before the threads start, and after they have ended
  std::atomic<uint64_t> next_ = 0;
  std::atomic<uint64_t> kept_ = 0;

  std::mutex mutex_;  // guards what follows, and serialises progress_
  std::vector<ShardNote> notes_;
  ConvertState state_{.doing = "writing"};
  std::optional<Error> failure_;
};

}  // namespace

Result<ConvertResult> WriteShards(const Dataset& set, const ConvertOptions& options, const std::string& out,
                                  const ConvertProgress& progress) {
  return Converter(set, options, out, progress).Run();
}

}  // namespace imgd::data
