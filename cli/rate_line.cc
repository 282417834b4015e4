#include "cli/rate_line.h"

#include <fmt/format.h>

#include "cli/format.h"

namespace imgd::cli {

void RateLine::Show(uint64_t done, uint64_t total) {
  if (!line_.Due(done, total)) return;
  line_.Draw(
      RateText(verb_, unit_, done, total, std::chrono::duration<double>(Clock::now() - start_).count()));
}

std::string RateText(const std::string& verb, RateLine::Unit unit, uint64_t done, uint64_t total,
                     double seconds) {
  const bool bytes = unit == RateLine::Unit::kBytes;
  std::string text = bytes ? fmt::format("{} {} of {}", verb, HumanBytes(done), HumanBytes(total))
                           : fmt::format("{} {} of {} images", verb, done, total);
  if (seconds < kRateSettled || done == 0) return text;
  const double rate = static_cast<double>(done) / seconds;
  text += bytes ? fmt::format(", {}/s", HumanBytes(static_cast<uint64_t>(rate)))
                : fmt::format(", {} images/s", HumanRate(rate));
  if (done < total) text += fmt::format(", {} left", HumanDuration(static_cast<double>(total - done) / rate));
  return text;
}

}  // namespace imgd::cli
