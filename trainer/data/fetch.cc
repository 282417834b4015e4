#include "trainer/data/fetch.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "common/files.h"
#include "common/sha256.h"
#include "common/url.h"
#include "trainer/data/hash.h"
#include "trainer/data/remote_file.h"

namespace imgd::data {
namespace {

constexpr std::string_view kPartsMagic = "imgd-parts-1";
constexpr size_t kReadBytes = 4 << 20;
/// Far more than any archive; what is kept for each chunk is bounded by it.
constexpr uint64_t kMostFileBytes = uint64_t{16} << 40;

bool IsHex(std::string_view text) {
  return std::ranges::all_of(text, [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

/// What is being fetched, and which of its chunks are there.
class Parts {
 public:
  Parts(const Source& source, uint64_t chunk_bytes, std::string path)
      : path_(std::move(path)),
        head_(fmt::format("{} {} {} {}\n", kPartsMagic, source.size(), chunk_bytes,
                          Sha256Of(source.version()))),
        there_((source.size() + chunk_bytes - 1) / chunk_bytes) {}

  const std::vector<bool>& there() const { return there_; }

  /// What an earlier fetch of the same version noted. Errors: those of the file system.
  Status Open(bool part_is_there) {
    const auto before = part_is_there ? ReadFile(path_, 64 << 20) : Result<std::string>(std::string());
    if (before && before->starts_with(head_))
      there_ = ChunksNoted(std::string_view(*before).substr(head_.size()), there_.size());
    std::string text = head_;
    for (size_t i = 0; i < there_.size(); ++i) {
      if (there_[i]) text += fmt::format("{}\n", i);
    }
    IMGD_TRY(WriteFileAtomically(path_, text));
    fd_ = UniqueFd(::open(path_.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC));
    if (!fd_.valid()) return FailErrno(errno, fmt::format("cannot open {}", path_));
    return {};
  }
  /// After the chunk is on the disk.
  Status Note(size_t chunk) { return WriteAll(fd_.get(), fmt::format("{}\n", chunk), path_); }

 private:
  const std::string path_;
  const std::string head_;
  std::vector<bool> there_;
  UniqueFd fd_;
};

/// Several threads fetch the chunks that are missing.
class Fetcher {
 public:
  Fetcher(const Source& source, const FetchOptions& options, Parts& parts, const std::string& path, int fd)
      : source_(source), options_(options), parts_(parts), path_(path), fd_(fd) {
    for (size_t i = 0; i < parts.there().size(); ++i) {
      if (parts.there()[i])
        done_ += SizeOf(i);
      else
        missing_.push_back(i);
    }
  }
  uint64_t done() const { return done_; }

  /// `stop` breaks off what is being read.
  Status Run(const std::function<void()>& stop) {
    std::vector<std::thread> threads;
    const size_t count = std::min<size_t>(static_cast<size_t>(options_.connections), missing_.size());
    running_ = count;
    for (size_t i = 0; i < count; ++i) threads.emplace_back([this] { Work(); });
    {
      std::unique_lock lock(mutex_);
      while (running_ > 0 && !error_) {
        changed_.wait_for(lock, std::chrono::milliseconds(100));
        const uint64_t done = done_;
        lock.unlock();
        const bool go_on = !options_.on_progress || options_.on_progress(done, source_.size(), false);
        lock.lock();
        if (!go_on && !error_)
          error_ = Error{.code = ErrorCode::kCancelled, .message = "stopped; the same command goes on"};
      }
    }
    if (error_) stop();
    for (auto& thread : threads) thread.join();
    if (error_) return tl::unexpected(*error_);
    return {};
  }

 private:
  uint64_t SizeOf(size_t chunk) const {
    return std::min(options_.chunk_bytes, source_.size() - chunk * options_.chunk_bytes);
  }

  void Work() {
    std::vector<uint8_t> bytes;
    for (;;) {
      size_t chunk = 0;
      {
        const std::lock_guard lock(mutex_);
        if (error_ || next_ == missing_.size()) {
          --running_;
          changed_.notify_all();
          return;
        }
        chunk = missing_[next_++];
      }
      const Status status = Fetch(chunk, bytes);
      const std::lock_guard lock(mutex_);
      if (!status && !error_) error_ = status.error();
      if (status) done_ += SizeOf(chunk);
    }
  }

  Status Fetch(size_t chunk, std::vector<uint8_t>& bytes) {
    const uint64_t offset = chunk * options_.chunk_bytes;
    bytes.resize(SizeOf(chunk));
    IMGD_TRY(source_.ReadAt(offset, bytes));
    for (size_t done = 0; done < bytes.size();) {
      const ssize_t n =
          ::pwrite(fd_, bytes.data() + done, bytes.size() - done, static_cast<off_t>(offset + done));
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) return FailErrno(errno, fmt::format("cannot write {}", path_));
      done += static_cast<size_t>(n);
    }
    // Noted only when it outlives a crash of the machine.
    if (::fdatasync(fd_) != 0) return FailErrno(errno, fmt::format("cannot write {}", path_));
    const std::lock_guard lock(mutex_);
    return parts_.Note(chunk);
  }

  const Source& source_;
  const FetchOptions& options_;
  Parts& parts_;
  const std::string& path_;
  const int fd_;
  std::mutex mutex_;  ///< guards all below, and parts_
  std::condition_variable changed_;
  std::vector<size_t> missing_;
  size_t next_ = 0;
  size_t running_ = 0;
  uint64_t done_ = 0;
  std::optional<Error> error_;
};

/// Nothing to compare with: fine.
Status Check(const std::string& path, const FetchOptions& options) {
  if (!options.checksum) return {};
  const bool md5 = options.checksum->size() == 32;
  Digest digest(md5 ? Digest::Kind::kMd5 : Digest::Kind::kSha256);
  IMGD_ASSIGN(const auto file, OpenFileSource(path));
  std::vector<uint8_t> bytes;
  for (uint64_t at = 0; at < file->size(); at += bytes.size()) {
    bytes.resize(std::min<uint64_t>(kReadBytes, file->size() - at));
    IMGD_TRY(file->ReadAt(at, bytes));
    digest.Add(bytes);
    if (options.on_progress && !options.on_progress(at + bytes.size(), file->size(), true))
      return Fail(ErrorCode::kCancelled, "stopped; the same command goes on");
  }
  const std::string found = digest.Finish();
  if (found == *options.checksum) return {};
  return Fail(ErrorCode::kDataLoss, "{} has the {} {}, not {}", path, md5 ? "MD5" : "SHA-256", found,
              *options.checksum);
}

/// Gives the file its size, and its blocks where the file system can: a disk that is too small shows now, not
/// after hours.
Status Reserve(int fd, const std::string& path, uint64_t bytes) {
  if (::ftruncate(fd, static_cast<off_t>(bytes)) != 0)
    return FailErrno(errno, fmt::format("cannot write {}", path));
  if (bytes == 0 || ::fallocate(fd, 0, 0, static_cast<off_t>(bytes)) == 0) return {};
  if (errno != ENOSPC && errno != EDQUOT) return {};  // unknown to many file systems
  return FailErrno(errno, fmt::format("cannot reserve the {} bytes of {}", bytes, path));
}

Result<UniqueFd> OpenPart(const std::string& path) {
  UniqueFd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
  if (!fd.valid()) return FailErrno(errno, fmt::format("cannot write {}", path));
  if (::flock(fd.get(), LOCK_EX | LOCK_NB) != 0)
    return Fail(ErrorCode::kAlreadyExists, "another fetch is writing {}", path);
  return fd;
}

}  // namespace

std::vector<bool> ChunksNoted(std::string_view lines, size_t chunks) {
  std::vector<bool> there(chunks);
  while (!lines.empty()) {
    const size_t end = lines.find('\n');
    if (end == std::string_view::npos) break;  // torn
    size_t chunk = 0;
    const auto parsed = std::from_chars(lines.data(), lines.data() + end, chunk);
    if (parsed.ec != std::errc() || parsed.ptr != lines.data() + end || chunk >= chunks) break;
    there[chunk] = true;
    lines.remove_prefix(end + 1);
  }
  return there;
}

Result<Checksums> ParseChecksums(const std::string& text, const std::string& name) {
  Checksums sums;
  int line = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    std::string one = text.substr(at, end - at);
    at = end + 1;
    ++line;
    if (one.ends_with('\r')) one.pop_back();
    if (one.empty() || one.starts_with('#')) continue;
    const size_t space = one.find(' ');
    std::string digits = one.substr(0, space);
    std::ranges::transform(digits, digits.begin(),
                           [](char c) { return c >= 'A' && c <= 'F' ? static_cast<char>(c + 32) : c; });
    const bool good = space != std::string::npos && space + 2 < one.size() && IsHex(digits) &&
                      (digits.size() == 32 || digits.size() == 64);
    if (!good)
      return Fail(ErrorCode::kDataLoss, "{}:{}: no line of md5sum or sha256sum, 'DIGITS  NAME'", name, line);
    const std::string path = one.substr(space + 2);   // behind two blanks, or a blank and a '*'
    sums[path.substr(path.rfind('/') + 1)] = digits;  // npos + 1 is 0
  }
  return sums;
}

std::optional<std::string> KnownChecksum(const std::string& name) {
  static const Checksums kKnown = {{"ILSVRC2012_img_train.tar", "1d675b47d978889d74fa0da5fadfb00e"},
                                   {"ILSVRC2012_img_val.tar", "29b22e2961454d5413ddabcf34fc5622"},
                                   {"ILSVRC2012_devkit_t12.tar.gz", "fa75699e90414af021442c21a62c3abf"}};
  const auto found = kKnown.find(name);
  return found == kKnown.end() ? std::nullopt : std::optional(found->second);
}

Result<Fetched> FetchFile(const SourceOpener& opener, const std::string& where, const std::string& out,
                          const FetchOptions& options) {
  IMGD_ASSIGN(const auto source, opener.OpenPlain(where));
  if (source->size() > kMostFileBytes) {
    return Fail(ErrorCode::kDataLoss, "{} is said to have {} bytes; at most {} are fetched", source->name(),
                source->size(), kMostFileBytes);
  }
  Fetched fetched{.bytes = source->size(), .checked = options.checksum.has_value()};
  struct stat there {};
  if (::stat(out.c_str(), &there) == 0) {
    if (static_cast<uint64_t>(there.st_size) != source->size())
      return Fail(ErrorCode::kDataLoss,
                  "{} is there with {} bytes, but {} has {}; remove it to fetch it again", out, there.st_size,
                  source->name(), source->size());
    IMGD_TRY(Check(out, options));
    fetched.kept = fetched.bytes;
    return fetched;
  }
  const std::string part = out + ".part";
  // Where neither a version nor a checksum would tell, parts of two versions might become one file.
  const bool can_tell = options.checksum || !source->version().empty();
  const bool part_is_there =
      can_tell && ::stat(part.c_str(), &there) == 0 && static_cast<uint64_t>(there.st_size) == source->size();
  IMGD_ASSIGN(const UniqueFd fd, OpenPart(part));
  if (const Status reserved = Reserve(fd.get(), part, source->size()); !reserved) {
    if (!part_is_there) ::unlink(part.c_str());  // else what is there is kept for when there is room
    return tl::unexpected(reserved.error());
  }
  Parts parts(*source, options.chunk_bytes, out + ".parts");
  IMGD_TRY(parts.Open(part_is_there));
  Fetcher fetcher(*source, options, parts, part, fd.get());
  fetched.kept = fetcher.done();
  const auto remote = std::dynamic_pointer_cast<RemoteFile>(source);
  IMGD_TRY(fetcher.Run([&] {
    if (remote) remote->Stop();
  }));
  if (const Status status = Check(part, options); !status) {
    if (status.error().code == ErrorCode::kDataLoss) {
      ::unlink(part.c_str());
      ::unlink((out + ".parts").c_str());
    }
    return tl::unexpected(status.error());
  }
  if (::fsync(fd.get()) != 0 || ::rename(part.c_str(), out.c_str()) != 0)
    return FailErrno(errno, fmt::format("cannot write {}", out));
  ::unlink((out + ".parts").c_str());
  return fetched;
}

}  // namespace imgd::data
