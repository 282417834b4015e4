#include "server/store/log_store.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>

#include "common/files.h"

namespace imgd {
namespace {

constexpr size_t kMostKnown = 100'000;

/// Of one whose files are gone: who sends more goes on behind what was stored.
LogPosition WithoutFiles(const LogPosition& position) { return {.last_line = position.last_line}; }

}  // namespace

LogStore::LogStore(std::filesystem::path folder, uint64_t kept_bytes, MetricsStore* metrics)
    : folder_(std::move(folder)), segment_bytes_(std::max<uint64_t>(kept_bytes / 2, 1)), metrics_(metrics) {}

Result<LogPosition> LogStore::PositionOf(const LogStream& stream) {
  if (const auto known = known_.find(stream); known != known_.end()) return known->second;
  return metrics_->LogPositionOf(stream);
}

Result<uint64_t> LogStore::Append(const LogStream& stream, const std::vector<StoredLine>& lines) {
  auto pending = batch_.find(stream);
  if (pending == batch_.end()) {
    IMGD_ASSIGN(const auto position, PositionOf(stream));
    pending = batch_.emplace(stream, Pending{.position = position}).first;
  }
  auto& [position, text, begins_segment] = pending->second;
  for (const auto& line : lines) {
    if (line.number <= position.last_line) continue;
    if (line.number > position.last_line + 1 && !line.text.starts_with(kAgentNotice)) break;
    position.last_line = line.number;
    text += EncodeLine(line);
  }
  return position.last_line;
}

Status LogStore::Flush() {
  for (auto& [stream, pending] : batch_) {
    if (pending.text.empty()) continue;
    auto& position = pending.position;
    if (position.segment_bytes >= segment_bytes_) {
      ++position.segment;
      position.segment_bytes = 0;
      pending.begins_segment = true;
    }
    IMGD_TRY(WriteOut(stream, pending));
    position.segment_bytes += pending.text.size();
    metrics_->SaveLogPosition(stream, position);
  }
  return {};
}

void LogStore::LeaveOut(JobId job) {
  for (auto& [stream, pending] : batch_) {
    if (stream.run.job == job) pending = {.position = WithoutFiles(pending.position)};
  }
}

Result<std::map<JobId, uint64_t>> LogStore::Sizes() {
  IMGD_ASSIGN(auto sizes, metrics_->LogSizes(segment_bytes_));
  for (const auto& [stream, pending] : batch_) {
    if (!pending.text.empty()) sizes[stream.run.job] += pending.text.size();
  }
  return sizes;
}

Status LogStore::WriteOut(const LogStream& stream, const Pending& pending) {
  const auto path = LogFile(folder_, stream, pending.position.segment);
  const bool cut = pending.begins_segment || !checked_.contains(stream);
  if (cut) IMGD_TRY(MakeFolders(path.parent_path()));
  const UniqueFd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
  if (!fd.valid()) return FailErrno(errno, "cannot open " + path.native());
  if (cut && ::ftruncate(fd.get(), static_cast<off_t>(pending.position.segment_bytes)) != 0) {
    return FailErrno(errno, "cannot cut back " + path.native());
  }
  checked_.insert(stream);
  IMGD_TRY(WriteAll(fd.get(), pending.text, path.native()));
  if (::fdatasync(fd.get()) != 0) return FailErrno(errno, "cannot sync " + path.native());
  return {};
}

void LogStore::Committed() {
  if (known_.size() > kMostKnown) known_.clear();
  for (const auto& [stream, pending] : batch_) {
    known_[stream] = pending.position;
    if (pending.begins_segment && pending.position.segment >= 2) {
      std::error_code ignored;  // what stays is only space, and goes with the job
      std::filesystem::remove(LogFile(folder_, stream, pending.position.segment - 2), ignored);
    }
  }
  batch_.clear();
}

void LogStore::RemoveJob(JobId job) {
  for (auto& [stream, position] : known_) {
    if (stream.run.job == job) position = WithoutFiles(position);
  }
  std::erase_if(checked_, [job](const LogStream& stream) { return stream.run.job == job; });
  std::error_code ignored;  // what can't be removed now goes at the next start
  std::filesystem::remove_all(folder_ / fmt::format("{}", job), ignored);
}

void RemoveLogsOfOthers(const std::filesystem::path& folder, const std::set<JobId>& known) {
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(folder, ignored)) {
    const std::string name = entry.path().filename().string();
    uint64_t id = 0;
    const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), id);
    if (error != std::errc() || end != name.data() + name.size() || known.contains(JobId(id))) continue;
    std::filesystem::remove_all(entry.path(), ignored);
  }
}

void LogStore::Rollback() {
  for (const auto& [stream, pending] : batch_) {
    known_.erase(stream);
    checked_.erase(stream);
  }
  batch_.clear();
}

}  // namespace imgd
