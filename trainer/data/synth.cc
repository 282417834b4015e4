#include "trainer/data/synth.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>
#include <vector>

#include "common/files.h"
#include "trainer/data/jpeg_encode.h"
#include "trainer/data/synth_paint.h"

namespace imgd::data {
namespace {

namespace fs = std::filesystem;

constexpr int kMaxPerClass = 1'000'000;
// A picture's number within the seed: class above, number within the class below.
constexpr uint32_t kClassShift = 20;
static_assert(kMaxPerClass <= 1 << kClassShift && kMaxSynthClasses <= 1 << (32 - kClassShift));

Status CheckRange(const char* name, int64_t value, int64_t least, int64_t most) {
  if (value >= least && value <= most) return {};
  return Fail(ErrorCode::kInvalidArgument, "{} is {}, which must be from {} to {}", name, value, least, most);
}

Status Check(const SynthOptions& options) {
  IMGD_TRY(CheckRange("the number of classes", options.classes, 1, kMaxSynthClasses));
  IMGD_TRY(CheckRange("the number of images per class", options.per_class, 1, kMaxPerClass));
  IMGD_TRY(CheckRange("the number of validation images per class", options.val_per_class, 0, kMaxPerClass));
  IMGD_TRY(CheckRange("the width", options.width, 16, 4096));
  IMGD_TRY(CheckRange("the height", options.height, 16, 4096));
  IMGD_TRY(CheckRange("the quality", options.quality, 1, 100));
  return CheckRange("the number of jobs", options.jobs, 1, 1024);
}

Status CheckFree(const fs::path& out) {
  std::error_code error;
  const auto status = fs::symlink_status(out, error);
  if (status.type() == fs::file_type::not_found) return {};
  if (status.type() != fs::file_type::directory) {
    return Fail(ErrorCode::kAlreadyExists, "{} exists and is not a folder", out.string());
  }
  const bool empty = fs::is_empty(out, error);
  if (error) return FailErrno(error.value(), fmt::format("cannot list {}", out.string()));
  if (!empty) {
    return Fail(ErrorCode::kAlreadyExists, "{} is not empty; a data set is only written to a new folder",
                out.string());
  }
  return {};
}

// A folder that goes away unless it is moved to its place.
class StagingFolder {
 public:
  explicit StagingFolder(fs::path path) : path_(std::move(path)) {}
  ~StagingFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  StagingFolder(const StagingFolder&) = delete;
  StagingFolder& operator=(const StagingFolder&) = delete;
  const fs::path& path() const { return path_; }

  Status MoveTo(const fs::path& out) const {
    std::error_code error;
    fs::rename(path_, out, error);
    if (!error) return {};
    return FailErrno(error.value(), fmt::format("cannot rename {} to {}", path_.string(), out.string()));
  }

 private:
  fs::path path_;
};

struct Split {
  const char* name;
  uint32_t number;
  int per_class;
};

Status WriteFile(const fs::path& path, std::string_view content) {
  UniqueFd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
  if (!fd.valid()) return FailErrno(errno, fmt::format("cannot create {}", path.string()));
  return WriteAll(fd.get(), content, path.string());
}

class Writer {
 public:
  Writer(const SynthOptions& options, fs::path root, const SynthProgress& progress)
      : options_(options),
        splits_{Split{"train", 0, options.per_class}, Split{"val", 1, options.val_per_class}},
        root_(std::move(root)),
        progress_(progress) {}

  Status Run() {
    for (const auto& split : splits_) {
      for (int c = 0; split.per_class > 0 && c < options_.classes; ++c) {
        IMGD_TRY(MakeFolders(FolderOf(split, c)));
      }
      total_ += static_cast<uint64_t>(split.per_class) * static_cast<uint64_t>(options_.classes);
    }
    {
      std::vector<std::jthread> threads;
      for (int i = 0; i < options_.jobs; ++i) threads.emplace_back([this] { Work(); });
    }
    if (failure_) return tl::unexpected<Error>(*failure_);
    return WriteFile(root_ / "dataset.json", Description());
  }

 private:
  fs::path FolderOf(const Split& split, int class_index) const {
    return root_ / split.name / SynthClassName(class_index, options_.classes);
  }

  void Work() {
    for (uint64_t i = next_++; i < total_; i = next_++) {
      const Status status = WritePicture(i);
      const std::lock_guard lock(mutex_);
      if (!status && !failure_) failure_ = status.error();
      if (failure_) return;
      ++done_;
      if (progress_ && !progress_(done_, total_)) {
        failure_ = Error{.code = ErrorCode::kCancelled, .message = "the drawing was broken off"};
      }
    }
  }

  Status WritePicture(uint64_t index) const {
    const auto classes = static_cast<uint64_t>(options_.classes);
    const uint64_t training = static_cast<uint64_t>(options_.per_class) * classes;
    const Split& split = splits_[index < training ? 0 : 1];
    const uint64_t of_split = index < training ? index : index - training;
    const auto class_index = static_cast<int>(of_split / static_cast<uint64_t>(split.per_class));
    const auto number = static_cast<uint32_t>(of_split % static_cast<uint64_t>(split.per_class));
    const PictureId id{options_.seed, split.number,
                       static_cast<uint32_t>(class_index) << kClassShift | number};
    const auto pixels = PaintPicture(SynthClassOf(class_index), id, options_.width, options_.height);
    IMGD_ASSIGN(const std::string jpeg,
                EncodeJpeg(pixels, options_.width, options_.height, {.quality = options_.quality}));
    return WriteFile(FolderOf(split, class_index) / fmt::format("{:06}.jpg", number), jpeg);
  }

  std::string Description() const {
    nlohmann::ordered_json json;
    json["generator"] = "imgcli dataset synth";
    json["format"] = 1;
    json["classes"] = options_.classes;
    json["per_class"] = options_.per_class;
    json["val_per_class"] = options_.val_per_class;
    json["width"] = options_.width;
    json["height"] = options_.height;
    json["seed"] = options_.seed;
    json["quality"] = options_.quality;
    for (int c = 0; c < options_.classes; ++c) json["names"].push_back(SynthClassName(c, options_.classes));
    return json.dump(2) + "\n";
  }

  const SynthOptions options_;
  const std::array<Split, 2> splits_;
  const fs::path root_;
  const SynthProgress& progress_;
  uint64_t total_ = 0;
  std::atomic<uint64_t> next_ = 0;

  std::mutex mutex_;  // guards what follows, and serialises progress_
  uint64_t done_ = 0;
  std::optional<Error> failure_;
};

}  // namespace

Status WriteSynthDataset(const SynthOptions& options, const fs::path& out, const SynthProgress& progress) {
  IMGD_TRY(Check(options));
  // "set/" names the same folder as "set", but not the same file beside it.
  fs::path target = fs::absolute(out).lexically_normal();
  if (!target.has_filename()) target = target.parent_path();
  IMGD_TRY(CheckFree(target));
  IMGD_TRY(MakeFolders(target.parent_path()));
  const StagingFolder staging(target.parent_path() /
                              fmt::format("{}.tmp-{}", target.filename().string(), ::getpid()));
  IMGD_TRY(Writer(options, staging.path(), progress).Run());
  return staging.MoveTo(target);
}

}  // namespace imgd::data
