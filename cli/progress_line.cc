#include "cli/progress_line.h"

#include <ostream>
#include <string_view>

#include "cli/format.h"

namespace imgd::cli {
namespace {

constexpr int kBarWidth = 10;
constexpr std::chrono::milliseconds kBetween{100};
constexpr std::chrono::milliseconds kBetweenLogged{10'000};

/// Started by imgd, as a conversion: what it says goes to the job's log.
bool IsJob(const Context& context) { return !context.env()("IMGD_JOB_ID").empty(); }

}  // namespace

std::string ProgressText(const char* verb, uint64_t done, uint64_t total, double images_per_second,
                         double bytes_per_second, bool utf8) {
  const double ratio = total == 0 ? 0 : static_cast<double>(done) / static_cast<double>(total);
  std::string text = fmt::format("{} {} {}/{} images", verb, Bar(ratio, kBarWidth, utf8), done, total);
  if (images_per_second > 0) text += fmt::format(", {} images/s", HumanRate(images_per_second));
  if (bytes_per_second > 0) text += fmt::format(", {} MB/s", HumanRate(bytes_per_second / 1e6));
  if (images_per_second > 0 && done < total) {
    text += fmt::format(", {} left", HumanDuration(static_cast<double>(total - done) / images_per_second));
  }
  return text;
}

void ProgressLine::Start(const char* verb) {
  if (std::string_view(verb) == verb_) return;
  verb_ = verb;
  start_ = Clock::now();
}

void ProgressLine::Show(uint64_t done, uint64_t total, uint64_t bytes, uint64_t skipped) {
  if (!line_.Due(done, total)) return;
  const double seconds = std::chrono::duration<double>(Clock::now() - start_).count();
  const bool known = seconds >= kRateSettled && done > skipped;
  const double rate = known ? static_cast<double>(done - skipped) / seconds : 0;
  const double byte_rate = known ? static_cast<double>(bytes) / seconds : 0;
  line_.Draw(ProgressText(verb_, done, total, rate, byte_rate, utf8_));
}

bool DrawnLine::Due(uint64_t done, uint64_t total) {
  const bool logged = !context_.terminal().err_is_terminal;
  if (logged && !IsJob(context_)) return false;
  const auto now = std::chrono::steady_clock::now();
  if (done < total && now - last_ < (logged ? kBetweenLogged : kBetween)) return false;
  last_ = now;
  return true;
}

void DrawnLine::Draw(const std::string& text) {
  const Terminal& terminal = context_.terminal();
  if (!terminal.err_is_terminal) {
    context_.err() << text << '\n' << std::flush;
    return;
  }
  // A line that wraps could not be drawn over.
  const int width = terminal.width ? terminal.width() : 0;
  context_.err() << "\r\033[K" << (width > 1 ? Truncate(text, width - 1, terminal.utf8) : text) << std::flush;
  drawn_ = true;
}

void DrawnLine::End() {
  if (drawn_) context_.err() << "\r\033[K" << std::flush;
  drawn_ = false;
}

}  // namespace imgd::cli
