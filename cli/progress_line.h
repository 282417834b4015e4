#pragma once

#include <chrono>
#include <ostream>

#include "cli/commands.h"

namespace imgd::cli {

/// One line on standard error that is drawn over: "writing 120/2000 images"; nothing where that is no
/// terminal.
class ProgressLine {
 public:
  /// `verb`: what is done to images; a literal.
  ProgressLine(Context& context, const char* verb) : context_(context), verb_(verb) {}

  void Show(uint64_t done, uint64_t total) {
    const auto now = std::chrono::steady_clock::now();
    if (!context_.terminal().err_is_terminal) return;
    if (done < total && now - last_ < std::chrono::milliseconds(100)) return;
    last_ = now;
    context_.err() << fmt::format("\r{} {}/{} images", verb_, done, total) << std::flush;
    drawn_ = true;
  }

  void End() const {
    if (drawn_) context_.err() << "\r\033[K" << std::flush;
  }

 private:
  Context& context_;
  const char* verb_;
  bool drawn_ = false;
  std::chrono::steady_clock::time_point last_;
};

}  // namespace imgd::cli
