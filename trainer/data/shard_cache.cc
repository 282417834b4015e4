#include "trainer/data/shard_cache.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "common/sha256.h"
#include "trainer/data/crc32c.h"

namespace imgd::data {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kPauseSeconds = 60;
/// The folder is looked at again after so many bytes.
constexpr uint64_t kRoomStep = 256 << 20;

int64_t SteadySeconds() {
  return std::chrono::duration_cast<std::chrono::seconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

/// Differs after each start of the machine.
std::string BootId() {
  const auto id = ReadFile("/proc/sys/kernel/random/boot_id", 64);
  return id ? Sha256Of(*id).substr(0, 12) : std::string("unknown");
}

bool PreadAll(int fd, uint64_t offset, std::span<uint8_t> out) {
  size_t done = 0;
  while (done < out.size()) {
    const ssize_t n = ::pread(fd, out.data() + done, out.size() - done, static_cast<off_t>(offset + done));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    done += static_cast<size_t>(n);
  }
  return true;
}

bool PwriteAll(int fd, uint64_t offset, std::span<const uint8_t> bytes) {
  size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t n =
        ::pwrite(fd, bytes.data() + done, bytes.size() - done, static_cast<off_t>(offset + done));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    done += static_cast<size_t>(n);
  }
  return true;
}

}  // namespace

CacheEntry::CacheEntry(ShardCache& cache, UniqueFd fd, std::string path, std::string final_path,
                       uint64_t size, std::optional<uint32_t> crc32c)
    : cache_(cache),
      fd_(std::move(fd)),
      path_(std::move(path)),
      final_path_(std::move(final_path)),
      size_(size),
      chunks_((size + kChunkBytes - 1) / kChunkBytes),
      crc32c_(crc32c),
      here_(chunks_),
      filling_(chunks_),
      finished_(path_.empty()) {}

ByteRange CacheEntry::RangeOf(uint64_t chunk) const {
  return {chunk * kChunkBytes, std::min(kChunkBytes, size_ - chunk * kChunkBytes)};
}

bool CacheEntry::Has(uint64_t chunk) const {
  if (here_[chunk].load(std::memory_order_acquire) != 0) return true;
  uint8_t byte = 0;
  if (!PreadAll(fd_.get(), size_ + chunk, {&byte, 1}) || byte != 1) return false;
  here_[chunk].store(1, std::memory_order_release);
  return true;
}

bool CacheEntry::Read(uint64_t offset, std::span<uint8_t> out) const {
  if (out.empty()) return true;
  for (uint64_t chunk = offset / kChunkBytes; chunk <= (offset + out.size() - 1) / kChunkBytes; ++chunk) {
    if (!Has(chunk)) return false;
  }
  return PreadAll(fd_.get(), offset, out);
}

/// Locks of the open file, not of the process: they keep out other processes, and end with them.
bool CacheEntry::LockByte(uint64_t chunk, short kind) const {
  struct flock lock {};
  lock.l_type = kind;
  lock.l_whence = SEEK_SET;
  lock.l_start = static_cast<off_t>(size_ + chunk);
  lock.l_len = 1;
  return ::fcntl(fd_.get(), F_OFD_SETLK, &lock) == 0;
}

Status CacheEntry::Fill(const Source& source, uint64_t chunk, const std::stop_token& stop) {
  {
    const std::lock_guard lock(mutex_);
    if (finished_ || filling_[chunk] || Has(chunk)) return {};
    filling_[chunk] = true;
  }
  Status status;
  if (LockByte(chunk, F_WRLCK)) {
    const ByteRange range = RangeOf(chunk);
    if (!Has(chunk) && cache_.MakeRoom(range.size)) {
      std::vector<uint8_t> bytes(range.size);
      status = source.ReadUntil(range.offset, bytes, stop);
      const uint8_t there = 1;
      if (status &&
          !(PwriteAll(fd_.get(), range.offset, bytes) && PwriteAll(fd_.get(), size_ + chunk, {&there, 1})))
        cache_.Full(std::strerror(errno));
    }
    LockByte(chunk, F_UNLCK);
  }
  bool all = false;
  {
    const std::lock_guard lock(mutex_);
    filling_[chunk] = false;
    filled_.notify_all();
    all = !finished_;
    for (uint64_t i = 0; all && i < chunks_; ++i) all = Has(i);
    if (all) finished_ = true;
  }
  if (status && all) status = Finish(source);
  return status;
}

void CacheEntry::Await(uint64_t chunk, const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  filled_.wait(lock, stop, [&] { return !filling_[chunk]; });
}

/// All chunks are there: compared, flushed and given its lasting name by one of the processes.
Status CacheEntry::Finish(const Source& source) {
  if (crc32c_) {
    uint32_t crc = 0;
    std::vector<uint8_t> bytes;
    for (uint64_t i = 0; i < chunks_; ++i) {
      bytes.resize(RangeOf(i).size);
      if (!PreadAll(fd_.get(), RangeOf(i).offset, bytes)) return {};
      crc = Crc32c(bytes, crc);
    }
    if (crc != *crc32c_) {
      ::unlink(path_.c_str());
      return Fail(ErrorCode::kDataLoss,
                  "{} does not have the checksum that shards.json says: {:08x}, not {:08x}", source.name(),
                  crc, *crc32c_);
    }
  }
  if (::fdatasync(fd_.get()) == 0) ::rename(path_.c_str(), final_path_.c_str());
  return {};
}

UniqueFd ShardCache::LockFolder() const {
  UniqueFd lock(::open((folder_ + "/lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (lock.valid() && ::flock(lock.get(), LOCK_EX) != 0) lock.reset();
  return lock;
}

std::shared_ptr<CacheEntry> ShardCache::Open(const Source& source, std::optional<uint32_t> crc32c) {
  if (source.size() == 0 || source.size() > limit_ || !MakeFolders(folder_)) return nullptr;
  ::chmod(folder_.c_str(), 0700);
  const std::string what = fmt::format("{}\n{}\n{}\n{}", source.name(), source.size(), source.version(),
                                       crc32c ? fmt::format("{:08x}", *crc32c) : "");
  const std::string stem = fmt::format("{}/{}", folder_, Sha256Of(what).substr(0, 40));
  const std::string final_path = stem + ".shard";
  const std::string path = fmt::format("{}.{}.part", stem, BootId());
  const uint64_t whole =
      source.size() + (source.size() + CacheEntry::kChunkBytes - 1) / CacheEntry::kChunkBytes;
  // Nobody removes anything while the folder is locked.
  const UniqueFd folder_lock = LockFolder();
  if (!folder_lock.valid()) return nullptr;
  UniqueFd fd(::open(final_path.c_str(), O_RDWR | O_CLOEXEC));
  const bool finished = fd.valid();
  if (!finished) fd = UniqueFd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  struct stat status {};
  if (!fd.valid() || ::fstat(fd.get(), &status) != 0) return nullptr;
  if (status.st_size != static_cast<off_t>(whole)) {
    if (finished) ::unlink(final_path.c_str());
    if (finished || ::ftruncate(fd.get(), 0) != 0 || ::ftruncate(fd.get(), static_cast<off_t>(whole)) != 0)
      return nullptr;
  }
  if (::flock(fd.get(), LOCK_SH | LOCK_NB) != 0) return nullptr;
  ::futimens(fd.get(), nullptr);
  return std::shared_ptr<CacheEntry>(
      new CacheEntry(*this, std::move(fd), finished ? "" : path, final_path, source.size(), crc32c));
}

std::vector<ShardCache::Kept> ShardCache::Look() const {
  std::vector<Kept> all;
  std::error_code error;
  for (fs::directory_iterator it(folder_, error), end; !error && it != end; it.increment(error)) {
    const std::string path = it->path();
    struct stat status {};
    if (!path.ends_with(".shard") && !path.ends_with(".part")) continue;
    if (::lstat(path.c_str(), &status) != 0 || !S_ISREG(status.st_mode)) continue;
    all.push_back({path, static_cast<uint64_t>(status.st_blocks) * 512, status.st_mtim.tv_sec});
  }
  return all;
}

bool ShardCache::MakeRoom(uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  if (SteadySeconds() < full_until_) return false;
  if (room_ >= bytes) {
    room_ -= bytes;
    return true;
  }
  const UniqueFd folder_lock = LockFolder();
  struct statvfs disk {};
  if (!folder_lock.valid() || ::statvfs(folder_.c_str(), &disk) != 0) return false;
  const uint64_t reserve = disk.f_blocks / 20;
  uint64_t free = disk.f_bavail > reserve ? (disk.f_bavail - reserve) * disk.f_frsize : 0;
  auto all = Look();
  uint64_t used = 0;
  for (const auto& one : all) used += one.bytes;
  std::ranges::sort(all, {}, &Kept::used);
  // Others write too, so little is granted at a time.
  const auto granted = [&] { return std::min({limit_ - std::min(limit_, used), free, kRoomStep}); };
  const std::string boot = fmt::format(".{}.part", BootId());
  for (const auto& one : all) {
    const bool of_old_boot = one.path.ends_with(".part") && !one.path.ends_with(boot);
    if (granted() >= bytes && !of_old_boot) continue;
    const UniqueFd fd(::open(one.path.c_str(), O_RDWR | O_CLOEXEC));
    if (!fd.valid() || ::flock(fd.get(), LOCK_EX | LOCK_NB) != 0) continue;  // in use
    if (::unlink(one.path.c_str()) != 0) continue;
    used -= one.bytes;
    free += one.bytes;
  }
  if (granted() < bytes) {
    full_until_ = SteadySeconds() + kPauseSeconds;
    return false;
  }
  room_ = std::min(granted(), limit_ / 64 + bytes) - bytes;
  return true;
}

void ShardCache::Full(const std::string& why) {
  const std::lock_guard lock(mutex_);
  full_until_ = SteadySeconds() + kPauseSeconds;
  if (!told_ && notice_)
    notice_(fmt::format("the shard cache {} can't be written ({}); reading on without it", folder_, why));
  told_ = true;
}

Status CachedSource::ReadUntil(uint64_t offset, std::span<uint8_t> out, const std::stop_token& stop) const {
  if (offset > size() || out.size() > size() - offset) return file_->ReadAt(offset, out);
  {
    const std::lock_guard lock(mutex_);
    if (bad_) return tl::unexpected(*bad_);
  }
  if (entry_->Read(offset, out)) return {};
  // What is on its way, or about to be, is not fetched a second time.
  const uint64_t last = out.empty() ? 0 : (offset + out.size() - 1) / CacheEntry::kChunkBytes;
  for (uint64_t chunk = offset / CacheEntry::kChunkBytes; chunk <= last; ++chunk) {
    if (asked_[chunk] == 0) continue;
    Fill(chunk, stop);
    entry_->Await(chunk, stop);
  }
  if (entry_->Read(offset, out)) return {};
  return file_->ReadUntil(offset, out, stop);
}

void CachedSource::Fill(uint64_t chunk, const std::stop_token& stop) const {
  const Status status = entry_->Fill(*file_, chunk, stop);
  if (status || status.error().code != ErrorCode::kDataLoss) return;  // others show again when it is read
  const std::lock_guard lock(mutex_);
  bad_ = status.error();
}

void CachedSource::WillRead(std::span<const ByteRange> ranges) const {
  for (const auto& range : ranges) {
    if (range.size == 0 || range.end() > size() || range.end() < range.offset) continue;
    const uint64_t last = (range.end() - 1) / CacheEntry::kChunkBytes;
    for (uint64_t chunk = range.offset / CacheEntry::kChunkBytes; chunk <= last; ++chunk) {
      if (entry_->Has(chunk) || asked_[chunk].exchange(1) != 0) continue;
      const bool taken = pool_->Submit(this, [this, chunk] {
        Fill(chunk, {});
        asked_[chunk] = 0;
      });
      if (!taken) asked_[chunk] = 0;
    }
  }
}

}  // namespace imgd::data
