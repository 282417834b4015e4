#pragma once

#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "trainer/data/fetch_pool.h"
#include "trainer/data/remote_file.h"
#include "trainer/data/source.h"

namespace imgd::data {

/// Neighbours put together: ranges in the order in which the first of each is wanted, none over `most_bytes`
/// but those that were, with gaps of at most `most_gap` bytes between. `pieces` says how many went into each.
struct JoinedRange {
  ByteRange range;
  size_t pieces = 0;
  size_t first = 0;  ///< place of the piece that is wanted first
};
std::vector<JoinedRange> Join(std::span<const ByteRange> ranges, uint64_t most_gap, uint64_t most_bytes);

/// Memory for what was fetched ahead, shared by the files of a set. Never more than its limit; what was
/// announced and never read makes room in time. Thread-safe.
class ReadAhead {
 public:
  ReadAhead(std::shared_ptr<FetchPool> pool, uint64_t most_bytes)
      : pool_(std::move(pool)), limit_(most_bytes) {}

  void Announce(const RemoteFile& file, std::span<const ByteRange> ranges);
  /// Copies what was fetched ahead, waiting for what is on its way; false where nothing was, or after `stop`.
  bool Take(const RemoteFile& file, uint64_t offset, std::span<uint8_t> out, const std::stop_token& stop);
  /// Before the file goes.
  void Forget(const RemoteFile& file);
  uint64_t used_bytes() const;

 private:
  enum class State { kQueued, kRunning, kDone, kFailed };
  struct Block {
    ByteRange range;
    size_t pieces_left;
    uint64_t mark;  ///< announced_ when it was
    State state = State::kQueued;
    std::unique_ptr<uint8_t[]> bytes;  ///< as many as `range` has
  };
  using Key = std::pair<const RemoteFile*, uint64_t>;
  using Blocks = std::map<Key, std::shared_ptr<Block>>;

  void Fetch(const RemoteFile& file, const std::shared_ptr<Block>& block, const std::stop_token& stop);
  Blocks::iterator Find(const RemoteFile& file, uint64_t offset, uint64_t size);
  Blocks::iterator Drop(Blocks::iterator block);
  void DropStale();

  std::shared_ptr<FetchPool> pool_;
  const uint64_t limit_;
  mutable std::mutex mutex_;  ///< guards all below, and the blocks but for their bytes while kRunning
  std::condition_variable_any changed_;
  Blocks blocks_;
  uint64_t used_ = 0;
  uint64_t announced_ = 0;  ///< bytes, ever
};

/// A remote file that fetches ahead what it is told will be read.
class AheadSource final : public Source {
 public:
  AheadSource(std::shared_ptr<RemoteFile> file, std::shared_ptr<ReadAhead> ahead)
      : Source(file->name(), file->size(), file->version()),
        file_(std::move(file)),
        ahead_(std::move(ahead)) {}
  ~AheadSource() override {
    file_->Stop();
    ahead_->Forget(*file_);
  }
  Status ReadAt(uint64_t offset, std::span<uint8_t> out) const override { return ReadUntil(offset, out, {}); }
  Status ReadUntil(uint64_t offset, std::span<uint8_t> out, const std::stop_token& stop) const override {
    if (ahead_->Take(*file_, offset, out, stop)) return {};
    return file_->ReadUntil(offset, out, stop);
  }
  void WillRead(std::span<const ByteRange> ranges) const override { ahead_->Announce(*file_, ranges); }

 private:
  std::shared_ptr<RemoteFile> file_;
  std::shared_ptr<ReadAhead> ahead_;
};

/// Reads a source through a window that grows while reading goes forward, so that many small reads cost few
/// large ones: for headers. For one thread.
class WindowSource final : public Source {
 public:
  explicit WindowSource(const Source& source)
      : Source(source.name(), source.size(), source.version()), source_(source) {}
  Status ReadAt(uint64_t offset, std::span<uint8_t> out) const override;

 private:
  const Source& source_;
  mutable std::vector<uint8_t> window_;
  mutable uint64_t at_ = 0;
  mutable uint64_t next_size_ = 16 << 10;
};

}  // namespace imgd::data
