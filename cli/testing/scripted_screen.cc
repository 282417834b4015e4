#include "cli/testing/scripted_screen.h"

#include <gtest/gtest.h>

#include <csignal>

namespace imgd::cli {

bool ScriptedScreen::Write(const std::string& bytes) {
  written_ += bytes;
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
