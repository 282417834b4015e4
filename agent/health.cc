#include "agent/health.h"

#include <fmt/format.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <fstream>
#include <thread>

#include "agent/identity.h"

namespace imgd {
namespace {

v1::NodeProblem Problem(v1::ProblemKind kind, std::string text) {
  v1::NodeProblem problem;
  problem.set_kind(kind);
  problem.set_text(std::move(text));
  return problem;
}

std::string GiB(uint64_t bytes) {
  return fmt::format("{:.2f} GiB", static_cast<double>(bytes) / static_cast<double>(1ULL << 30));
}

Result<uint64_t> DiskFree(const std::filesystem::path& folder) {
  struct statvfs info {};
  if (::statvfs(folder.c_str(), &info) != 0)
    return FailErrno(errno, fmt::format("cannot look at the disk of {}", folder.native()));
  return static_cast<uint64_t>(info.f_bavail) * info.f_frsize;
}

/// What the kernel thinks that programs can have without swapping (proc(5), MemAvailable).
Result<uint64_t> MemoryFree() {
  std::ifstream file("/proc/meminfo");
  std::string key;
  for (uint64_t value = 0; file >> key >> value; file.ignore(64, '\n')) {
    if (key == "MemAvailable:") return value << 10;
  }
  return Fail(ErrorCode::kUnavailable, "/proc/meminfo does not tell MemAvailable");
}

}  // namespace

Machine ThisMachine() { return {DiskFree, MemoryFree, WhyNoSharedFolder}; }

bool HealthChecks::TooLittle(bool& was, uint64_t found, uint64_t limit) {
  was = found < (was ? limit + limit / 10 : limit);
  return was;
}

std::vector<v1::NodeProblem> HealthChecks::Look() {
  std::vector<v1::NodeProblem> problems;
  if (const auto free = machine_.disk_free(state_dir_); limits_.disk_free_bytes > 0 && !free) {
    problems.push_back(Problem(v1::PROBLEM_KIND_DISK, free.error().message));
  } else if (limits_.disk_free_bytes > 0 && TooLittle(disk_full_, *free, limits_.disk_free_bytes)) {
    problems.push_back(
        Problem(v1::PROBLEM_KIND_DISK, fmt::format("has {} free on the disk of {}; {} are needed", GiB(*free),
                                                   state_dir_.native(), GiB(limits_.disk_free_bytes))));
  }
  const auto memory = machine_.memory_free();
  if (limits_.memory_free_bytes > 0 && memory && TooLittle(memory_low_, *memory, limits_.memory_free_bytes)) {
    problems.push_back(Problem(
        v1::PROBLEM_KIND_MEMORY,
        fmt::format("has {} of free memory; {} are needed", GiB(*memory), GiB(limits_.memory_free_bytes))));
  }
  std::string folders;
  for (const auto& folder : folders_) {
    const std::string why = machine_.why_no_folder(folder);
    if (!why.empty()) folders += fmt::format("{}{}", folders.empty() ? "" : "; ", why);
  }
  if (!folders.empty())
    problems.push_back(Problem(v1::PROBLEM_KIND_SHARED_FOLDER, "can't use a shared folder: " + folders));
  return problems;
}

std::string StrayMemory::Look(const v1::Device& gpu, const GpuReading& reading, bool held, Instant now) {
  constexpr auto kToBeFree = std::chrono::seconds(30);
  constexpr auto kTwoReadings = std::chrono::seconds(2);
  if (held) {
    last_run_[gpu.index()] = {.held_at = now, .least_used = gpu.memory_bytes(), .grew_at = {}};
    return "";
  }
  if (!reading.memory_used_bytes) return "";
  const uint64_t all = gpu.memory_bytes();
  const uint64_t used = std::min(*reading.memory_used_bytes, all);
  const bool lacks = (all - used) / 100 < all / 10'000 * least_free_percent_;
  const auto last = last_run_.find(gpu.index());
  if (last != last_run_.end() && now < last->second.held_at + kToBeFree) {
    LastRun& run = last->second;
    run.least_used = std::min(run.least_used, used);
    // What a run leaves only becomes less. Seen twice, since a reading may be of before its end.
    const bool grew = lacks && used - run.least_used > all / 100;
    run.grew_at = grew ? run.grew_at.value_or(now) : std::optional<Instant>();
    if (!grew || now < *run.grew_at + kTwoReadings) return "";
  }
  if (!lacks) return "";
  return fmt::format("has {} of its {} of memory in use by what is no run of imgd's (see nvidia-smi)",
                     GiB(used), GiB(all));
}

struct HealthMonitor::Shared {
  Shared(HealthChecks all, Duration every) : checks(std::move(all)), period(every) {}
  std::mutex mutex;
  std::condition_variable changed;
  bool stop = false;  // guarded by mutex, as what follows
  bool ended = false;
  Instant looked_at = std::chrono::steady_clock::now();
  std::vector<v1::NodeProblem> problems;
  HealthChecks checks;  // of the thread
  const Duration period;
};

HealthMonitor::HealthMonitor(HealthChecks checks, Duration period)
    : shared_(std::make_shared<Shared>(std::move(checks), period)) {
  // The first look is waited for, so that a node that is ill when it joins says so at once; not for ever.
  constexpr auto kPatience = std::chrono::seconds(2);
  std::unique_lock first(shared_->mutex);
  std::thread([shared = shared_] {
    std::unique_lock lock(shared->mutex, std::defer_lock);
    while (true) {
      auto problems = shared->checks.Look();
      lock.lock();
      shared->problems = std::move(problems);
      shared->looked_at = std::chrono::steady_clock::now();
      shared->changed.notify_all();
      shared->changed.wait_for(lock, shared->period, [&] { return shared->stop; });
      if (shared->stop) break;
      lock.unlock();
    }
    shared->ended = true;
    shared->changed.notify_all();
  }).detach();
  const Instant begun = shared_->looked_at;
  shared_->changed.wait_for(first, kPatience, [&] { return shared_->looked_at != begun; });
}

HealthMonitor::~HealthMonitor() {
  std::unique_lock lock(shared_->mutex);
  shared_->stop = true;
  shared_->changed.notify_all();
  shared_->changed.wait_for(lock, std::chrono::seconds(1), [&] { return shared_->ended; });
}

std::vector<v1::NodeProblem> HealthMonitor::Latest() const {
  std::unique_lock lock(shared_->mutex);
  auto problems = shared_->problems;
  const auto age = std::chrono::steady_clock::now() - shared_->looked_at;
  // Half a minute more than it should: disks may be slow.
  if (age > 2 * shared_->period + std::chrono::seconds(30)) {
    problems.push_back(Problem(
        v1::PROBLEM_KIND_SHARED_FOLDER,
        fmt::format("has not passed its health checks for {} s: a disk or a shared folder does not answer",
                    std::chrono::duration_cast<std::chrono::seconds>(age).count())));
  }
  return problems;
}

Status CheckSkew(const v1::Welcome& welcome, WallTime now) {
  if (welcome.time_us() == 0 || welcome.most_clock_skew_ms() == 0) return {};
  const int64_t ahead_ms = (now.micros - welcome.time_us()) / 1000;
  if (std::abs(ahead_ms) <= welcome.most_clock_skew_ms()) return {};
  return tl::unexpected(Error{
      .code = ErrorCode::kFailedPrecondition,
      .message = fmt::format("this node's clock is {} s {} imgd's, which places nothing new here for as long",
                             std::abs(ahead_ms) / 1000, ahead_ms < 0 ? "behind" : "ahead of"),
      .hint = "run NTP (chrony, systemd-timesyncd) here and on imgd's machine"});
}

}  // namespace imgd
