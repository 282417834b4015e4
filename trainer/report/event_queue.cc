#include "trainer/report/event_queue.h"

#include <algorithm>
#include <string>

#include "common/utf8.h"

namespace imgd::report {
namespace {

constexpr size_t kMostTextBytes = size_t{16} << 10;
constexpr size_t kMostTableBytes = size_t{40} << 10;  ///< of a profile

/// To at most so many bytes, between two characters.
void Cut(std::string& text, size_t most) {
  if (text.size() <= most) return;
  while (most > 0 && (static_cast<unsigned char>(text[most]) & 0xC0) == 0x80) --most;
  text.resize(most);
  text += "...";
}

void CutTexts(v1::TrainerEvent& event) {
  switch (event.event_case()) {
    case v1::TrainerEvent::kFailed:
      Cut(*event.mutable_failed()->mutable_message(), kMostTextBytes);
      break;
    case v1::TrainerEvent::kBadImage:
      Cut(*event.mutable_bad_image()->mutable_path(), kMostTextBytes);
      Cut(*event.mutable_bad_image()->mutable_error(), kMostTextBytes);
      break;
    case v1::TrainerEvent::kProfile:
      Cut(*event.mutable_profile()->mutable_table(), kMostTableBytes);
      break;
    case v1::TrainerEvent::kNote:
      Cut(*event.mutable_note()->mutable_text(), kMostTextBytes);
      break;
    default:
      break;
  }
}

bool IsEnd(const v1::TrainerEvent& event) { return event.has_finished() || event.has_failed(); }

}  // namespace

void EventQueue::Add(v1::TrainerEvent event) {
  CutTexts(event);
  waiting_.push_back(std::move(event));
  while (waiting_.size() > most_) {
    const size_t before = waiting_.size();
    Thin();
    if (waiting_.size() == before) return;
  }
}

void EventQueue::Thin() {
  const size_t before = waiting_.size();
  std::deque<v1::TrainerEvent> kept;
  bool odd = false;
  for (size_t i = 0; i < waiting_.size(); ++i) {
    const bool is_old_step = waiting_[i].has_step() && i < before / 2;
    if (is_old_step) odd = !odd;
    if (!is_old_step || odd) kept.push_back(std::move(waiting_[i]));
  }
  waiting_ = std::move(kept);
  if (waiting_.size() == before) {
    const auto oldest = std::find_if(waiting_.begin(), waiting_.end(), [](const v1::TrainerEvent& event) {
      return !IsEnd(event) && !event.has_started();
    });
    if (oldest != waiting_.end()) waiting_.erase(oldest);
  }
  lost_ += before - waiting_.size();
}

void EventQueue::Number() {
  uint64_t next = acknowledged_;
  for (auto& event : batch_) event.set_sequence(++next);
}

const std::vector<v1::TrainerEvent>& EventQueue::Batch() {
  if (!batch_.empty()) return batch_;
  size_t bytes = 0;
  while (!waiting_.empty() && batch_.size() < kMostInBatch && bytes < kMostBatchBytes) {
    auto event = std::move(waiting_.front());
    waiting_.pop_front();
    if (event.has_note()) event.mutable_note()->set_line_number(++lines_);
    bytes += event.ByteSizeLong();
    batch_.push_back(std::move(event));
  }
  Number();
  return batch_;
}

void EventQueue::Acknowledge(uint64_t sequence) {
  std::erase_if(batch_, [sequence](const v1::TrainerEvent& event) { return event.sequence() <= sequence; });
  acknowledged_ = sequence;
  Number();
}

void EventQueue::StartAnew() {
  waiting_.insert(waiting_.begin(), std::make_move_iterator(batch_.begin()),
                  std::make_move_iterator(batch_.end()));
  batch_.clear();
  acknowledged_ = 0;
  lines_ = 0;
}

void EventQueue::DropBatch() {
  const size_t before = batch_.size();
  // Alone it may pass.
  std::erase_if(batch_, [before](const v1::TrainerEvent& event) { return before == 1 || !IsEnd(event); });
  lost_ += before - batch_.size();
  Number();
}

}  // namespace imgd::report
