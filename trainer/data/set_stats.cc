#include "trainer/data/set_stats.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <optional>
#include <thread>

#include "trainer/data/image_facts.h"

namespace imgd::data {
namespace {

constexpr uint64_t kBins = 10;
constexpr uint64_t kStep = 16;  ///< images that a thread takes at a time

/// What is kept of the images until all have been seen.
struct Seen {
  std::vector<uint64_t> bytes, width, height, quality;
};

void Balance(const Dataset& set, SetStats& stats) {
  std::vector<uint64_t> counts(set.classes().size());
  for (size_t i = 0; i < set.size(); ++i) ++counts[static_cast<size_t>(set.label(i))];
  stats.classes = counts.size();
  if (counts.empty()) return;
  stats.fewest = set.classes()[static_cast<size_t>(std::ranges::min_element(counts) - counts.begin())];
  stats.most = set.classes()[static_cast<size_t>(std::ranges::max_element(counts) - counts.begin())];
  stats.per_class = SpreadOf(counts);
  const uint64_t range = stats.per_class.max - stats.per_class.min + 1;
  const uint64_t width = (range + kBins - 1) / kBins;
  for (uint64_t from = stats.per_class.min; from <= stats.per_class.max; from += width)
    stats.bins.push_back({from, from + width - 1, 0});
  stats.bins.back().to = stats.per_class.max;
  for (const uint64_t count : counts) ++stats.bins[(count - stats.per_class.min) / width].classes;
}

/// Looks at images in several threads.
class Looking {
 public:
  Looking(const Dataset& set, uint64_t sample, const StatsProgress& progress, SetStats& stats)
      : set_(set), sample_(sample), progress_(progress), stats_(stats) {}

  Status Run(int jobs) {
    {
      std::vector<std::jthread> threads;
      for (int i = 1; i < jobs; ++i) threads.emplace_back([this] { Work(); });
      Work();
    }
    if (stop_) return Fail(ErrorCode::kCancelled, "stopped");
    if (stats_.looked_at == 0 && error_) return tl::unexpected<Error>(*error_);
    for (const uint64_t bytes : seen_.bytes) stats_.bytes += bytes;
    stats_.file_bytes = SpreadOf(seen_.bytes);
    stats_.width = SpreadOf(seen_.width);
    stats_.height = SpreadOf(seen_.height);
    stats_.quality = SpreadOf(seen_.quality);
    return {};
  }

 private:
  /// The k-th image of the sample: in the middle of the k-th of as many equal parts of the set.
  uint32_t ImageOf(uint64_t k) const {
    return static_cast<uint32_t>((2 * k + 1) * set_.size() / (2 * sample_));
  }

  void Work() {
    FileBuffer file;
    std::vector<uint32_t> samples;
    while (!stop_) {
      const uint64_t first = next_.fetch_add(kStep);
      if (first >= sample_) return;
      samples.clear();
      for (uint64_t k = first; k < std::min(first + kStep, sample_); ++k) samples.push_back(ImageOf(k));
      set_.WillRead(samples);
      for (const uint32_t i : samples) {
        const Status read = set_.Read(i, file);
        const ImageFacts facts = read ? LookAtImage(file.bytes()) : ImageFacts{};
        const std::scoped_lock lock(mutex_);
        if (read) Take(facts, file.size);
        if (!read && !error_) error_ = read.error();
        stats_.unreadable += !read || facts.width == 0 ? 1 : 0;
      }
      const std::scoped_lock lock(mutex_);
      done_ += samples.size();
      if (progress_ && !stop_ && !progress_(done_, sample_)) stop_ = true;
    }
  }

  void Take(const ImageFacts& facts, uint64_t bytes) {
    ++stats_.looked_at;
    seen_.bytes.push_back(bytes);
    ++stats_.formats[NameOf(facts.format)];
    if (facts.width == 0) return;
    seen_.width.push_back(facts.width);
    seen_.height.push_back(facts.height);
    if (facts.format != ImageFacts::Format::kJpeg) return;
    if (facts.quality) seen_.quality.push_back(static_cast<uint64_t>(*facts.quality));
    ++stats_.colours[NameOf(facts.colours)];
    if (!facts.subsampling.empty()) ++stats_.subsampling[facts.subsampling];
    stats_.progressive += facts.progressive ? 1 : 0;
    stats_.arithmetic += facts.arithmetic ? 1 : 0;
    stats_.with_restarts += facts.restart_interval != 0 ? 1 : 0;
  }

  const Dataset& set_;
  const uint64_t sample_;
  const StatsProgress& progress_;
  std::atomic<uint64_t> next_ = 0;
  std::atomic<bool> stop_ = false;
  std::mutex mutex_;  // guards all below
  SetStats& stats_;
  Seen seen_;
  uint64_t done_ = 0;
  std::optional<Error> error_;
};

}  // namespace

Spread SpreadOf(std::vector<uint64_t>& values) {
  if (values.empty()) return {};
  std::ranges::sort(values);
  const auto at = [&](uint64_t percent) {
    const uint64_t rank = (percent * values.size() + 99) / 100;
    return values[rank == 0 ? 0 : rank - 1];
  };
  double sum = 0;
  for (const uint64_t value : values) sum += static_cast<double>(value);
  return {.count = values.size(),
          .min = values.front(),
          .p5 = at(5),
          .p25 = at(25),
          .median = at(50),
          .p75 = at(75),
          .p95 = at(95),
          .max = values.back(),
          .mean = sum / static_cast<double>(values.size())};
}

Result<SetStats> LookAtDataset(const Dataset& set, uint64_t sample, int jobs, const StatsProgress& progress) {
  SetStats stats;
  stats.images = set.size();
  Balance(set, stats);
  if (sample == 0 || sample > set.size()) sample = set.size();
  IMGD_TRY(Looking(set, sample, progress, stats).Run(jobs));
  return stats;
}

}  // namespace imgd::data
