#include "trainer/data/convert.h"

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <system_error>
#include <thread>
#include <vector>

#include "common/files.h"
#include "trainer/data/crc32c.h"
#include "trainer/data/folder_writer.h"
#include "trainer/data/output_boxes.h"
#include "trainer/data/output_names.h"
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
constexpr uint32_t kAhead = 128;         ///< images that are announced before they are read

tl::unexpected<Error> Bad(std::string message) {
  return tl::unexpected<Error>(Error{.code = ErrorCode::kInvalidArgument, .message = std::move(message)});
}

class Converter final : public Conversion {
 public:
  Converter(const Dataset& set, ConvertOptions options, OutputFolder out)
      : set_(set),
        subset_(dynamic_cast<const Subset*>(&set)),
        shard_set_(dynamic_cast<const ShardSet*>(subset_ != nullptr ? &subset_->whole() : &set)),
        options_(std::move(options)),
        out_(std::move(out)),
        boxes_(set, subset_, options_.boxes) {
    output_.form = options_.form;
    output_.folder = out_.path();
    output_.name = options_.name;
    output_.classes = set.classes();
    output_.words = set.class_words();
    output_.first_label = options_.first_label;
    output_.index = options_.index;
  }

  Status Look(const ConvertProgress& progress) {
    progress_ = progress;
    IMGD_TRY(CheckOptions(options_));
    IMGD_TRY(NameFolders());
    IMGD_ASSIGN(names_, NameImages(
                            set_, output_, [this] { return Advance(0, 0); }, report_));
    IMGD_TRY(CountBytes());
    IMGD_TRY(CountShards());
    IMGD_TRY(CountBoxes());
    plan_ = Plan();
    return LookAtFolder();
  }

  Result<ConvertResult> Run(const ConvertProgress& progress) override {
    progress_ = progress;
    if (finished_) return WasThere();
    IMGD_TRY(WriteFileAtomically(out_.Path(kConversionPlanName), plan_));
    IMGD_TRY(RemoveHalves());
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
  std::string NotePath(uint64_t shard) const {
    return out_.Path(fmt::format(".{}.done", ShardNameOf(output_, shard)));
  }
  bool ToFolder() const { return options_.form == OutputForm::kImageFolder; }
  uint32_t First(uint64_t shard) const { return static_cast<uint32_t>(shard * set_.size() / output_.shards); }
  uint32_t SampleAt(uint32_t i) const { return ToFolder() ? i : order_(i); }

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

  /// Errors: those of set_, but for files that are to be left out.
  Result<uint64_t> FileBytes(uint32_t sample) const {
    auto size = set_.FileBytes(sample);
    if (!size && size.error().code == ErrorCode::kDataLoss) return uint64_t{0};
    return size;
  }

  Status CountBytes() {
    for (size_t i = 0; i < set_.size(); ++i) {
      if (i % kPollEvery == 0) IMGD_TRY(Advance(0, 0));
      IMGD_ASSIGN(const uint64_t size, FileBytes(static_cast<uint32_t>(i)));
      source_bytes_ += size;
    }
    return {};
  }

  /// How many images the boxes that were given are for: an archive may be that of another set.
  Status CountBoxes() {
    if (!boxes_.given()) return {};
    size_t with_boxes = 0;
    for (size_t i = 0; i < set_.size(); ++i) {
      if (i % kPollEvery == 0) IMGD_TRY(Advance(0, 0));
      if (boxes_.WereGiven(static_cast<uint32_t>(i))) ++with_boxes;
    }
    remarks_.push_back(fmt::format("boxes: {} of {} images have any", with_boxes, set_.size()));
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
    double share = 1;
    if (options_.images.resize > 0) {
      IMGD_ASSIGN(share, ShareLeft());
    }
    return static_cast<uint64_t>(static_cast<double>(source_bytes_) * share) +
           uint64_t{2048} * set_.size();  // two headers and padding each
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
      IMGD_ASSIGN(const uint64_t size, FileBytes(static_cast<uint32_t>(i)));
      if (size == 0 || size > Dataset::kMaxFileBytes) continue;
      IMGD_TRY(Read(static_cast<uint32_t>(i), buffer));
      const PreparedImage image = preparer.Prepare(buffer.bytes());
      before += static_cast<double>(buffer.size);
      after += image.keep ? static_cast<double>(image.file.size()) : 0;
    }
    return before > 0 ? after / before : 1;
  }

  /// That the folder is free, or holds this very conversion or a part of it.
  Status LookAtFolder() {
    std::error_code error;
    const bool is_part = fs::exists(out_.Path(kConversionPlanName), error);
    if (is_part) {
      IMGD_ASSIGN(const std::string found, ReadFile(out_.Path(kConversionPlanName)));
      if (found != plan_) {
        return Bad(fmt::format("{} holds a part of another conversion; remove the folder, or take another",
                               out_.path()));
      }
    }
    if (fs::exists(out_.Path(kReportName), error)) {
      IMGD_ASSIGN(const std::string json, ReadFile(out_.Path(kReportName)));
      IMGD_ASSIGN(auto found, ParseReport(json, out_.Path(kReportName)));
      if (found.plan == plan_) {
        finished_ = std::move(found);
        return {};
      }
      return Fail(ErrorCode::kAlreadyExists,
                  "{} is not empty: it holds a conversion of another set or with other options; take a new "
                  "folder",
                  out_.path());
    }
    if (is_part || out_.IsEmpty()) return {};
    return Fail(ErrorCode::kAlreadyExists, "{} is not empty; take a new folder", out_.path());
  }

  /// The shards are looked at by their sizes; the report was written after they were on disk.
  Result<ConvertResult> WasThere() {
    if (!ToFolder()) {
      const std::string path = out_.Path(kDescriptionName);
      IMGD_ASSIGN(const std::string json, ReadFile(path));
      IMGD_ASSIGN(const auto description, SetDescription::Parse(json, path));
      for (const auto& shard : description.shards) {
        std::error_code error;
        if (fs::file_size(out_.Path(shard.name), error) == shard.bytes && !error) continue;
        return Fail(ErrorCode::kDataLoss,
                    "{} holds this conversion, finished, but its {} is missing or has another size; remove "
                    "the folder to convert anew",
                    out_.path(), shard.name);
      }
    }
    IMGD_TRY(CheckStrict(finished_->report));
    RemoveNotes();
    return ConvertResult{.shards = finished_->shards,
                         .kept = finished_->shards,
                         .was_there = true,
                         .images = finished_->report.written,
                         .bytes = finished_->bytes,
                         .report = finished_->report,
                         .remarks = finished_->remarks};
  }

  /// What a kill left of files that were being written: NAME.tmp, and NAME.tmp.PID of WriteFileAtomically.
  Status RemoveHalves() const {
    std::error_code error;
    for (fs::directory_iterator it(output_.folder, error), end; !error && it != end; it.increment(error)) {
      const std::string name = it->path().filename().string();
      const size_t at = name.rfind(".tmp");
      if (at == std::string::npos || name.find_first_not_of(".0123456789", at + 4) != std::string::npos)
        continue;
      std::error_code ignored;
      if (it->is_regular_file(ignored)) fs::remove(it->path(), ignored);
    }
    if (error) return FailErrno(error.value(), fmt::format("cannot list {}", output_.folder));
    return {};
  }

  /// All that the bytes of the shards depend on, but for the images themselves.
  std::string Plan() const {
    uint32_t names = 0;
    for (size_t i = 0; i < set_.size(); ++i) {
      const std::string line = fmt::format("{} {}\n", set_.label(i), set_.name(i));
      names = Crc32c(AsBytes(line), names);
    }
    const ImageRules& rules = options_.images;
    nlohmann::ordered_json json = {{"form", NameOf(options_.form)},
                                   {"name", options_.name},
                                   {"shards", output_.shards},
                                   {"seed", options_.seed},
                                   {"images", set_.size()},
                                   {"names_crc32c", names},
                                   {"source_bytes", source_bytes_},
                                   {"resize", rules.resize},
                                   {"quality", rules.quality},
                                   {"repair", rules.repair},
                                   {"restart", rules.restart},
                                   {"index", options_.index},
                                   {"first_label", options_.first_label},
                                   {"boxes", options_.boxes_id},
                                   {"classes", output_.classes}};
    if (!output_.words.empty()) json["words"] = output_.words;
    return json.dump(1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
  }

  Status CheckSource() {
    output_.boxes = boxes_.given();
    if (shard_set_ == nullptr || !HasChecksums(*shard_set_)) return {};
    state_.doing = "checking";
    auto seen = CheckChecksums(*shard_set_, options_.jobs, [this](uint64_t images, uint64_t bytes) {
      return Advance(images, bytes).has_value();
    });
    if (!seen && seen.error().code == ErrorCode::kCancelled) return Stopped();
    if (!seen) return tl::unexpected<Error>(std::move(seen).error());
    state_ = {.doing = "writing"};
    report_.checksums = std::move(seen->wrong);
    TakeBoxes(std::move(*seen));
    return CheckStrict(report_);
  }

  /// Says what becomes of the boxes in the source's own records.
  void TakeBoxes(SourceFindings seen) {
    boxes_.SetSource(std::move(seen.boxes));
    const bool holds_boxes = options_.form == OutputForm::kTfRecord;
    const uint32_t images = boxes_.CountInSource();
    output_.boxes = holds_boxes && (boxes_.given() || images > 0);
    if (images == 0) return;
    remarks_.push_back(holds_boxes
                           ? fmt::format("boxes of {} images were taken from the source", images)
                           : fmt::format("boxes of {} images in the source are left out: {} can't hold them",
                                         images, NameOf(options_.form)));
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
      ++state_.shards_done;
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
    const uint32_t end = First(shard + 1);
    Announce(First(shard), std::min(end - First(shard), kAhead));
    for (uint32_t i = First(shard); i < end; ++i) {
      if ((i - First(shard)) % kAhead == 0 && end - i > kAhead)
        Announce(i + kAhead, std::min(end - i - kAhead, kAhead));
      IMGD_TRY(WriteImage(SampleAt(i), preparer, buffer, *writer, report));
      IMGD_TRY(CheckStrict(report));
      IMGD_TRY(Advance(1, buffer.size));
    }
    IMGD_ASSIGN(auto done, writer->Finish());
    ShardNote note{done.name, done.bytes, done.images, done.crc32c, std::move(report)};
    IMGD_TRY(WriteFileAtomically(NotePath(shard), note.ToJson()));
    return note;
  }

  void Announce(uint32_t first, uint32_t count) const {
    std::vector<uint32_t> samples;
    for (uint32_t i = first; i < first + count; ++i) samples.push_back(SampleAt(i));
    set_.WillRead(samples);
  }

  Status WriteImage(uint32_t sample, ImagePreparer& preparer, FileBuffer& buffer, ShardWriter& writer,
                    ConvertReport& report) {
    buffer.size = 0;
    const std::string name = set_.name(sample);
    const auto size = set_.FileBytes(sample);
    if (!size && size.error().code == ErrorCode::kDataLoss) {
      report.AddLeftOut(Finding::kNoFile, fmt::format("{}: {}", name, size.error().message));
      return {};
    }
    if (!size) return tl::unexpected<Error>(size.error());
    if (*size > Dataset::kMaxFileBytes) {
      report.AddLeftOut(Finding::kTooLarge, fmt::format("{}: {} MiB", name, *size >> 20));
      return {};
    }
    IMGD_TRY(Read(sample, buffer));
    const PreparedImage image = preparer.Prepare(buffer.bytes());
    report.Add(image, name, options_.images.repair);
    if (!image.keep) return {};
    const auto boxes = output_.boxes ? boxes_.Of(sample) : std::vector<ObjectBox>();
    const auto new_name = names_.find(sample);
    return writer.Add({.name = new_name != names_.end() ? new_name->second : name,
                       .id = sample,
                       .label = set_.label(sample),
                       .file = image.file,
                       .facts = image.facts,
                       .restarts = image.restarts,
                       .boxes = boxes});
  }

  Status Read(uint32_t sample, FileBuffer& buffer) const {
    Status read = set_.Read(sample, buffer);
    if (read) return {};
    Error error = std::move(read).error();
    error.message = fmt::format("{}: {}", set_.place(sample), error.message);
    return tl::unexpected<Error>(std::move(error));
  }

  Status CheckStrict(const ConvertReport& report) const {
    if (!options_.strict) return {};
    if (report.checksums.count > 0) {
      return Fail(ErrorCode::kDataLoss, "{} of the source's checksums are wrong, the first of {}",
                  report.checksums.count, report.checksums.names.front());
    }
    if (report.left_out.empty()) return {};
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
    if (!ToFolder() && (fs::file_size(out_.Path(note->name), error) != note->bytes || error))
      return std::nullopt;
    return std::move(*note);
  }

  Status Advance(uint64_t images, uint64_t bytes, uint64_t skipped = 0) {
    const std::lock_guard lock(mutex_);
    state_.done += images;
    state_.bytes += bytes;
    state_.skipped += skipped;
    state_.total = set_.size();
    state_.shards = output_.shards;
    if (!progress_ || progress_(state_)) return {};
    return Stopped();
  }

  tl::unexpected<Error> Stopped() const {
    return Fail(ErrorCode::kCancelled, "stopped after {} of {} images; the same command goes on with it",
                state_.done, set_.size());
  }

  Result<ConvertResult> Finish() {
    SetDescription description{.name = options_.name, .classes = output_.classes, .words = output_.words};
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
    if (ToFolder()) {
      IMGD_TRY(MarkEmptyClasses(output_.folder, output_.classes));
    } else {
      IMGD_TRY(WriteFileAtomically(out_.Path(kDescriptionName), description.ToJson()));
    }
    const ReportHead head{plan_,           options_.name, std::string(NameOf(options_.form)),
                          result.shards,   result.bytes,  set_.size(),
                          options_.images, remarks_};
    IMGD_TRY(WriteFileAtomically(out_.Path(kReportName), ReportToJson(head, report_)));
    RemoveNotes();
    result.report = std::move(report_);
    result.remarks = std::move(remarks_);
    return result;
  }

  /// What only an unfinished conversion has; a report is there already.
  void RemoveNotes() const {
    std::error_code ignored;
    fs::remove(out_.Path(kConversionPlanName), ignored);
    for (uint64_t shard = 0; shard < output_.shards; ++shard) fs::remove(NotePath(shard), ignored);
  }

  const Dataset& set_;
  const Subset* subset_;       ///< set_, where it is one
  const ShardSet* shard_set_;  ///< set_ or what it is a subset of, where that is one
  const ConvertOptions options_;
  const OutputFolder out_;
  ConvertProgress progress_;
  OutputSet output_;
  NewNames names_;
  uint64_t source_bytes_ = 0;
  std::string plan_;
  std::optional<FinishedReport> finished_;  ///< the folder holds all of this conversion
  OutputBoxes boxes_;
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

Result<std::unique_ptr<Conversion>> Conversion::Prepare(const Dataset& set, ConvertOptions options,
                                                        OutputFolder out, const ConvertProgress& progress) {
  auto converter = std::make_unique<Converter>(set, std::move(options), std::move(out));
  IMGD_TRY(converter->Look(progress));
  return converter;
}

Result<ConvertResult> WriteShards(const Dataset& set, const ConvertOptions& options, const std::string& out,
                                  const ConvertProgress& progress) {
  IMGD_TRY(CheckOptions(options));
  IMGD_ASSIGN(OutputFolder folder, OutputFolder::Lock(out));
  IMGD_ASSIGN(const auto conversion, Conversion::Prepare(set, options, std::move(folder), progress));
  return conversion->Run(progress);
}

}  // namespace imgd::data
