#include "agent/shim/log_writer.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>

namespace imgd {
namespace {

constexpr uint64_t kMaxSegmentBytes = 1 << 20;
constexpr uint64_t kMinSegmentBytes = 4 << 10;

/// Where to cut `text`, which is longer than a piece may be.
size_t CutPoint(std::string_view text) {
  size_t cut = kMaxLineBytes;
  // A UTF-8 sequence has at most three bytes after its first; other bytes of that look are no UTF-8 anyway.
  for (int back = 0; back < 3 && (static_cast<unsigned char>(text[cut]) & 0xC0) == 0x80; ++back) --cut;
  return cut;
}

}  // namespace

void LineSplitter::EmitLine(std::string_view line, const Emit& emit) {
  if (line.ends_with('\r')) line.remove_suffix(1);
  while (line.size() > kMaxLineBytes) {
    const size_t cut = CutPoint(line);
    emit(line.substr(0, cut));
    line.remove_prefix(cut);
  }
  emit(line);
}

void LineSplitter::Feed(std::string_view data, const Emit& emit) {
  while (true) {
    const auto newline = data.find('\n');
    if (newline == std::string_view::npos) break;
    if (partial_.empty()) {
      EmitLine(data.substr(0, newline), emit);
    } else {
      partial_ += data.substr(0, newline);
      EmitLine(partial_, emit);
      partial_.clear();
    }
    data.remove_prefix(newline + 1);
  }
  partial_ += data;
  // Strictly longer, so that a line of exactly the greatest length is one piece when its newline comes.
  while (partial_.size() > kMaxLineBytes + 1) {
    const size_t cut = CutPoint(partial_);
    emit(std::string_view(partial_).substr(0, cut));
    partial_.erase(0, cut);
  }
}

void LineSplitter::Finish(const Emit& emit) {
  if (!partial_.empty()) EmitLine(partial_, emit);
  partial_.clear();
}

LogWriter::LogWriter(std::filesystem::path dir, uint32_t ranks, uint64_t limit_bytes)
    : dir_(std::move(dir)),
      limit_bytes_(limit_bytes),
      segment_bytes_(
          std::clamp(limit_bytes / (4 * std::max<uint64_t>(ranks, 1)), kMinSegmentBytes, kMaxSegmentBytes)),
      ranks_(ranks),
      current_(ranks) {}

void LogWriter::Append(uint32_t local_rank, int64_t time_us, bool is_stderr, std::string_view text) {
  Rank& rank = ranks_[local_rank];
  ++rank.last_line;
  if (rank.buffer.empty()) rank.buffer_first = rank.last_line;
  AppendLogRecord(rank.buffer, {rank.last_line, time_us, is_stderr, text});
  // One write fills at most one segment beyond its size.
  if (rank.size_bytes + rank.buffer.size() >= segment_bytes_) {
    Flush(local_rank);
    CloseSegment(local_rank);
    KeepWithinLimit();
  }
}

void LogWriter::Flush(uint32_t local_rank) {
  Rank& rank = ranks_[local_rank];
  if (rank.buffer.empty()) return;
  if (rank.fd.valid() || OpenSegment(local_rank)) {
    if (WriteAll(rank.fd.get(), rank.buffer, "log")) {
      rank.size_bytes += rank.buffer.size();
    } else if (::ftruncate(rank.fd.get(), static_cast<off_t>(rank.size_bytes)) != 0) {
      // A partial record would stay in the middle; nothing may follow it in this file.
      CloseSegment(local_rank);
    }
  }
  rank.buffer.clear();
}

bool LogWriter::OpenSegment(uint32_t local_rank) {
  Rank& rank = ranks_[local_rank];
  current_[local_rank] = dir_ / LogSegment{local_rank, rank.buffer_first}.Name();
  rank.fd = UniqueFd(::open(current_[local_rank].c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0640));
  rank.size_bytes = 0;
  return rank.fd.valid();
}

void LogWriter::CloseSegment(uint32_t local_rank) {
  Rank& rank = ranks_[local_rank];
  if (!rank.fd.valid()) return;
  rank.fd.reset();
  closed_.push_back({current_[local_rank], rank.size_bytes});
  rank.size_bytes = 0;
}

void LogWriter::KeepWithinLimit() {
  // The agent removes segments that the daemon has stored.
  std::erase_if(closed_, [](const Closed& segment) { return ::access(segment.path.c_str(), F_OK) != 0; });
  uint64_t total = segment_bytes_ * ranks_.size();  // what the open segments may grow to
  for (const auto& segment : closed_) total += segment.size_bytes;
  while (total > limit_bytes_ && !closed_.empty()) {
    ::unlink(closed_.front().path.c_str());
    total -= closed_.front().size_bytes;
    closed_.pop_front();
  }
}

}  // namespace imgd
