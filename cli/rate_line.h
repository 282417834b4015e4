#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "cli/app.h"

namespace imgd::cli {

/// One line on standard error that is drawn over: "checking 1.20 GiB of 3.41 GiB, 512 MiB/s, 4s left";
/// nothing where that is no terminal. One thread at a time.
class RateLine {
 public:
  enum class Unit { kImages, kBytes };

  RateLine(Context& context, std::string verb, Unit unit);
  ~RateLine();
  RateLine(const RateLine&) = delete;
  RateLine& operator=(const RateLine&) = delete;

  void Show(uint64_t done, uint64_t total);

 private:
  using Clock = std::chrono::steady_clock;

  Context& context_;
  const std::string verb_;
  const Unit unit_;
  const Clock::time_point start_ = Clock::now();
  Clock::time_point last_;
  bool drawn_ = false;
};

/// The line itself, `seconds` after the start.
std::string RateText(const std::string& verb, RateLine::Unit unit, uint64_t done, uint64_t total,
                     double seconds);

}  // namespace imgd::cli
