#include "agent/shim/keeper.h"

#include <fmt/ranges.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstdio>
#include <sstream>

#include "agent/process.h"
#include "agent/program.h"
#include "common/clock.h"
#include "common/url.h"
#include "common/version.h"

namespace imgd {
namespace {

constexpr size_t kPipeBytes = 64 << 10;
constexpr size_t kMaxErrorLineBytes = 1024;
/// How often what is left is looked for again, when no signal tells.
constexpr auto kEndRetry = std::chrono::milliseconds(50);
/// How often a status that does not fit on the disk is tried again.
constexpr auto kSaveRetry = std::chrono::seconds(1);
constexpr auto kFolderCheck = std::chrono::seconds(5);

/// Tells the groups of equal runs of several agents on one machine apart.
std::string CgroupName(const RunDir& dir, const RunKey& key) {
  uint64_t hash = 14695981039346656037ULL;  // FNV-1a
  for (const char c : dir.path.native()) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211ULL;
  return fmt::format("imgd-{}-{:08x}", key.ToString(), hash & 0xFFFFFFFFU);
}

/// "=====" under a message is not what a rank said last.
bool HasWord(std::string_view line) {
  return std::any_of(line.begin(), line.end(),
                     [](unsigned char c) { return c >= 0x80 || std::isalnum(c) != 0; });
}

}  // namespace

Keeper::Keeper(EventLoop* loop, RunDir dir, RunSpec spec)
    : loop_(loop),
      dir_(std::move(dir)),
      spec_(std::move(spec)),
      log_(dir_.path, spec_.local_world_size, spec_.log_limit_bytes),
      ranks_(spec_.local_world_size) {
  record_.version = kVersion;
  record_.shim_pid = ::getpid();
  const auto self = ReadProcessStat(::getpid());
  record_.shim_start_time = self ? self->start_time : 0;
  record_.boot_id = BootId();
  record_.ranks.resize(spec_.local_world_size);
  for (uint32_t i = 0; i < spec_.local_world_size; ++i) record_.ranks[i].rank = spec_.first_rank + i;
}

Status Keeper::Listen() {
  IMGD_ASSIGN(server_,
              StatusServer::Listen(loop_, [this](const std::string& command) { OnCommand(command); }));
  if (spec_.use_cgroup) {
    if (auto group = Cgroup::Create(CgroupName(dir_, spec_.key))) {
      cgroup_ = std::move(*group);
      record_.cgroup = cgroup_.path();
    } else {
      std::fprintf(stderr, "no cgroup for the ranks, process groups serve: %s\n",
                   group.error().message.c_str());
    }
  }
  auto saved = SaveRunRecord(dir_, record_);
  if (!saved) cgroup_.Remove();
  if (saved) server_->Push(ToJson(record_));
  LookForFolder();
  return saved;
}

void Keeper::LookForFolder() {
  // Without its folder no agent can ever find this run again: the ranks would hold their GPUs for nobody.
  if (::access(dir_.Spec().c_str(), F_OK) != 0 && errno == ENOENT) {
    StopRanks(std::chrono::milliseconds(spec_.grace_ms), false);
  }
  loop_->After(kFolderCheck, [this] { LookForFolder(); });
}

void Keeper::StartRanks(int master_fd) {
  const UniqueFd group = cgroup_.Open();
  UniqueFd master(master_fd);
  // What such a program listens on it binds itself.
  if (!spec_.Trains()) master.reset();
  if (const auto ready = Prepare(); !ready) record_.start_error = ready.error().ToString();
  for (uint32_t i = 0; i < spec_.local_world_size && record_.start_error.empty(); ++i) {
    const bool is_first = spec_.first_rank + i == 0;
    auto started =
        StartRank(spec_, {i, dir_.path, is_first ? master.get() : -1, group.get(), secrets_, ruleset_.get()});
    if (!started) {
      record_.start_error = started.error().message;
      KillAll();
      break;
    }
    record_.ranks[i].state = RankState::kRunning;
    record_.ranks[i].pid = started->pid;
    record_.ranks[i].start_time = started->start_time;
    ranks_[i].out.fd = std::move(started->out);
    ranks_[i].err.fd = std::move(started->err);
    Watch(i, false);
    Watch(i, true);
    Publish();  // a shim that is killed right now leaves the pids behind
  }
  if (record_.start_error.empty()) record_.phase = ShimPhase::kRunning;
  Publish();
  if (AllEnded()) EndWhenEmpty();
}

Status Keeper::Prepare() {
  IMGD_ASSIGN(secrets_, ReadSecrets(spec_.secrets_dir, spec_.secrets));
  if (spec_.paths.limited) {
    // As the user, whose folders may be closed to the agent.
    const auto may_write = [this]() -> Status {
      if (IsUrl(spec_.checkpoint_dir) || IsWithin(spec_.checkpoint_dir, spec_.paths.write)) return {};
      return Fail(ErrorCode::kPermissionDenied,
                  "its checkpoint.dir would be {}; jobs of its project may write in {} here",
                  spec_.checkpoint_dir, fmt::join(spec_.paths.write, ", "));
    };
    IMGD_TRY(spec_.user.given() ? DoAs(spec_.user, may_write) : may_write());
    IMGD_ASSIGN(ruleset_, MakeRuleset(PathsOfRanks(spec_, dir_)));
  }
  return spec_.Trains() ? Status() : PrepareProgram();
}

Status Keeper::PrepareProgram() {
  // The job's own folder is its user's, and where his ranks may write.
  const auto prepare = [this]() -> Status {
    if (ruleset_.valid() && Restrict(ruleset_.get()) != 0)
      return FailErrno(errno, "cannot limit the visible paths");
    return PrepareFolders(spec_.checkpoint_dir, spec_.program);
  };
  IMGD_TRY(spec_.user.given() || ruleset_.valid() ? DoAs(spec_.user, prepare) : prepare());
  spec_.program.dir = FolderOfProgram(spec_.checkpoint_dir, spec_.program);
  return {};
}

void Keeper::OnSignal(int signal) {
  if (signal == SIGTERM) StopRanks(std::chrono::milliseconds(spec_.grace_ms), false);
  if (signal == SIGCHLD) {
    ReapChildren();
    if (AllEnded()) EndWhenEmpty();
  }
}

// --- output ---

void Keeper::Watch(uint32_t local_rank, bool is_stderr) {
  const int fd = (is_stderr ? ranks_[local_rank].err : ranks_[local_rank].out).fd.get();
  (void)loop_->Watch(fd, EPOLLIN, [this, local_rank, is_stderr](uint32_t) {
    ReadOutput(local_rank, is_stderr);
    log_.Flush(local_rank);
  });
}

bool Keeper::ReadOutput(uint32_t local_rank, bool is_stderr) {
  Stream& stream = is_stderr ? ranks_[local_rank].err : ranks_[local_rank].out;
  if (!stream.fd.valid()) return false;
  char buffer[kPipeBytes];
  const ssize_t n = ::read(stream.fd.get(), buffer, sizeof buffer);
  if (n < 0) return errno == EINTR;
  const auto take = [&](std::string_view line) { TakeLine(local_rank, is_stderr, line); };
  if (n > 0) {
    stream.lines.Feed({buffer, static_cast<size_t>(n)}, take);
    return true;
  }
  stream.lines.Finish(take);
  loop_->Unwatch(stream.fd.get());
  stream.fd.reset();
  return false;
}

void Keeper::TakeLine(uint32_t local_rank, bool is_stderr, std::string_view said) {
  const std::string line = HideValues(said, secrets_);
  log_.Append(local_rank, SystemClock().Wall().micros, is_stderr, line);
  ranks_[local_rank].last_lines.Add(line);
  if (is_stderr && HasWord(line)) {
    record_.ranks[local_rank].last_error_line = line.substr(0, kMaxErrorLineBytes);
  }
}

void Keeper::DrainOutput(uint32_t local_rank, size_t max_reads) {
  for (const bool is_stderr : {false, true}) {
    for (size_t i = 0; i < max_reads && ReadOutput(local_rank, is_stderr); ++i) {
    }
  }
  log_.Flush(local_rank);
}

void Keeper::FinishOutput() {
  if (output_finished_) return;
  output_finished_ = true;
  for (uint32_t i = 0; i < ranks_.size(); ++i) {
    // No writer is left, so this comes to an end.
    DrainOutput(i, SIZE_MAX);
    for (const bool is_stderr : {false, true}) {
      Stream& stream = is_stderr ? ranks_[i].err : ranks_[i].out;
      if (!stream.fd.valid()) continue;
      // Open still: some process outside the run was handed the pipe.
      stream.lines.Finish([&](std::string_view line) { TakeLine(i, is_stderr, line); });
      loop_->Unwatch(stream.fd.get());
      stream.fd.reset();
    }
    log_.Flush(i);
  }
}

// --- the end ---

bool Keeper::ReapChildren() {
  while (true) {
    siginfo_t info{};
    if (::waitid(P_ALL, 0, &info, WEXITED | WNOHANG) != 0) return errno != ECHILD;
    if (info.si_pid == 0) return true;
    RecordExit(info.si_pid, info.si_code, info.si_status);
  }
}

void Keeper::RecordExit(int64_t pid, int status_code, int status) {
  for (uint32_t i = 0; i < record_.ranks.size(); ++i) {
    RankRecord& rank = record_.ranks[i];
    if (rank.pid != pid || rank.state != RankState::kRunning) continue;
    // What it wrote last says why; a pipe holds at most a few reads' worth, a grandchild may go on writing.
    DrainOutput(i, 16);
    const std::string rest =
        HideValues(ranks_[i].err.lines.partial(), secrets_).substr(0, kMaxErrorLineBytes);
    if (HasWord(rest)) rank.last_error_line = rest;
    rank.last_lines.clear();
    if (status_code != CLD_EXITED || status != 0) rank.last_lines = ranks_[i].last_lines.List();
    if (!rank.last_lines.empty() && !rest.empty()) rank.last_lines.push_back(rest);
    rank.state = RankState::kExited;
    (status_code == CLD_EXITED ? rank.exit_code : rank.signal) = status;
    rank.told = stop_ != Stop::kNo;
    loop_->Unwatch(ranks_[i].control.get());
    ranks_[i].control.reset();
    Publish();
  }
}

bool Keeper::AllEnded() const {
  return std::none_of(record_.ranks.begin(), record_.ranks.end(),
                      [](const RankRecord& rank) { return rank.state == RankState::kRunning; });
}

void Keeper::EndWhenEmpty() {
  loop_->Cancel(std::exchange(end_timer_, 0));
  // As the subreaper, this process has children for as long as any process of the run lives.
  cgroup_.Kill();
  for (const pid_t pid : DescendantsOf(::getpid())) ::kill(pid, SIGKILL);
  if (ReapChildren()) {
    end_timer_ = loop_->After(kEndRetry, [this] { EndWhenEmpty(); });
    return;
  }
  FinishOutput();
  cgroup_.Remove();
  Leave();
}

void Keeper::Leave() {
  record_.phase = ShimPhase::kGone;
  for (uint32_t i = 0; i < record_.ranks.size(); ++i) record_.ranks[i].lines = log_.lines(i);
  server_->Push(ToJson(record_));
  // How the ranks ended must not be lost: it stays in memory until it is on the disk or an agent has it.
  const auto saved = SaveRunRecord(dir_, record_);
  const bool kept = saved || server_->Delivered() || ::access(kShimSocket, F_OK) != 0;
  if (!kept) {
    end_timer_ = loop_->After(kSaveRetry, [this] { Leave(); });
    return;
  }
  server_->FlushOnce();
  ::unlink(kShimSocket);
  loop_->Stop();
}

void Keeper::Publish() {
  for (uint32_t i = 0; i < record_.ranks.size(); ++i) record_.ranks[i].lines = log_.lines(i);
  if (const auto saved = SaveRunRecord(dir_, record_); !saved) {
    std::fprintf(stderr, "%s\n", saved.error().message.c_str());
  }
  server_->Push(ToJson(record_));
}

}  // namespace imgd
