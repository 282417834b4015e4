#include "trainer/data/source_check.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <mutex>
#include <optional>
#include <thread>

#include "trainer/data/crc32c.h"
#include "trainer/data/tfrecord.h"

namespace imgd::data {
namespace {

constexpr uint64_t kPieceBytes = uint64_t{4} << 20;
constexpr uint64_t kMostCheckedRecord = Dataset::kMaxFileBytes + (uint64_t{1} << 20);

bool IsTfRecord(const Source& shard) { return FormOf(shard.name()) == ShardForm::kTfRecord; }

/// Goes over a source once, in pieces, with two checksums that can be asked for and begun anew.
class Sweep {
 public:
  Sweep(const Source& source, const CheckProgress& progress) : source_(source), progress_(progress) {}

  bool AtEnd() const { return at() >= source_.size(); }
  uint64_t at() const { return piece_at_ + used_; }
  uint32_t whole() const { return whole_; }

  /// The next bytes, at most `most`; empty at the end. Good until the next call.
  Result<std::span<const uint8_t>> Next(uint64_t most) {
    if (used_ == piece_.size()) IMGD_TRY(Fill());
    const auto n = static_cast<size_t>(std::min<uint64_t>(most, piece_.size() - used_));
    const auto bytes = std::span(piece_).subspan(used_, n);
    used_ += n;
    whole_ = Crc32c(bytes, whole_);
    return std::span<const uint8_t>(bytes);
  }

  /// Exactly as many as `out` has, or kDataLoss.
  Status Take(std::span<uint8_t> out) {
    for (size_t done = 0; done < out.size();) {
      IMGD_ASSIGN(const auto bytes, Next(out.size() - done));
      if (bytes.empty()) return Fail(ErrorCode::kDataLoss, "{} ends within a record", source_.name());
      std::ranges::copy(bytes, out.begin() + static_cast<ptrdiff_t>(done));
      done += bytes.size();
    }
    return {};
  }

 private:
  Status Fill() {
    if (!progress_(0, piece_.size())) return Fail(ErrorCode::kCancelled, "stopped");
    piece_at_ += piece_.size();
    used_ = 0;
    piece_.resize(static_cast<size_t>(std::min(kPieceBytes, source_.size() - piece_at_)));
    return source_.ReadAt(piece_at_, piece_);
  }

  const Source& source_;
  const CheckProgress& progress_;
  std::vector<uint8_t> piece_;
  size_t used_ = 0;
  uint64_t piece_at_ = 0;
  uint32_t whole_ = 0;
};

void Note(ConvertReport::Entry& wrong, std::string place) {
  ++wrong.count;
  if (wrong.names.size() < ConvertReport::kMaxNames) wrong.names.push_back(std::move(place));
}

/// A shard, and which images of the set are in it.
struct ShardOfSet {
  const ShardSet& set;
  const Source& shard;
  uint32_t first;  ///< image
  uint32_t count;
  std::string crc;  ///< by shards.json; empty without one
};

/// Of the shard's record of that number; each is an image, in the set's order.
void TakeBoxes(const ShardOfSet& of, uint32_t record, std::span<const uint8_t> content, SourceFindings& out) {
  if (record >= of.count) return;
  auto [image_label, boxes] = BoxesOfRecord(content);
  if (boxes.empty()) return;
  // What the file's labels begin at.
  const int64_t first_label = image_label - of.set.label(of.first + record);
  for (auto& box : boxes) {
    const int64_t label = box.label - first_label;
    const bool known = box.label >= 0 && label >= 0 && static_cast<uint64_t>(label) < of.set.classes().size();
    box.label = known ? static_cast<int32_t>(label) : -1;
  }
  out.boxes.emplace(of.first + record, std::move(boxes));
}

/// The lengths were looked at when the set was opened; they are only kept from leading astray here.
Status CheckRecords(const ShardOfSet& of, Sweep& sweep, SourceFindings& out) {
  const Source& shard = of.shard;
  std::vector<uint8_t> content;
  for (uint32_t record = 0; !sweep.AtEnd(); ++record) {
    const uint64_t start = sweep.at();
    std::array<uint8_t, 12> header{};
    IMGD_TRY(sweep.Take(header));
    uint64_t left = 0;
    std::memcpy(&left, header.data(), 8);
    if (left > shard.size() - sweep.at()) return Fail(ErrorCode::kDataLoss, "{} has changed", shard.name());
    uint32_t crc = 0;
    content.clear();
    const bool keep = left <= kMostCheckedRecord;
    while (left > 0) {
      IMGD_ASSIGN(const auto bytes, sweep.Next(left));
      if (bytes.empty()) return Fail(ErrorCode::kDataLoss, "{} ends within a record", shard.name());
      crc = Crc32c(bytes, crc);
      left -= bytes.size();
      if (keep) content.insert(content.end(), bytes.begin(), bytes.end());
    }
    std::array<uint8_t, 4> footer{};
    IMGD_TRY(sweep.Take(footer));
    uint32_t wanted = 0;
    std::memcpy(&wanted, footer.data(), 4);
    if (wanted != MaskedCrc(crc))
      Note(out.wrong, fmt::format("{}: the record at byte {}", shard.name(), start));
    TakeBoxes(of, record, content, out);
  }
  return {};
}

Result<SourceFindings> CheckShard(const ShardOfSet& of, const CheckProgress& progress) {
  const Source& shard = of.shard;
  SourceFindings out;
  Sweep sweep(shard, progress);
  if (IsTfRecord(shard)) IMGD_TRY(CheckRecords(of, sweep, out));
  while (!sweep.AtEnd()) {
    IMGD_ASSIGN(const auto bytes, sweep.Next(kPieceBytes));
    static_cast<void>(bytes);
  }
  if (!of.crc.empty() && of.crc != fmt::format("{:08x}", sweep.whole())) {
    Note(out.wrong, fmt::format("{}: the whole file, by {}", shard.name(), kDescriptionName));
  }
  return out;
}

}  // namespace

bool HasChecksums(const ShardSet& set) {
  return !set.checksums().empty() ||
         std::ranges::any_of(set.shards(), [](const auto& shard) { return IsTfRecord(*shard); });
}

Result<SourceFindings> CheckChecksums(const ShardSet& set, int jobs, const CheckProgress& progress) {
  const auto& shards = set.shards();
  std::vector<SourceFindings> found(shards.size());
  std::vector<uint32_t> first(shards.size());
  for (size_t i = 1; i < shards.size(); ++i) first[i] = first[i - 1] + set.shard_sizes()[i - 1];
  std::atomic<size_t> next = 0;
  std::mutex mutex;  // guards `failure`
  std::optional<Error> failure;
  const auto work = [&] {
    for (size_t i = next++; i < shards.size(); i = next++) {
      const ShardOfSet shard{set, *shards[i], first[i], set.shard_sizes()[i],
                             set.checksums().empty() ? "" : set.checksums()[i]};
      auto seen = CheckShard(shard, progress);
      const bool go_on = !seen || progress(set.shard_sizes()[i], 0);
      const std::lock_guard lock(mutex);
      if (seen) found[i] = std::move(*seen);
      if (!failure && !seen) failure = seen.error();
      if (!failure && !go_on) failure = Error{.code = ErrorCode::kCancelled, .message = "stopped"};
      if (failure) return;
    }
  };
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < jobs; ++i) threads.emplace_back(work);
  }
  if (failure) return tl::unexpected<Error>(std::move(*failure));
  ConvertReport sum;
  SourceFindings all;
  for (auto& shard : found) {
    ConvertReport one;
    one.checksums = std::move(shard.wrong);
    sum.Merge(one);
    all.boxes.merge(shard.boxes);
  }
  all.wrong = std::move(sum.checksums);
  return all;
}

}  // namespace imgd::data
