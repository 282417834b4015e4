#include "trainer/report/background_reporter.h"

#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>

namespace imgd::report {
namespace {

constexpr size_t kMostWaitingBytes = size_t{64} << 20;
constexpr size_t kReportBytes = size_t{4} << 10;  ///< about, of one without pictures
constexpr Duration kTimeToFail = std::chrono::milliseconds(400);

size_t SizeOf(const SampleFigures& x) {
  size_t bytes = 0;
  for (const auto& sample : x.samples) bytes += sample.rgb.size();
  return bytes;
}
size_t SizeOf(const ClassFigures& x) {
  return x.confusion.size() * sizeof(uint32_t) + x.names.size() * sizeof(std::string);
}

class BackgroundReporter final : public Reporter {
 public:
  BackgroundReporter(std::unique_ptr<Reporter> reporter, std::function<void(const std::string&)> note)
      : reporter_(std::move(reporter)), note_(std::move(note)), thread_([this] { Work(); }) {}

  ~BackgroundReporter() override {
    {
      const std::lock_guard lock(mutex_);
      ending_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

  void On(const Started& x) override { Later(x); }
  void On(const StepFigures& x) override { Later(x); }
  void On(const EpochFigures& x) override { Later(x); }
  void On(const SampleFigures& x) override { Later(x, SizeOf(x)); }
  void On(const ClassFigures& x) override { Later(x, SizeOf(x)); }
  void On(const CheckpointFigures& x) override { Later(x); }
  void On(const Finished& x) override { Later(x); }
  void On(const Failed& x) override {
    Later(x);
    Drain(kTimeToFail);
  }
  void On(const BadImage& x) override { Later(x); }
  void Note(const std::string&) override {}

  void Drain(Duration most) override {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, most, [this] { return waiting_.empty() && !busy_; });
  }

 private:
  struct Task {
    std::function<void()> run;
    size_t bytes = 0;
  };

  template <typename T>
  void Later(const T& x, size_t more_bytes = 0) {
    const size_t bytes = kReportBytes + more_bytes;
    bool is_first_left_out = false;
    {
      const std::lock_guard lock(mutex_);
      if (bytes_ + bytes > kMostWaitingBytes) {
        is_first_left_out = !std::exchange(left_out_, true);
      } else {
        bytes_ += bytes;
        waiting_.push_back({[this, x] { reporter_->On(x); }, bytes});
      }
    }
    changed_.notify_all();
    if (is_first_left_out) note_("figures come faster than they can be written; some are left out");
  }

  void Work() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [this] { return ending_ || !waiting_.empty(); });
      if (waiting_.empty()) return;
      const Task task = std::move(waiting_.front());
      waiting_.pop_front();
      busy_ = true;
      lock.unlock();
      task.run();
      lock.lock();
      busy_ = false;
      bytes_ -= task.bytes;
      changed_.notify_all();
    }
  }

  const std::unique_ptr<Reporter> reporter_;  ///< the thread's
  const std::function<void(const std::string&)> note_;
  std::mutex mutex_;  ///< guards all below; never held while something is written
  std::condition_variable changed_;
  std::deque<Task> waiting_;
  size_t bytes_ = 0;  ///< of what waits and is being written
  bool busy_ = false;
  bool ending_ = false;
  bool left_out_ = false;
  std::thread thread_;
};

}  // namespace

std::unique_ptr<Reporter> MakeBackgroundReporter(std::unique_ptr<Reporter> reporter,
                                                 std::function<void(const std::string&)> note) {
  return std::make_unique<BackgroundReporter>(std::move(reporter), std::move(note));
}

}  // namespace imgd::report
