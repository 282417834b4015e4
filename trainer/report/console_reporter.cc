#include "trainer/report/console_reporter.h"

#include <fmt/core.h>

#include <array>
#include <cmath>
#include <mutex>
#include <utility>

namespace imgd::report {
namespace {

class ConsoleReporter final : public Reporter {
 public:
  ConsoleReporter(ConsoleOptions options, std::FILE* out, std::FILE* err)
      : options_(options), out_(out), err_(err) {}

  void On(const Started& x) override {
    std::lock_guard lock(mutex_);
    total_epochs_ = x.total_epochs;
    Line(out_,
         fmt::format("{} on {} x {}: {} training images, {} for validation, {} steps, {} an epoch", x.model,
                     x.world_size, x.device, x.train_images, x.val_images, x.total_steps, x.steps_per_epoch));
    if (x.trial) Line(out_, x.trial->ToString());
    if (!x.resumed_from.empty()) {
      Line(out_, fmt::format("goes on after step {} from {}", x.start_step, x.resumed_from));
    }
  }

  void On(const StepFigures& x) override {
    std::lock_guard lock(mutex_);
    if (!options_.in_place) return TableLine(x);
    Progress(
        fmt::format("epoch {:.2f}/{}  step {}/{}  loss {:.4f}  top-1 {:.1f} %  {:.0f} images/s  lr {:.4g}  "
                    "input wait {:.0f} %"
                    "  eta {}",
                    x.epoch, total_epochs_, x.step, x.total_steps, x.loss, 100 * x.top1, x.images_per_second,
                    x.learning_rate, 100 * x.input_wait_ratio, FormatDuration(x.eta_seconds)));
  }

  void On(const EpochFigures& x) override {
    std::lock_guard lock(mutex_);
    Line(out_,
         fmt::format(
             "epoch {}/{} validation: top-1 {:.2f} %  top-5 {:.2f} %  loss {:.4f}  ({} images, {:.1f} s)",
             x.epoch, x.total_epochs, 100 * x.val_top1, 100 * x.val_top5, x.val_loss, x.val_images,
             x.val_seconds));
  }

  void On(const CheckpointFigures& x) override {
    std::lock_guard lock(mutex_);
    Line(out_, fmt::format("checkpoint after step {}: {} ({})", x.step, x.path, FormatBytes(x.size_bytes)));
  }

  void On(const Profiled& x) override {
    std::lock_guard lock(mutex_);
    Line(out_, fmt::format("profile of rank {} in {}\n{}", x.rank, x.trace, x.text), true);
  }

  void On(const Finished& x) override {
    std::lock_guard lock(mutex_);
    Line(out_, x.val_top1 > 0 ? fmt::format("done: {} steps, validation top-1 {:.2f} %, top-5 {:.2f} %",
                                            x.step, 100 * x.val_top1, 100 * x.val_top5)
                              : fmt::format("done: {} steps", x.step));
  }

  void On(const Failed&) override {
    std::lock_guard lock(mutex_);
    EndProgress();
  }

  void On(const BadImage& x) override {
    std::lock_guard lock(mutex_);
    Line(err_, fmt::format("left out {}: {} ({} so far)", x.path, x.error, x.count), true);
  }

  void Note(const std::string& sentence) override {
    std::lock_guard lock(mutex_);
    Line(err_, sentence, true);
  }

 private:
  void EndProgress() {
    if (progress_shown_) std::fputs("\n", out_);
    progress_shown_ = false;
    std::fflush(out_);
  }

  void Line(std::FILE* to, const std::string& text, bool always = false) {
    if (options_.quiet && !always) return;
    EndProgress();
    std::fputs((text + "\n").c_str(), to);
    std::fflush(to);
  }

  /// Reports come between the steps that have a line too: once a second.
  void TableLine(const StepFigures& x) {
    if (x.step % options_.line_every_steps != 0 && x.step != x.total_steps) return;
    if (!std::exchange(head_shown_, true)) {
      Line(out_, fmt::format("{:>8} {:>8} {:>10} {:>9} {:>9} {:>11}", "Step", "Epoch", "Speed", "Loss",
                             "FinLoss", "LR"));
    }
    Line(out_, fmt::format("{:>8} {:>8.2f} {:>10.1f} {:>9.4f} {:>9.4f} {:>11.6g}", x.step, x.epoch,
                           x.images_per_second, x.loss, x.loss + x.penalty, x.learning_rate));
  }

  void Progress(const std::string& text) {
    if (options_.quiet) return;
    std::fputs(("\r\x1b[K" + text).c_str(), out_);
    std::fflush(out_);
    progress_shown_ = true;
  }

  const ConsoleOptions options_;
  std::mutex mutex_;  ///< guards all below, and keeps lines whole
  std::FILE* out_;
  std::FILE* err_;
  int total_epochs_ = 0;
  bool head_shown_ = false;
  bool progress_shown_ = false;
};

}  // namespace

std::unique_ptr<Reporter> MakeConsoleReporter(ConsoleOptions options, std::FILE* out, std::FILE* err) {
  return std::make_unique<ConsoleReporter>(options, out, err);
}

std::string FormatDuration(double seconds) {
  if (!std::isfinite(seconds) || seconds < 0) return "unknown";
  const auto total = static_cast<int64_t>(std::llround(seconds));
  const std::string clock = fmt::format("{}:{:02}:{:02}", total / 3600 % 24, total / 60 % 60, total % 60);
  return total >= 86400 ? fmt::format("{}d {}", total / 86400, clock) : clock;
}

std::string FormatBytes(uint64_t bytes) {
  constexpr std::array<const char*, 5> kUnits = {"B", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes);
  size_t unit = 0;
  while (value >= 1024 && unit + 1 < kUnits.size()) {
    value /= 1024;
    ++unit;
  }
  return unit == 0 ? fmt::format("{} B", bytes) : fmt::format("{:.1f} {}", value, kUnits[unit]);
}

}  // namespace imgd::report
