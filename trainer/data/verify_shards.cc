#include "trainer/data/verify_shards.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string_view>
#include <system_error>
#include <thread>

#include "common/files.h"
#include "common/url.h"
#include "trainer/data/crc32c.h"
#include "trainer/data/read_ahead.h"
#include "trainer/data/source.h"
#include "trainer/data/tfrecord.h"

namespace imgd::data {
namespace {

namespace fs = std::filesystem;

constexpr size_t kChunkBytes = size_t{1} << 20;
constexpr uint64_t kMostGaps = 1000;  ///< more missing numbers than that are no gaps
constexpr size_t kRecordsShown = 20;  ///< bad records of one shard

/// What one shard's check found.
struct ShardResult {
  std::vector<VerifyFinding> findings;
  uint64_t bytes = 0;
  uint64_t records = 0;
  bool has_checksum = false;
  bool has_index = false;
  ScanNotes notes;
};

/// Counts the bytes that all threads have read; false when the progress' owner has had enough.
class Meter {
 public:
  Meter(const VerifyProgress& progress, uint64_t total) : progress_(progress), total_(total) {}

  bool Add(uint64_t bytes) {
    const std::scoped_lock lock(mutex_);
    done_ += bytes;
    if (progress_ && !stopped_) stopped_ = !progress_(VerifyPhase::kShards, std::min(done_, total_), total_);
    return !stopped_;
  }
  bool stopped() {
    const std::scoped_lock lock(mutex_);
    return stopped_;
  }

 private:
  const VerifyProgress& progress_;
  const uint64_t total_;
  std::mutex mutex_;
  uint64_t done_ = 0;  // guarded by mutex_
  bool stopped_ = false;
};

Status Stopped() { return Fail(ErrorCode::kCancelled, "stopped"); }

/// CRC-32C of a stretch of the file.
Result<uint32_t> ChecksumOf(const Source& source, uint64_t at, uint64_t size, Meter& meter,
                            std::vector<uint8_t>& chunk) {
  uint32_t crc = 0;
  chunk.resize(kChunkBytes);
  while (size > 0) {
    const auto part = std::span(chunk).first(std::min<uint64_t>(size, chunk.size()));
    IMGD_TRY(source.ReadAt(at, part));
    crc = Crc32c(part, crc);
    at += part.size();
    size -= part.size();
    if (!meter.Add(part.size())) return tl::unexpected<Error>(Stopped().error());
  }
  return crc;
}

/// Looks at one shard.
class ShardCheck {
 public:
  /// `where`: the path or URL by which it was opened.
  ShardCheck(const Source& shard, const std::string& where, IndexReader& indexes, Meter& meter)
      : shard_(shard), where_(where), indexes_(indexes), meter_(meter) {}

  ShardResult Run(const SetDescription::Shard* described) {
    result_.bytes = shard_.size();
    if (described != nullptr) CompareBytes(*described);
    auto index = ScanShard(WindowSource(shard_));
    if (!index) {
      Add(index.error().message);
    } else {
      if (described != nullptr && described->images != index->images.size()) {
        Add(fmt::format("it holds {} images, but {} says {}", index->images.size(), kDescriptionName,
                        described->images));
      }
      result_.notes = index->notes;
      CompareIndex(*index);
      if (FormOf(shard_.name()) == ShardForm::kTfRecord) CompareRecords();
    }
    return std::move(result_);
  }

 private:
  void Add(std::string reason) { result_.findings.push_back({shard_.name(), std::move(reason)}); }

  void CompareBytes(const SetDescription::Shard& described) {
    if (described.bytes != shard_.size()) {
      Add(fmt::format("it has {} bytes, but {} says {}", shard_.size(), kDescriptionName, described.bytes));
      return;
    }
    result_.has_checksum = true;
    const auto crc = ChecksumOf(shard_, 0, shard_.size(), meter_, chunk_);
    if (!crc) {
      if (crc.error().code != ErrorCode::kCancelled) Add(crc.error().message);
    } else if (const std::string found = fmt::format("{:08x}", *crc); found != described.crc32c) {
      Add(fmt::format("its checksum is {}, but {} says {}", found, kDescriptionName, described.crc32c));
    }
  }

  void CompareIndex(const ShardIndex& scanned) {
    const auto read = indexes_.Read(shard_, where_);
    if (read && !*read) return;
    result_.has_index = true;
    const auto bad = [&](std::string reason) {
      result_.findings.push_back({Shown(IndexReader::PathOf(where_)), std::move(reason)});
    };
    if (!read) return bad(read.error().message);
    const auto& index = *read;
    // A record of RecordIO has a number only; our index has the names.
    const bool has_names = FormOf(shard_.name()) != ShardForm::kRecordIo;
    if (index->images.size() != scanned.images.size()) {
      return bad(fmt::format("it has {} images, the shard {}", index->images.size(), scanned.images.size()));
    }
    for (size_t i = 0; i < scanned.images.size(); ++i) {
      const auto& one = index->images[i];
      const auto& other = scanned.images[i];
      if ((one.key == other.key || !has_names) && one.offset == other.offset && one.size == other.size &&
          one.label == other.label && one.skip == other.skip)
        continue;
      return bad(fmt::format(
          "image {} is '{}' of class {} with {} bytes at byte {}, in the shard '{}' of class "
          "{} with {} bytes at byte {}",
          i, one.key, one.label, one.size, one.offset, other.key, other.label, other.size, other.offset));
    }
  }

  /// The checksums of the records' content; the scan has seen those of their lengths.
  void CompareRecords() {
    size_t bad = 0;
    for (uint64_t at = 0; at < shard_.size();) {
      std::array<uint8_t, 8> length_bytes{};
      std::array<uint8_t, 4> crc_bytes{};
      if (!shard_.ReadAt(at, length_bytes)) return;  // it has become shorter since the scan
      uint64_t length = 0;
      std::memcpy(&length, length_bytes.data(), 8);
      if (length > shard_.size() - at || shard_.size() - at - length < 16) return;
      const auto crc = ChecksumOf(shard_, at + 12, length, meter_, chunk_);
      if (!crc) {
        if (crc.error().code != ErrorCode::kCancelled) Add(crc.error().message);
        return;
      }
      if (const auto read = shard_.ReadAt(at + 12 + length, crc_bytes); !read)
        return Add(read.error().message);
      uint32_t wanted = 0;
      std::memcpy(&wanted, crc_bytes.data(), 4);
      if (wanted != MaskedCrc(*crc) && ++bad <= kRecordsShown) {
        Add(fmt::format("the checksum of the record at byte {} is wrong: its {} bytes have changed", at,
                        length));
      }
      ++result_.records;
      at += length + 16;
    }
    if (bad > kRecordsShown)
      Add(fmt::format("{} more of its records have a wrong checksum", bad - kRecordsShown));
  }

  const Source& shard_;
  const std::string& where_;
  IndexReader& indexes_;
  Meter& meter_;
  std::vector<uint8_t> chunk_;
  ShardResult result_;
};

ShardResult CheckOne(const std::string& path, const SetDescription::Shard* described,
                     const SourceOpener& opener, IndexReader& indexes, Meter& meter) {
  const auto shard = opener.OpenPlain(path);
  if (shard) return ShardCheck(**shard, path, indexes, meter).Run(described);
  ShardResult result;
  const bool missing = shard.error().code == ErrorCode::kNotFound;
  result.findings.push_back(
      {Shown(path), missing
                        ? (described != nullptr ? fmt::format("it is missing; {} names it", kDescriptionName)
                                                : std::string("it is missing"))
                        : shard.error().message});
  return result;
}

uint64_t BytesOf(const ShardList& list) {
  uint64_t total = 0;
  if (list.description) {
    for (const auto& shard : list.description->shards) total += shard.bytes;
    return total;
  }
  for (const auto& shard : list.shards) {
    std::error_code error;
    const auto size = IsUrl(shard) ? 0 : fs::file_size(shard, error);
    if (!error) total += size;
  }
  return total;
}

/// Files in the folder that belong to no shard of the set.
void FindExtras(const std::string& folder, const ShardList& listing, size_t most, VerifyReport& report) {
  std::set<std::string> known;
  for (const auto& shard : listing.shards) known.insert(fs::path(shard).filename().string());
  std::set<std::string> extras;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename().string();
    if (IsShardName(name) && !known.contains(name)) extras.insert(name);
    if (name.ends_with(".idx") && IsShardName(name.substr(0, name.size() - 4)) &&
        !known.contains(name.substr(0, name.size() - 4)))
      extras.insert(name);
  }
  for (const auto& name : extras) {
    report.Add((fs::path(folder) / name).string(),
               name.ends_with(".idx") ? "the index of a shard that the set does not have"
                                      : fmt::format("{} does not name it", kDescriptionName),
               most);
  }
}

/// The number in "train-000012.tar" or "train-00012-of-01024", and what surrounds it.
struct Numbered {
  std::string before;
  std::string after;
  uint64_t number = 0;
  size_t digits = 0;
};

std::optional<Numbered> NumberOf(const std::string& name) {
  constexpr std::string_view kDigits = "0123456789";
  const size_t of = name.rfind("-of-");
  const size_t end = of != std::string::npos ? of : name.rfind('.');
  if (end == std::string::npos || end == 0) return std::nullopt;
  const size_t last = name.find_last_not_of(kDigits, end - 1);
  const size_t first = last == std::string::npos ? 0 : last + 1;
  Numbered found{.before = name.substr(0, first), .after = name.substr(end), .digits = end - first};
  const auto parsed = std::from_chars(name.data() + first, name.data() + end, found.number);
  if (found.digits == 0 || parsed.ec != std::errc()) return std::nullopt;
  return found;
}

/// Numbers that are missing among the shards' names, where nothing else says which there should be.
void FindGaps(const ShardList& listing, size_t most, VerifyReport& report) {
  std::set<uint64_t> numbers;
  std::optional<Numbered> like;
  for (const auto& shard : listing.shards) {
    auto numbered = NumberOf(Shown(shard));
    if (!numbered || (like && (numbered->before != like->before || numbered->after != like->after))) return;
    numbers.insert(numbered->number);
    if (!like) like = std::move(numbered);
  }
  if (numbers.empty()) return;
  uint64_t from = *numbers.begin();
  uint64_t to = *numbers.rbegin() + 1;
  if (like->after.starts_with("-of-")) {
    const std::string count = like->after.substr(4);
    from = 0;
    if (std::from_chars(count.data(), count.data() + count.size(), to).ec != std::errc()) return;
  }
  if (to - from > numbers.size() + kMostGaps) return;
  for (uint64_t number = from; number < to; ++number) {
    if (!numbers.contains(number))
      report.Add(fmt::format("{}{:0{}}{}", like->before, number, like->digits, like->after), "it is missing",
                 most);
  }
}

}  // namespace

Status VerifyShards(const std::string& where, const ShardList& listing, const SourceOpener& opener,
                    const VerifyOptions& options, const VerifyProgress& progress, VerifyReport& report) {
  Meter meter(progress, BytesOf(listing));
  IndexReader indexes(opener);
  std::vector<ShardResult> results(listing.shards.size());
  std::atomic<size_t> next = 0;
  const auto work = [&] {
    for (size_t i = next++; i < results.size() && !meter.stopped(); i = next++) {
      const auto* described = listing.description ? &listing.description->shards[i] : nullptr;
      results[i] = CheckOne(listing.shards[i], described, opener, indexes, meter);
    }
  };
  {
    std::vector<std::jthread> threads;
    for (int i = 1; i < options.jobs && static_cast<size_t>(i) < results.size(); ++i)
      threads.emplace_back(work);
    work();
  }
  if (meter.stopped()) return Stopped();
  SetNotes notes;
  for (size_t i = 0; i < results.size(); ++i) {
    auto& result = results[i];
    notes.Add(Shown(listing.shards[i]), result.notes);
    ++report.shards;
    report.shard_bytes += result.bytes;
    report.records += result.records;
    report.checksums += result.has_checksum ? 1 : 0;
    report.indexes += result.has_index ? 1 : 0;
    for (auto& finding : result.findings)
      report.Add(std::move(finding.place), std::move(finding.reason), options.most_findings);
  }
  report.notes = notes.Lines();
  std::error_code error;
  if (listing.description && fs::is_directory(where, error)) {
    FindExtras(where, listing, options.most_findings, report);
  } else if (!listing.description && listing.found) {
    // Shards that are named one by one are as many as were named.
    FindGaps(listing, options.most_findings, report);
  }
  return {};
}

}  // namespace imgd::data
