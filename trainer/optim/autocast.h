#pragma once

#include "trainer/torch.h"
//
#include <ATen/autocast_mode.h>

namespace imgd::trainer {

/// While it lives, operations on `device` run in `type` where LibTorch's autocast lists say so; for float
/// nothing changes. One at a time in a thread.
class Autocast {
 public:
  Autocast(at::DeviceType device, at::ScalarType type) : device_(device), active_(type != at::kFloat) {
    if (!active_) return;
    at::autocast::set_autocast_enabled(device_, true);
    at::autocast::set_autocast_dtype(device_, type);
    at::autocast::increment_nesting();
  }
  ~Autocast() {
    if (!active_) return;
    // Weights that were cast are kept until now, so that each is cast once in a pass.
    if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
    at::autocast::set_autocast_enabled(device_, false);
  }
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;

 private:
  at::DeviceType device_;
  bool active_;
};

}  // namespace imgd::trainer
