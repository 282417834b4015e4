#include "trainer/report/trial.h"

#include <fmt/core.h>

namespace imgd::report {

double Trial::BytesPerSecond() const {
  if (seconds <= 0 || ranks < 2) return 0;
  return 2.0 * (ranks - 1) / ranks * static_cast<double>(bytes) / seconds;
}

std::string Trial::ToString() const {
  return fmt::format(
      "all-reduce of {} MiB {}: {:.2f} GB/s", bytes >> 20,
      nodes > 1 ? fmt::format("across {} nodes", nodes) : fmt::format("between {} ranks", ranks),
      BytesPerSecond() / 1e9);
}

}  // namespace imgd::report
