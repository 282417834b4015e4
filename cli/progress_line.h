#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "cli/commands.h"

namespace imgd::cli {

/// One line on standard error that is drawn over, not too often and never wider than the terminal; nothing
/// where that is no terminal, but for jobs of imgd, whose log gets a line each 10 s. Gone when it ends. One
/// thread at a time.
class DrawnLine {
 public:
  explicit DrawnLine(Context& context) : context_(context) {}
  ~DrawnLine() { End(); }
  DrawnLine(const DrawnLine&) = delete;
  DrawnLine& operator=(const DrawnLine&) = delete;

  /// Whether it is to be drawn anew by now; always at the end of the work.
  bool Due(uint64_t done, uint64_t total);
  void Draw(const std::string& text);
  void End();

 private:
  Context& context_;
  bool drawn_ = false;
  std::chrono::steady_clock::time_point last_;
};

/// How long a rate takes to say something, in seconds.
inline constexpr double kRateSettled = 0.5;

/// One line on standard error that is drawn over: a bar, "writing 120/2000 images", rates and the time that
/// is left; nothing where that is no terminal.
class ProgressLine {
 public:
  /// `verb`: what is done to images; a literal.
  ProgressLine(Context& context, const char* verb)
      : utf8_(context.terminal().utf8), line_(context), verb_(verb) {}

  /// `bytes`: read so far, for MB/s; 0: no such rate is shown. `skipped`: of the images done, those that an
  /// earlier run had done, which say nothing of the rate.
  void Show(uint64_t done, uint64_t total, uint64_t bytes = 0, uint64_t skipped = 0);
  /// From here on `verb` is what is done, with rates of its own, if it is another.
  void Start(const char* verb);
  void End() { line_.End(); }

 private:
  using Clock = std::chrono::steady_clock;

  const bool utf8_;
  DrawnLine line_;
  const char* verb_;
  Clock::time_point start_ = Clock::now();
};

/// The line itself: "writing ###....... 120/2000 images, 812 images/s, 91.2 MB/s, 2s left". Rates that are
/// not known are left out.
std::string ProgressText(const char* verb, uint64_t done, uint64_t total, double images_per_second,
                         double bytes_per_second, bool utf8);

}  // namespace imgd::cli
