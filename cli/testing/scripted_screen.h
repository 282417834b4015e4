#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "cli/screen.h"

namespace imgd::cli {

/// A terminal whose user waits for a text to appear, does something, and waits for the next one. The test
/// fails where a text does not come within 20 s, and the terminal is gone then.
class ScriptedScreen final : public Screen {
 public:
  struct Step {
    std::string text;              ///< anywhere on the screen, written since the step before
    std::string keys;              ///< typed then
    std::function<void()> action;  ///< done before; may be empty
    Size size;                     ///< the terminal's from then on; {}: as it was
  };

  explicit ScriptedScreen(std::vector<Step> steps) : steps_(std::move(steps)) {}

  Size GetSize() override { return size_; }
  bool Write(const std::string& bytes) override;
  Input Wait(Instant until) override;
  void Wake() override;
  void GiveBack() override {}

 private:
  Input Take(const Step& step);

  std::vector<Step> steps_;
  size_t next_ = 0;
  Size size_{.columns = 100, .lines = 30};
  std::string written_;  ///< since the last step
  Instant last_step_ = std::chrono::steady_clock::now();
  KeyReader keys_;

  std::mutex mutex_;
  std::condition_variable changed_;
  bool woken_ = false;  ///< guarded by mutex_
};

}  // namespace imgd::cli
