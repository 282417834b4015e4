#include "trainer/pulse.h"

#include <algorithm>

#include "trainer/unanswered.h"

namespace imgd::trainer {
namespace {

constexpr std::chrono::milliseconds kBeat{500};
/// After so many beats without a move the training thread waits for something, and what it waits for is
/// looked at.
constexpr int kStillBeats = 6;
/// A step may take so many times the usual.
constexpr int kMedianSteps = 5;

}  // namespace

void RunningMedian::Add(std::chrono::milliseconds time) {
  if (times_.size() < kKept) {
    times_.push_back(time);
  } else {
    times_[next_] = time;
    next_ = (next_ + 1) % kKept;
  }
  auto sorted = times_;
  const auto middle = sorted.begin() + static_cast<std::ptrdiff_t>(sorted.size() / 2);
  std::nth_element(sorted.begin(), middle, sorted.end());
  median_ = *middle;
}

Pulse::Pulse(const JobSpec::Limits& limits) : limits_(limits) {
  state_.silence_limit_ms = static_cast<uint64_t>(limits.silence_ms);
  state_.what = "starting";
  UpdateLimit();
  thread_ = std::thread([this] { Beat(); });
}

Pulse::~Pulse() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  stopped_.notify_all();
  thread_.join();
}

Status Pulse::WriteTo(const std::filesystem::path& run_dir, int local_rank) {
  IMGD_ASSIGN(auto file, PulseFile::Create(run_dir / PulseFileName(static_cast<uint32_t>(local_rank))));
  const std::lock_guard lock(mutex_);
  file_ = std::move(file);
  file_->Write(state_);
  return {};
}

void Pulse::SetPosition(uint64_t step, const char* what) {
  const std::lock_guard lock(mutex_);
  ++state_.moves;
  state_.step = step;
  state_.what = what;
  state_.unanswered.clear();
  if (count_) state_.collectives = count_();
  if (file_) file_->Write(state_);
}

void Pulse::SetActivity(Activity activity) {
  const std::lock_guard lock(mutex_);
  if (activity_ == activity) return;
  activity_ = activity;
  // Steps of another image size are no measure for those to come.
  if (activity == Activity::kAutotune) step_times_ = {};
  UpdateLimit();
}

void Pulse::AddStep(std::chrono::milliseconds time) {
  const std::lock_guard lock(mutex_);
  step_times_.Add(time);
  UpdateLimit();
}

Pulse::During::During(Pulse& pulse, Activity activity) : pulse_(pulse) {
  const std::lock_guard lock(pulse_.mutex_);
  before_ = std::exchange(pulse_.during_, activity);
  ++pulse_.state_.moves;
  pulse_.UpdateLimit();
}

Pulse::During::~During() {
  const std::lock_guard lock(pulse_.mutex_);
  pulse_.during_ = before_;
  ++pulse_.state_.moves;
  pulse_.UpdateLimit();
}

void Pulse::CountCollectivesBy(std::function<uint64_t()> count) {
  const std::lock_guard lock(mutex_);
  count_ = std::move(count);
}

void Pulse::SetConnecting(std::string address) {
  const std::lock_guard lock(mutex_);
  connecting_ = std::move(address);
}

PulseState Pulse::State() const {
  const std::lock_guard lock(mutex_);
  return state_;
}

uint64_t Pulse::LimitOf(Activity activity) const {
  const auto five_steps = (kMedianSteps * step_times_.median()).count();
  const auto of_step = limits_.step_ms == 0 ? 0 : std::max(limits_.step_ms, int64_t{five_steps});
  switch (activity) {
    case Activity::kStart:
      return static_cast<uint64_t>(limits_.start_ms);
    case Activity::kAutotune:
      return static_cast<uint64_t>(limits_.autotune_ms);
    case Activity::kStep:
      return static_cast<uint64_t>(of_step);
    case Activity::kInput:
      return static_cast<uint64_t>(limits_.input_ms);
    case Activity::kValidation:
      return static_cast<uint64_t>(limits_.validation_ms);
    case Activity::kCheckpoint:
      return static_cast<uint64_t>(limits_.checkpoint_ms);
  }
  return 0;
}

void Pulse::UpdateLimit() {
  const uint64_t base = LimitOf(activity_);
  const uint64_t inner = during_ ? LimitOf(*during_) : base;
  state_.limit_ms = base == 0 || inner == 0 ? 0 : std::max(base, inner);
  if (file_) file_->Write(state_);
}

void Pulse::Beat() {
  std::unique_lock lock(mutex_);
  while (!stop_) {
    ++state_.beats;
    still_beats_ = state_.moves == moves_at_last_beat_ ? still_beats_ + 1 : 0;
    moves_at_last_beat_ = state_.moves;
    if (still_beats_ >= kStillBeats) {
      if (count_) state_.collectives = count_();
      lock.unlock();
      std::string unanswered = UnansweredPeer();
      lock.lock();
      // Unless it has gone on meanwhile.
      if (state_.moves == moves_at_last_beat_)
        state_.unanswered = unanswered.empty() ? connecting_ : std::move(unanswered);
    }
    if (file_) file_->Write(state_);
    stopped_.wait_for(lock, kBeat, [this] { return stop_; });
  }
}

}  // namespace imgd::trainer
