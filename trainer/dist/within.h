#pragma once

#include <chrono>
#include <exception>
#include <functional>
#include <future>
#include <optional>
#include <thread>
#include <utility>

namespace imgd::trainer {

/// What `work` returns, or throws; nothing where it takes longer than `limit`: for calls that have no limit
/// of their own. Then it is left running on its thread, so that it must own all that it uses.
template <typename T>
std::optional<T> Within(std::chrono::milliseconds limit, std::function<T()> work) {
  std::packaged_task<T()> task(std::move(work));
  auto answer = task.get_future();
  std::thread(std::move(task)).detach();
  if (answer.wait_for(limit) != std::future_status::ready) return std::nullopt;
  return answer.get();
}

}  // namespace imgd::trainer
