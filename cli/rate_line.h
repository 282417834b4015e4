#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <utility>

#include "cli/progress_line.h"

namespace imgd::cli {

/// One line on standard error that is drawn over: "checking 1.20 GiB of 3.41 GiB, 512 MiB/s, 4s left";
/// nothing where that is no terminal. One thread at a time.
class RateLine {
 public:
  enum class Unit { kImages, kBytes };

  RateLine(Context& context, std::string verb, Unit unit)
      : line_(context), verb_(std::move(verb)), unit_(unit) {}

  void Show(uint64_t done, uint64_t total);

 private:
  using Clock = std::chrono::steady_clock;

  DrawnLine line_;
  const std::string verb_;
  const Unit unit_;
  const Clock::time_point start_ = Clock::now();
};

/// The line itself, `seconds` after the start.
std::string RateText(const std::string& verb, RateLine::Unit unit, uint64_t done, uint64_t total,
                     double seconds);

}  // namespace imgd::cli
