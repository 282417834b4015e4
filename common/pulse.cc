#include "common/pulse.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string_view>
#include <utility>

#include "common/files.h"

namespace imgd {
namespace {

constexpr std::string_view kPulsePrefix = "imgd-pulse.";  ///< of files in kPulseFolder
/// Whoever runs the agent reads it, and may be another user.
constexpr mode_t kPulseMode = 0644;

constexpr uint64_t kPulseMagic = 0x31'65'73'6c'75'70'64'69;  // "idpulse1"

/// The file, in the machine's own byte order: it is read on the same machine.
struct PulseRecord {
  uint64_t magic = kPulseMagic;
  uint64_t version = 0;  ///< odd while the rest is being written
  uint64_t beats = 0;
  uint64_t moves = 0;
  uint64_t step = 0;
  uint64_t collectives = 0;
  uint64_t limit_ms = 0;
  uint64_t silence_limit_ms = 0;
  std::array<char, kMaxPulseText + 1> what{};
  std::array<char, kMaxPulseText + 1> unanswered{};
};
static_assert(sizeof(PulseRecord) % sizeof(uint64_t) == 0);
using Words = std::array<uint64_t, sizeof(PulseRecord) / sizeof(uint64_t)>;
constexpr size_t kVersionWord = 1;

void CopyText(const std::string& text, std::array<char, kMaxPulseText + 1>& out) {
  std::memcpy(out.data(), text.data(), std::min(text.size(), kMaxPulseText));
}

Result<Words> ReadWords(const std::filesystem::path& path) {
  // A rank may have put there what never ends, or never begins.
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (!fd.valid()) return FailErrno(errno, fmt::format("cannot open {}", path.native()));
  struct stat facts {};
  Words words;
  if (::fstat(fd.get(), &facts) != 0 || !S_ISREG(facts.st_mode) || facts.st_size != sizeof words ||
      ::read(fd.get(), words.data(), sizeof words) != sizeof words) {
    return Fail(ErrorCode::kDataLoss, "{} is no file of {} bytes", path.native(), sizeof words);
  }
  return words;
}

Result<void*> MapPulse(const UniqueFd& fd, const std::filesystem::path& path) {
  // A hole would be filled at the first store, which a full disk answers with SIGBUS.
  if (const int error = ::posix_fallocate(fd.get(), 0, sizeof(PulseRecord)); error != 0) {
    return FailErrno(error, fmt::format("cannot write {}", path.native()));
  }
  void* memory = ::mmap(nullptr, sizeof(PulseRecord), PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  if (memory == MAP_FAILED) return FailErrno(errno, fmt::format("cannot map {}", path.native()));
  return memory;
}

bool IsFolderInMemory(const std::filesystem::path& folder) {
  struct statfs facts {};
  return ::statfs(folder.c_str(), &facts) == 0 &&
         (facts.f_type == TMPFS_MAGIC || facts.f_type == RAMFS_MAGIC);
}

struct KeptPulse {
  std::string path;
  void* memory = nullptr;
};

/// Nothing where it can't be.
std::optional<KeptPulse> MakeInMemory(const std::filesystem::path& folder) {
  if (!IsFolderInMemory(folder)) return std::nullopt;
  KeptPulse out{.path = (folder / kPulsePrefix).native() + "XXXXXX"};
  const UniqueFd fd(::mkostemp(out.path.data(), O_CLOEXEC));
  if (!fd.valid()) return std::nullopt;
  const auto memory = MapPulse(fd, out.path);
  if (!memory || ::fchmod(fd.get(), kPulseMode) != 0) {
    ::unlink(out.path.c_str());
    return std::nullopt;
  }
  out.memory = *memory;
  return out;
}

}  // namespace

std::string PulseFileName(uint32_t local_rank) { return fmt::format("pulse.{}", local_rank); }

void PulseFile::Unmap::operator()(void* memory) const { ::munmap(memory, sizeof(PulseRecord)); }

Result<PulseFile> PulseFile::Create(const std::filesystem::path& path, const std::filesystem::path& folder) {
  RemovePulse(path, folder);
  void* memory = nullptr;
  if (const auto kept = MakeInMemory(folder)) {
    memory = kept->memory;
    // A folder of the run that links can't be made in has the file itself.
    if (::symlink(kept->path.c_str(), path.c_str()) != 0) {
      ::unlink(kept->path.c_str());
      ::munmap(std::exchange(memory, nullptr), sizeof(PulseRecord));
    }
  }
  if (memory == nullptr) {
    const UniqueFd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, kPulseMode));
    if (!fd.valid()) return FailErrno(errno, fmt::format("cannot create {}", path.native()));
    IMGD_ASSIGN(memory, MapPulse(fd, path));
  }
  PulseFile file(memory);
  file.Write({});
  return file;
}

void RemovePulse(const std::filesystem::path& path, const std::filesystem::path& folder) {
  std::error_code ignored;
  const auto target = std::filesystem::read_symlink(path, ignored);
  if (target.parent_path() == folder && target.filename().native().starts_with(kPulsePrefix))
    ::unlink(target.c_str());
  ::unlink(path.c_str());
}

void PulseFile::Write(const PulseState& state) {
  PulseRecord record{.beats = state.beats,
                     .moves = state.moves,
                     .step = state.step,
                     .collectives = state.collectives,
                     .limit_ms = state.limit_ms,
                     .silence_limit_ms = state.silence_limit_ms};
  CopyText(state.what, record.what);
  CopyText(state.unanswered, record.unanswered);
  const auto words = std::bit_cast<Words>(record);
  auto* const shared = static_cast<uint64_t*>(memory_.get());
  const std::atomic_ref<uint64_t> version(shared[kVersionWord]);
  const uint64_t next = version.load(std::memory_order_relaxed) / 2 * 2 + 2;
  version.store(next - 1, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_release);
  for (size_t i = 0; i < words.size(); ++i) {
    if (i != kVersionWord) std::atomic_ref<uint64_t>(shared[i]).store(words[i], std::memory_order_relaxed);
  }
  version.store(next, std::memory_order_release);
}

Result<PulseState> ReadPulse(const std::filesystem::path& path) {
  constexpr int kTries = 4;
  for (int i = 0; i < kTries; ++i) {
    // Twice the same, with an even version, was not being written while it was read.
    IMGD_ASSIGN(const Words words, ReadWords(path));
    IMGD_ASSIGN(const Words again, ReadWords(path));
    if (words != again || words[kVersionWord] % 2 != 0) continue;
    auto record = std::bit_cast<PulseRecord>(words);
    if (record.magic != kPulseMagic)
      return Fail(ErrorCode::kDataLoss, "{} is no pulse of a rank", path.native());
    record.what.back() = record.unanswered.back() = '\0';
    return PulseState{.beats = record.beats,
                      .moves = record.moves,
                      .step = record.step,
                      .collectives = record.collectives,
                      .limit_ms = record.limit_ms,
                      .silence_limit_ms = record.silence_limit_ms,
                      .what = record.what.data(),
                      .unanswered = record.unanswered.data()};
  }
  return Fail(ErrorCode::kUnavailable, "{} can't be read as a whole now", path.native());
}

}  // namespace imgd
