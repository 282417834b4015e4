#include "trainer/report/run_dir_reporter.h"

#include <cstdio>
#include <deque>
#include <mutex>
#include <string>
#include <utility>

#include "trainer/report/event_of.h"
#include "trainer/report/events_file.h"

namespace imgd::report {
namespace {

class RunDirReporter final : public Reporter {
 public:
  RunDirReporter(EventsFile file, uint64_t last_sequence, const Clock& clock)
      : clock_(clock), file_(std::move(file)), sequence_(last_sequence) {}

  void On(const Started& x) override { Write(EventOf(x)); }
  void On(const StepFigures& x) override { Write(EventOf(x)); }
  void On(const EpochFigures& x) override { Write(EventOf(x)); }
  void On(const CheckpointFigures& x) override { Write(EventOf(x)); }
  void On(const Profiled& x) override { Write(EventOf(x)); }
  void On(const Finished& x) override { Write(EventOf(x)); }
  void On(const Failed& x) override { Write(EventOf(x)); }
  void On(const BadImage& x) override { Write(EventOf(x)); }
  void On(const ClassFigures& x) override { Write(EventOf(x)); }
  void On(const ShownImages& x) override { Write(EventOf(x)); }
  void Note(const std::string&) override {}

 private:
  static constexpr size_t kMaxPending = 10'000;

  void Write(v1::TrainerEvent event) {
    const std::lock_guard lock(mutex_);
    event.set_sequence(++sequence_);
    event.set_time_us(clock_.Wall().micros);
    pending_.push_back(event.SerializeAsString());
    while (!pending_.empty()) {
      if (auto written = file_.Append(pending_.front()); !written) {
        OnWriteError(written.error());
        return;
      }
      pending_.pop_front();
    }
  }

  /// Numbers have no gaps, so what is given up is the newest, not the oldest.
  void OnWriteError(const Error& error) {
    if (!complained_) std::fprintf(stderr, "imgtrain: %s; trying again\n", error.ToString().c_str());
    complained_ = true;
    if (pending_.size() > kMaxPending) {
      pending_.pop_back();
      --sequence_;
    }
  }

  const Clock& clock_;
  std::mutex mutex_;  ///< guards all below
  EventsFile file_;
  uint64_t sequence_;
  std::deque<std::string> pending_;  ///< serialised events that are not in the file yet
  bool complained_ = false;
};

}  // namespace

Result<std::unique_ptr<Reporter>> MakeRunDirReporter(const std::filesystem::path& run_dir, int local_rank,
                                                     const Clock& clock) {
  const auto path = run_dir / fmt::format("events.{}", local_rank);
  IMGD_ASSIGN(auto file, EventsFile::Open(path));
  v1::TrainerEvent last;
  if (!last.ParseFromString(file.last_payload())) {
    return Fail(ErrorCode::kDataLoss, "{}: the last frame is no trainer event", path.native());
  }
  const uint64_t sequence = last.sequence();
  return std::make_unique<RunDirReporter>(std::move(file), sequence, clock);
}

}  // namespace imgd::report
