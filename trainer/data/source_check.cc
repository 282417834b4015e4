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

/// The lengths were looked at when the set was opened; they are only kept from leading astray here.
Status CheckRecords(const Source& shard, Sweep& sweep, ConvertReport::Entry& wrong) {
  while (!sweep.AtEnd()) {
    const uint64_t start = sweep.at();
    std::array<uint8_t, 12> header{};
    IMGD_TRY(sweep.Take(header));
    uint64_t left = 0;
    std::memcpy(&left, header.data(), 8);
    if (left > shard.size() - sweep.at()) return Fail(ErrorCode::kDataLoss, "{} has changed", shard.name());
    uint32_t crc = 0;
    while (left > 0) {
      IMGD_ASSIGN(const auto bytes, sweep.Next(left));
      if (bytes.empty()) return Fail(ErrorCode::kDataLoss, "{} ends within a record", shard.name());
      crc = Crc32c(bytes, crc);
      left -= bytes.size();
    }
    std::array<uint8_t, 4> footer{};
    IMGD_TRY(sweep.Take(footer));
    uint32_t wanted = 0;
    std::memcpy(&wanted, footer.data(), 4);
    if (wanted != MaskedCrc(crc)) Note(wrong, fmt::format("{}: the record at byte {}", shard.name(), start));
  }
  return {};
}

Result<ConvertReport::Entry> CheckShard(const Source& shard, const std::string& crc,
                                        const CheckProgress& progress) {
  ConvertReport::Entry wrong;
  Sweep sweep(shard, progress);
  if (IsTfRecord(shard)) IMGD_TRY(CheckRecords(shard, sweep, wrong));
  while (!sweep.AtEnd()) {
    IMGD_ASSIGN(const auto bytes, sweep.Next(kPieceBytes));
    static_cast<void>(bytes);
  }
  if (!crc.empty() && crc != fmt::format("{:08x}", sweep.whole())) {
    Note(wrong, fmt::format("{}: the whole file, by {}", shard.name(), kDescriptionName));
  }
  return wrong;
}

}  // namespace

bool HasChecksums(const ShardSet& set) {
  return !set.checksums().empty() ||
         std::ranges::any_of(set.shards(), [](const auto& shard) { return IsTfRecord(*shard); });
}

Result<ConvertReport::Entry> CheckChecksums(const ShardSet& set, int jobs, const CheckProgress& progress) {
  const auto& shards = set.shards();
  std::vector<ConvertReport::Entry> found(shards.size());
  std::atomic<size_t> next = 0;
  std::mutex mutex;  // guards `failure`
  std::optional<Error> failure;
  const auto work = [&] {
    for (size_t i = next++; i < shards.size(); i = next++) {
      auto wrong = CheckShard(*shards[i], set.checksums().empty() ? "" : set.checksums()[i], progress);
      const bool go_on = !wrong || progress(set.shard_sizes()[i], 0);
      const std::lock_guard lock(mutex);
      if (wrong) found[i] = std::move(*wrong);
      if (!failure && !wrong) failure = wrong.error();
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
  for (auto& entry : found) {
    ConvertReport one;
    one.checksums = std::move(entry);
    sum.Merge(one);
  }
  return std::move(sum.checksums);
}

}  // namespace imgd::data
