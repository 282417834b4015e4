#include "cli/rate_line.h"

#include <fmt/format.h>

#include <utility>

#include "cli/format.h"

namespace imgd::cli {
namespace {

constexpr auto kBetweenRates = std::chrono::milliseconds(100);
constexpr double kRateSettled = 0.5;  ///< seconds before a rate says something

}  // namespace

RateLine::RateLine(Context& context, std::string verb, Unit unit)
    : context_(context), verb_(std::move(verb)), unit_(unit) {}

RateLine::~RateLine() {
  if (drawn_) context_.err() << "\r\033[K" << std::flush;
}

void RateLine::Show(uint64_t done, uint64_t total) {
  const auto& terminal = context_.terminal();
  const auto now = Clock::now();
  if (!terminal.err_is_terminal || (done < total && now - last_ < kBetweenRates)) return;
  last_ = now;
  std::string text = RateText(verb_, unit_, done, total, std::chrono::duration<double>(now - start_).count());
  // A line that wraps could not be drawn over.
  const int width = terminal.width ? terminal.width() : 0;
  if (width > 1) text = Truncate(text, width - 1, terminal.utf8);
  context_.err() << "\r\033[K" << text << std::flush;
  drawn_ = true;
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
