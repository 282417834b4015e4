#include "trainer/data/convert.h"

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <system_error>
#include <thread>
#include <unordered_set>
#include <vector>

#include "common/files.h"
#include "trainer/data/crc32c.h"
#include "trainer/data/permutation.h"
#include "trainer/data/shard_index.h"
#include "trainer/data/shard_set.h"
#include "trainer/data/tar_writer.h"

namespace imgd::data {
namespace {

namespace fs = std::filesystem;

/// What parts of one sample share: the image's name without ending. WebDataset cuts at the first dot of the
/// last part, so that there must be no other.
std::string KeyOf(const std::string& name) {
  const size_t slash = name.rfind('/') + 1;  // npos + 1 is 0
  std::string stem = name.substr(slash, name.rfind('.') == std::string::npos || name.rfind('.') < slash
                                            ? std::string::npos
                                            : name.rfind('.') - slash);
  std::ranges::replace(stem, '.', '_');
  return name.substr(0, slash) + stem;
}

/// By what is in the file, since names lie.
std::string_view EndingOf(std::span<const uint8_t> file) {
  const std::string_view start(reinterpret_cast<const char*>(file.data()), std::min<size_t>(file.size(), 4));
  return start == "\x89PNG" ? "png" : "jpg";
}

class Converter {
 public:
  Converter(const Dataset& set, const ConvertOptions& options, std::string out,
            const ConvertProgress& progress)
      : set_(set), options_(options), out_(std::move(out)), progress_(progress) {}

  Result<ConvertResult> Run() {
    IMGD_TRY(Check());
    IMGD_TRY(MakePlan());
    description_.name = options_.name;
    description_.classes = set_.classes();
    description_.shards.resize(shards_);
    {
      std::vector<std::jthread> threads;
      for (int i = 0; i < options_.jobs; ++i) threads.emplace_back([this] { Work(); });
    }
    if (failure_) return tl::unexpected<Error>(*failure_);
    IMGD_TRY(WriteFileAtomically(Path(kDescriptionName), description_.ToJson()));
    std::error_code ignored;
    fs::remove(Path(kConversionPlanName), ignored);
    ConvertResult result{.shards = shards_, .kept = kept_, .images = set_.size()};
    for (const auto& shard : description_.shards) result.bytes += shard.bytes;
    return result;
  }

 private:
  std::string Path(const std::string& name) const { return (fs::path(out_) / name).string(); }
  std::string ShardName(uint64_t shard) const { return fmt::format("{}-{:06}.tar", options_.name, shard); }
  uint32_t First(uint64_t shard) const { return static_cast<uint32_t>(shard * set_.size() / shards_); }

  Status Check() {
    const auto bad = [](std::string_view what) { return Fail(ErrorCode::kInvalidArgument, "{}", what); };
    if (options_.jobs < 1 || options_.jobs > 1024) return bad("jobs must be from 1 to 1024");
    if (options_.shard_bytes < 1) return bad("the size of a shard must be at least 1 byte");
    if (options_.name.empty() || options_.name.find('/') != std::string::npos)
      return bad(fmt::format("'{}' is no name for a set", options_.name));
    std::unordered_set<std::string> keys;
    for (size_t i = 0; i < set_.size(); ++i) {
      if (!keys.insert(KeyOf(set_.name(i))).second) {
        return bad(fmt::format("two images have the name '{}', which must be unique in shards",
                               KeyOf(set_.name(i))));
      }
    }
    return {};
  }

  /// How many shards, and that the folder is free or holds a part of this very conversion.
  Status MakePlan() {
    shards_ = options_.shards;
    if (shards_ == 0) {
      uint64_t bytes = 0;
      for (size_t i = 0; i < set_.size(); ++i) {
        IMGD_ASSIGN(const uint64_t size, set_.FileBytes(i));
        bytes += size + 2048;  // two headers and padding
      }
      shards_ = bytes / options_.shard_bytes + 1;
    }
    shards_ = std::min<uint64_t>(shards_, set_.size());
    if (shards_ > kMaxShards) {
      return Fail(ErrorCode::kInvalidArgument, "{} shards; at most {} are possible", shards_, kMaxShards);
    }
    IMGD_TRY(MakeFolders(out_));
    const std::string plan = Plan();
    std::error_code error;
    if (fs::exists(Path(kConversionPlanName), error)) {
      IMGD_ASSIGN(const std::string found, ReadFile(Path(kConversionPlanName)));
      if (found == plan) return {};
      return Fail(ErrorCode::kInvalidArgument,
                  "{} holds a part of another conversion; remove the folder, or take another", out_);
    }
    if (!fs::is_empty(out_, error)) {
      return Fail(ErrorCode::kAlreadyExists, "{} is not empty; take a new folder", out_);
    }
    return WriteFileAtomically(Path(kConversionPlanName), plan);
  }

  std::string Plan() const {
    uint32_t names = 0;
    for (size_t i = 0; i < set_.size(); ++i) {
      const std::string name = set_.name(i) + '\n';
      names = Crc32c(AsBytes(name), names);
    }
    const nlohmann::ordered_json json = {{"name", options_.name}, {"shards", shards_},
                                         {"seed", options_.seed}, {"images", set_.size()},
                                         {"names_crc32c", names}, {"classes", set_.classes()}};
    return json.dump(1) + "\n";
  }

  void Work() {
    FileBuffer buffer;
    for (uint64_t shard = next_++; shard < shards_; shard = next_++) {
      auto written = WriteShard(shard, buffer);
      const std::lock_guard lock(mutex_);
      if (!written && !failure_) failure_ = written.error();
      if (failure_) return;
      description_.shards[shard] = std::move(*written);
    }
  }

  Result<SetDescription::Shard> WriteShard(uint64_t shard, FileBuffer& buffer) {
    const std::string name = ShardName(shard);
    const uint32_t count = First(shard + 1) - First(shard);
    if (auto finished = Finished(name, count)) {
      ++kept_;
      IMGD_TRY(Advance(count));
      return *finished;
    }
    IMGD_ASSIGN(auto tar, TarWriter::Create(Path(name)));
    ShardIndex index;
    for (uint32_t i = First(shard); i < First(shard + 1); ++i) {
      const uint32_t sample = order_(i);
      if (Status read = set_.Read(sample, buffer); !read) {
        Error error = read.error();
        error.message = fmt::format("{}: {}", set_.place(sample), error.message);
        return tl::unexpected<Error>(std::move(error));
      }
      const std::string key = KeyOf(set_.name(sample));
      IMGD_ASSIGN(const uint64_t offset,
                  tar.Add(fmt::format("{}.{}", key, EndingOf(buffer.bytes())), buffer.bytes()));
      const std::string label = std::to_string(set_.label(sample));
      IMGD_TRY(tar.Add(key + ".cls", AsBytes(label)));
      index.images.push_back({key, offset, static_cast<uint32_t>(buffer.size), set_.label(sample)});
      IMGD_TRY(Advance(1));
    }
    IMGD_TRY(tar.Finish());
    index.shard_bytes = tar.bytes();
    IMGD_TRY(WriteFileAtomically(Path(name + ".idx"), EncodeShardIndex(index)));
    return SetDescription::Shard{name, tar.bytes(), count, fmt::format("{:08x}", tar.crc32c())};
  }

  /// A shard is finished when its index is there, which is written after it.
  std::optional<SetDescription::Shard> Finished(const std::string& name, uint32_t count) const {
    const auto bytes = ReadFile(Path(name + ".idx"));
    if (!bytes) return std::nullopt;
    const auto index = DecodeShardIndex(*bytes, name);
    const auto tar = OpenFileSource(Path(name));
    if (!index || !tar || index->images.size() != count || index->shard_bytes != (*tar)->size())
      return std::nullopt;
    uint32_t crc = 0;
    std::vector<uint8_t> piece(size_t{1} << 20);
    for (uint64_t at = 0; at < (*tar)->size(); at += piece.size()) {
      const auto part =
          std::span(piece).first(static_cast<size_t>(std::min<uint64_t>(piece.size(), (*tar)->size() - at)));
      if (!(*tar)->ReadAt(at, part)) return std::nullopt;
      crc = Crc32c(part, crc);
    }
    return SetDescription::Shard{name, (*tar)->size(), count, fmt::format("{:08x}", crc)};
  }

  Status Advance(uint64_t images) {
    const std::lock_guard lock(mutex_);
    done_ += images;
    if (!progress_ || progress_(done_, set_.size())) return {};
    return Fail(ErrorCode::kCancelled, "stopped after {} of {} images; the same command goes on with it",
                done_, set_.size());
  }

  const Dataset& set_;
  const ConvertOptions& options_;
  const std::string out_;
  const ConvertProgress& progress_;
  const Permutation order_{static_cast<uint32_t>(set_.size()), options_.seed, 0, Purpose::kConversion};
  uint64_t shards_ = 0;
  std::atomic<uint64_t> next_ = 0;
  std::atomic<uint64_t> kept_ = 0;

  std::mutex mutex_;  // guards what follows, and serialises progress_
  SetDescription description_;
  uint64_t done_ = 0;
  std::optional<Error> failure_;
};

}  // namespace

Result<ConvertResult> WriteShards(const Dataset& set, const ConvertOptions& options, const std::string& out,
                                  const ConvertProgress& progress) {
  return Converter(set, options, out, progress).Run();
}

}  // namespace imgd::data
