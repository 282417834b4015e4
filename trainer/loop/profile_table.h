#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace imgd::trainer {

/// A stretch of time that a profiler saw: an operator on a thread, or a kernel on a GPU.
struct ProfiledEvent {
  std::string name;
  uint64_t thread = 0;
  int64_t start_ns = 0;
  int64_t end_ns = 0;
  bool on_gpu = false;
  bool is_scope = false;  ///< one of ours, that only says what the step is at
};

/// What one name cost.
struct ProfiledCost {
  std::string name;
  uint64_t calls = 0;
  double self_seconds = 0;   ///< without the operators that it called
  double total_seconds = 0;  ///< with them, once where it calls itself
};

/// Operators (`on_gpu` false) or kernels by name, those with the most time of their own first. Scopes are
/// left out, and take from nobody: an operator in one is nobody's.
std::vector<ProfiledCost> CostsOf(std::vector<ProfiledEvent> events, bool on_gpu);

/// Lines for people, at most `most` of the costs; shares are of `seconds`.
std::string CostTable(const std::vector<ProfiledCost>& costs, const char* title, double seconds, size_t most);

}  // namespace imgd::trainer
