#include "agent/follow.h"

#include <fcntl.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "common/utf8.h"

namespace imgd {
namespace {

constexpr size_t kReadBytes = 256 << 10;
/// No event of a trainer comes near it; a greater length is not a length, nor is 0.
constexpr uint32_t kMaxEventBytes = 1 << 20;
constexpr size_t kMostPlaces = 64;
constexpr const char* kUnreadable = "what the trainer wrote can't be read";
constexpr const char* kMissing = "the trainer's file does not hold them";
constexpr const char* kBadLength =
    "the trainer's file is damaged there; neither this event nor any later one of this rank can be read";
/// What a line costs on the wire besides its text.
constexpr size_t kLineOverheadBytes = 32;

/// Reads once more from `fd` to the end of `buffer`; false at the end of the file.
bool ReadMore(int fd, std::string& buffer) {
  const size_t before = buffer.size();
  buffer.resize(before + kReadBytes);
  ssize_t n = 0;
  do {
    n = ::read(fd, buffer.data() + before, kReadBytes);
  } while (n < 0 && errno == EINTR);
  buffer.resize(before + static_cast<size_t>(std::max<ssize_t>(n, 0)));
  return n > 0;
}

uint32_t LittleEndian32(std::string_view data) {
  uint32_t value = 0;
  for (size_t i = 0; i < 4; ++i)
    value |= static_cast<uint32_t>(static_cast<unsigned char>(data[i])) << (8 * i);
  return value;
}

}  // namespace

void Window::Sent(uint64_t last_number, size_t bytes) {
  batches_.emplace_back(last_number, bytes);
  bytes_ += bytes;
}

void Window::Acknowledged(uint64_t number) {
  while (!batches_.empty() && batches_.front().first <= number) {
    bytes_ -= batches_.front().second;
    batches_.pop_front();
  }
}

void Window::Clear() {
  batches_.clear();
  bytes_ = 0;
}

EventFollower::EventFollower(const RunDir& dir, uint32_t local_rank, bool quiet)
    : path_(dir.Events(local_rank)), quiet_(quiet) {}

void EventFollower::GoOnAfter(uint64_t sequence) {
  // From the last place that is known, or the file's start: what is before `sequence` is read over.
  while (!places_.empty() && places_.back().sequence > sequence) places_.pop_back();
  const Place from = places_.empty() ? Place{} : places_.back();
  fd_.reset();
  buffer_.clear();
  consumed_ = 0;
  damaged_ = false;
  read_ = from.sequence;
  offset_ = from.offset;
  last_ = sequence;
  acknowledged_ = sequence;
}

void EventFollower::Acknowledge(uint64_t sequence) {
  acknowledged_ = std::max(acknowledged_, sequence);
  while (places_.size() > 1 && places_[1].sequence <= acknowledged_) places_.pop_front();
}

bool EventFollower::Fill() {
  if (!fd_.valid()) {
    fd_ = UniqueFd(::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
    if (fd_.valid()) ::lseek(fd_.get(), static_cast<off_t>(offset_), SEEK_SET);
  }
  buffer_.erase(0, consumed_);
  consumed_ = 0;
  return fd_.valid() && ReadMore(fd_.get(), buffer_);
}

std::optional<std::string> EventFollower::NextBody() {
  while (!damaged_) {
    const std::string_view rest = std::string_view(buffer_).substr(consumed_);
    if (rest.size() >= 4) {
      const uint32_t length = LittleEndian32(rest);
      if (length == 0 || length > kMaxEventBytes) {
        damaged_ = true;
        if (quiet_) break;
        spdlog::error("file={} msg=\"damaged: a length of {} bytes was found, {} is the greatest\"",
                      path_.native(), length, kMaxEventBytes);
        break;
      }
      if (rest.size() >= 4 + length) {
        consumed_ += 4 + length;
        offset_ += 4 + length;
        return std::string(rest.substr(4, length));
      }
    }
    if (!Fill()) break;
  }
  return std::nullopt;
}

void EventFollower::AddLost(uint64_t up_to, const char* reason, v1::TrainerEvents* out) {
  if (!quiet_) {
    spdlog::error("file={} first={} last={} msg=\"events are lost: {}\"", path_.native(), last_ + 1, up_to,
                  reason);
  }
  auto* event = out->add_events();
  event->set_sequence(up_to);
  event->set_time_us(last_time_us_);
  event->mutable_lost()->set_count(up_to - last_);
  event->mutable_lost()->set_reason(reason);
  last_ = up_to;
}

size_t EventFollower::Read(size_t max_bytes, v1::TrainerEvents* out) {
  const bool was_damaged = damaged_;
  size_t bytes = 0;
  size_t looked_at = 0;
  bool unreadable = false;
  while (looked_at < max_bytes) {
    const auto body = NextBody();
    if (!body) break;
    looked_at += body->size() + 4;
    v1::TrainerEvent event;
    if (!event.ParseFromString(*body)) {
      ++read_;  // the trainer leaves no gap; several in a row are told of together
      unreadable = true;
      continue;
    }
    read_ = event.sequence();
    last_time_us_ = event.time_us();
    if (event.sequence() > last_ + 1) AddLost(read_ - 1, unreadable ? kUnreadable : kMissing, out);
    unreadable = false;
    if (event.sequence() <= last_) continue;
    last_ = event.sequence();
    bytes += body->size() + 4;
    *out->add_events() = std::move(event);
  }
  more_ = looked_at >= max_bytes;
  if (bytes > 0 && read_ == last_ && places_.size() < kMostPlaces) places_.push_back({last_, offset_});
  // The file only grows: whatever comes after them, they stay as they are.
  if (read_ > last_) AddLost(read_, kUnreadable, out);
  if (damaged_ && !was_damaged && read_ == last_) AddLost(last_ + 1, kBadLength, out);
  return out->events().empty() ? 0 : std::max<size_t>(bytes, 1);
}

LogFollower::LogFollower(const RunDir& dir, uint32_t local_rank, uint32_t rank, uint64_t generation)
    : dir_(dir.path), local_rank_(local_rank), rank_(rank), generation_(generation) {}

void LogFollower::GoOnAfter(uint64_t line) {
  CloseSegment();
  last_ = line;
  acknowledged_ = line;
}

void LogFollower::CloseSegment() {
  read_again_at_.reset();
  segment_.reset();
  fd_.reset();
  buffer_.clear();
  consumed_ = 0;
}

bool LogFollower::OpenNext() {
  const auto segments = ListLogSegments(dir_, local_rank_);
  // The one that holds line last_ + 1: the last that begins no later; where that line is lost, the next.
  std::optional<LogSegment> next;
  for (const auto& segment : segments) {
    if (segment_ && segment.first_line <= segment_->first_line) continue;
    if (segment.first_line <= last_ + 1 || !next) next = segment;
    if (segment.first_line > last_ + 1) break;
  }
  if (!next) return false;
  UniqueFd fd(::open((dir_ / next->Name()).c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd.valid()) return false;  // dropped just now; the next call sees the one after it
  CloseSegment();
  segment_ = next;
  fd_ = std::move(fd);
  return true;
}

bool LogFollower::Fill() {
  buffer_.erase(0, consumed_);
  consumed_ = 0;
  return ReadMore(fd_.get(), buffer_);
}

/// What is damaged may only be what the shim took back since, when the disk was full in the middle of a
/// record: true once for each place.
bool LogFollower::ReadAgain() {
  const off_t at = ::lseek(fd_.get(), 0, SEEK_CUR) - static_cast<off_t>(buffer_.size() - consumed_);
  if (read_again_at_ == at) return false;
  read_again_at_ = at;
  ::lseek(fd_.get(), 0, SEEK_SET);  // whole records before it may have been taken back, too
  buffer_.clear();
  consumed_ = 0;
  return true;
}

size_t LogFollower::AddLine(const LogRecord& record, v1::LogLines* out) {
  auto* line = out->add_lines();
  line->set_rank(rank_);
  line->set_line_number(record.number);
  line->set_time_us(record.time_us);
  line->set_is_stderr(record.is_stderr);
  line->set_text(ToUtf8(record.text));
  line->set_generation(generation_);
  last_ = record.number;
  last_text_ = line->text();
  return line->text().size() + kLineOverheadBytes;
}

size_t LogFollower::AddGap(uint64_t up_to, v1::LogLines* out) {
  const std::string text = fmt::format(
      "[imgagent] {} lines are missing here ({} to {}): the run's log on this node reached its limit before "
      "they "
      "could be sent, or the disk was full",
      up_to - last_, last_ + 1, up_to);
  return AddLine({up_to, last_time_us_, true, text}, out);
}

size_t LogFollower::Read(size_t max_bytes, v1::LogLines* out) {
  size_t bytes = 0;
  while (bytes < max_bytes) {
    LogRecord record;
    size_t used = 0;
    const auto parsed = fd_.valid()
                            ? ParseLogRecord(std::string_view(buffer_).substr(consumed_), &record, &used)
                            : LogParse::kPartial;
    if (parsed == LogParse::kRecord) {
      consumed_ += used;
      last_time_us_ = record.time_us;
      if (record.number <= last_) continue;
      if (record.number > last_ + 1) bytes += AddGap(record.number - 1, out);
      bytes += AddLine(record, out);
      continue;
    }
    if (parsed == LogParse::kPartial && fd_.valid() && Fill()) continue;
    if (parsed == LogParse::kCorrupt && ReadAgain()) continue;
    // Nothing more in this segment for now; it is finished once a later one exists. The list is taken first:
    // what is written between the two looks would otherwise be passed over.
    const auto segments = ListLogSegments(dir_, local_rank_);
    const bool is_finished =
        !segment_ || (!segments.empty() && segments.back().first_line > segment_->first_line);
    if (parsed == LogParse::kPartial && fd_.valid() && is_finished && Fill()) continue;
    if (parsed == LogParse::kCorrupt && is_finished) {
      spdlog::error("segment={} msg=\"damaged after line {}\"", (dir_ / segment_->Name()).native(), last_);
    }
    if (!is_finished || !OpenNext()) break;
  }
  if (bytes == 0 && end_ && *end_ > last_) bytes += AddGap(*end_, out);
  return bytes;
}

void LogFollower::Acknowledge(uint64_t line) {
  if (line <= acknowledged_) return;
  acknowledged_ = line;
  const auto segments = ListLogSegments(dir_, local_rank_);
  for (size_t i = 0; i + 1 < segments.size() && segments[i + 1].first_line <= line + 1; ++i) {
    ::unlink((dir_ / segments[i].Name()).c_str());
  }
}

}  // namespace imgd
