#include "cli/testing/scripted_screen.h"

#include <gtest/gtest.h>

#include <csignal>

namespace imgd::cli {

/// Keeps what is there to read, without how it looks: "\x1b[1m" and the like.
bool ScriptedScreen::Write(const std::string& bytes) {
  for (size_t at = 0; at < bytes.size();) {
    const size_t end = bytes.compare(at, 2, "\x1b[") == 0 ? bytes.find_first_not_of("0123456789;", at + 2)
                                                          : std::string::npos;
    if (end != std::string::npos && bytes[end] == 'm') {
      at = end + 1;
    } else {
      written_ += bytes[at++];
    }
  }
  return true;
}

Screen::Input ScriptedScreen::Wait(Instant until) {
  if (next_ < steps_.size() && written_.find(steps_[next_].text) != std::string::npos)
    return Take(steps_[next_++]);
  if (std::chrono::steady_clock::now() - last_step_ > std::chrono::seconds(20)) {
    ADD_FAILURE() << (next_ < steps_.size() ? "waited for '" + steps_[next_].text + "' in:\n" + written_
                                            : "it does not end");
    return {.signal = SIGHUP};
  }
  std::unique_lock lock(mutex_);
  changed_.wait_until(lock, until, [this] { return woken_; });
  woken_ = false;
  return {};
}

Screen::Input ScriptedScreen::Take(const Step& step) {
  written_.clear();
  last_step_ = std::chrono::steady_clock::now();
  if (step.action) step.action();
  const bool resized = step.size != Size{} && step.size != size_;
  if (resized) size_ = step.size;
  Input input{.keys = keys_.Take(step.keys), .redraw = resized};
  for (auto& key : keys_.Settle()) input.keys.push_back(std::move(key));
  return input;
}

void ScriptedScreen::Wake() {
  const std::lock_guard lock(mutex_);
  woken_ = true;
  changed_.notify_all();
}

}  // namespace imgd::cli
