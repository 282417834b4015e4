#pragma once

#include <atomic>
#include <boost/asio/io_context.hpp>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "server/web/router.h"
#include "server/web/server.h"

namespace imgd::web {

/// What the connections of a server have in common; lives as long as the last of them.
struct Shared {
  Shared(WebSettings the_settings, Router the_router)
      : settings(std::move(the_settings)), router(std::move(the_router)) {}

  const WebSettings settings;
  const Router router;
  boost::asio::io_context context;
  std::atomic<size_t> connections = 0;  ///< that are no listeners
  std::atomic<size_t> listeners = 0;
  std::atomic<size_t> downloads = 0;
  std::atomic<bool> stopping = false;

  /// False when too many requests wait for their answer.
  bool BeginRequest() {
    const std::lock_guard lock(mutex);
    if (in_flight >= settings.most_in_flight) return false;
    ++in_flight;
    return true;
  }
  /// Its answer is written, or never will be.
  void EndRequest() {
    const std::lock_guard lock(mutex);
    if (--in_flight == 0) idle.notify_all();
  }
  void AwaitIdle(Duration patience) {
    std::unique_lock lock(mutex);
    idle.wait_for(lock, patience, [this] { return in_flight == 0; });
  }

  /// `close` ends a connection, from any thread; returns the number to forget it by.
  uint64_t Remember(std::function<void()> close) {
    const std::lock_guard lock(mutex);
    closers.emplace(++last_closer, std::move(close));
    return last_closer;
  }
  void Forget(uint64_t closer) {
    const std::lock_guard lock(mutex);
    closers.erase(closer);
    tokens.erase(closer);
  }
  /// The connection became a listener, or is sent a file, that was let in by this token.
  void NoteToken(uint64_t closer, const std::string& token) {
    const std::lock_guard lock(mutex);
    tokens.emplace(closer, token);
  }
  void ForgetToken(uint64_t closer) {
    const std::lock_guard lock(mutex);
    tokens.erase(closer);
  }
  void EndListenersOf(const std::string& token) {
    std::vector<std::function<void()>> calls;
    {
      const std::lock_guard lock(mutex);
      for (const auto& [closer, name] : tokens) {
        if (name == token) calls.push_back(closers.at(closer));
      }
    }
    for (const auto& close : calls) close();
  }

  /// Runs `post`, which hands an answer to its connection, unless nobody would take it up any more: what is
  /// left in the queue would keep its connection, and that this.
  template <typename Post>
  void UnlessEnded(Post post) {
    const std::lock_guard lock(mutex);
    if (!ended) post();
  }
  /// No answer is taken from now on; ends all connections.
  void EndAll() {
    std::vector<std::function<void()>> calls;
    {
      const std::lock_guard lock(mutex);
      ended = true;
      for (const auto& [number, close] : closers) calls.push_back(close);
    }
    for (const auto& close : calls) close();
  }

 private:
  std::mutex mutex;  // guards all below
  std::map<uint64_t, std::function<void()>> closers;
  std::map<uint64_t, std::string> tokens;  ///< of those, by their closers
  uint64_t last_closer = 0;
  bool ended = false;
  std::condition_variable idle;
  size_t in_flight = 0;
};

}  // namespace imgd::web
