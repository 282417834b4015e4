#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "common/error.h"
#include "common/files.h"
#include "trainer/data/fetch_pool.h"
#include "trainer/data/remote_file.h"
#include "trainer/data/source.h"

namespace imgd::data {

class ShardCache;

/// The kept copy of one remote file: a file of the content in chunks, and after it a byte for each chunk that
/// says whether it is there. Processes share it: who fetches a chunk holds a lock on its byte, which goes
/// with the process. An unfinished one bears the machine's boot in its name: what the page cache held when
/// the machine went down is not trusted. A finished one was flushed and, where the checksum of the whole is
/// known, compared. While it is open, a shared flock keeps it from being removed. Thread-safe.
class CacheEntry {
 public:
  static constexpr uint64_t kChunkBytes = 4 << 20;

  /// Reads from the copy. False where not all of it is there, or the disk fails.
  bool Read(uint64_t offset, std::span<uint8_t> out) const;
  bool Has(uint64_t chunk) const;
  uint64_t chunks() const { return chunks_; }

  /// Fetches a chunk into the copy. Does nothing where it is there, on its way, or there is no room for it.
  /// Errors: those of the source; kDataLoss once the copy is complete and not what its checksum says.
  Status Fill(const Source& source, uint64_t chunk, const std::stop_token& stop);
  /// Waits for a thread of this process that fetches the chunk, until `stop`.
  void Await(uint64_t chunk, const std::stop_token& stop);

 private:
  friend class ShardCache;
  CacheEntry(ShardCache& cache, UniqueFd fd, std::string path, std::string final_path, uint64_t size,
             std::optional<uint32_t> crc32c);
  Status Finish(const Source& source);
  ByteRange RangeOf(uint64_t chunk) const;
  bool LockByte(uint64_t chunk, short kind) const;

  ShardCache& cache_;
  UniqueFd fd_;
  const std::string path_;  ///< of the unfinished one; empty when it was finished already
  const std::string final_path_;
  const uint64_t size_;
  const uint64_t chunks_;
  const std::optional<uint32_t> crc32c_;
  mutable std::vector<std::atomic<uint8_t>> here_;  ///< chunks known to be there
  std::mutex mutex_;
  std::condition_variable_any filled_;
  std::vector<bool> filling_;  ///< by this process; guarded by mutex_
  bool finished_ = false;      ///< guarded by mutex_
};

/// A folder of copies of remote files, with a limit; the longest unused go first. Shared by all processes of
/// a machine that name it. Thread-safe.
class ShardCache {
 public:
  /// `most_bytes` on disk; also a twentieth of the file system stays free.
  ShardCache(std::string folder, uint64_t most_bytes, std::function<void(const std::string&)> notice)
      : folder_(std::move(folder)), limit_(most_bytes), notice_(std::move(notice)) {}

  /// The copy of what the source is, as it begins or goes on; nothing where the folder can't be used.
  std::shared_ptr<CacheEntry> Open(const Source& source, std::optional<uint32_t> crc32c);

  /// Whether so many bytes more may be written; removes what is not in use to make room.
  bool MakeRoom(uint64_t bytes);
  /// The disk refused: nothing more is kept by this process for a while.
  void Full(const std::string& why);

 private:
  struct Kept {
    std::string path;
    uint64_t bytes = 0;
    int64_t used = 0;  ///< time
  };
  std::vector<Kept> Look() const;
  UniqueFd LockFolder() const;

  const std::string folder_;
  const uint64_t limit_;
  std::function<void(const std::string&)> notice_;
  std::mutex mutex_;
  uint64_t room_ = 0;  ///< bytes that may be written before the folder is looked at again; guarded by mutex_
  int64_t full_until_ = 0;  ///< steady seconds; guarded by mutex_
  bool told_ = false;       ///< guarded by mutex_
};

/// A remote file read through its copy, which is filled ahead of reading.
class CachedSource final : public Source {
 public:
  CachedSource(std::shared_ptr<RemoteFile> file, std::shared_ptr<ShardCache> cache,
               std::shared_ptr<CacheEntry> entry, std::shared_ptr<FetchPool> pool)
      : Source(file->name(), file->size(), file->version()),
        file_(std::move(file)),
        cache_(std::move(cache)),
        entry_(std::move(entry)),
        pool_(std::move(pool)),
        asked_(entry_->chunks()) {}
  ~CachedSource() override {
    file_->Stop();
    pool_->Cancel(this);
  }
  Status ReadAt(uint64_t offset, std::span<uint8_t> out) const override { return ReadUntil(offset, out, {}); }
  Status ReadUntil(uint64_t offset, std::span<uint8_t> out, const std::stop_token& stop) const override;
  void WillRead(std::span<const ByteRange> ranges) const override;

 private:
  void Fill(uint64_t chunk, const std::stop_token& stop) const;

  std::shared_ptr<RemoteFile> file_;
  std::shared_ptr<ShardCache> cache_;
  std::shared_ptr<CacheEntry> entry_;
  std::shared_ptr<FetchPool> pool_;
  mutable std::vector<std::atomic<uint8_t>> asked_;  ///< chunks that the pool was given
  mutable std::mutex mutex_;
  mutable std::optional<Error> bad_;  ///< the content is not what it should be; guarded by mutex_
};

}  // namespace imgd::data
