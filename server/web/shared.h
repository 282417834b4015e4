#pragma once

#include <atomic>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/address.hpp>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <utility>
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

  /// What ends a connection, from any thread.
  struct Closer {
    std::function<void()> close;
    std::function<void()> give_way;  ///< only if it still waits for a request; else it lets another give way
  };
  /// Returns the number to forget it by.
  uint64_t Remember(Closer closer) {
    const std::lock_guard lock(mutex);
    closers.emplace(++last_number, std::move(closer));
    return last_number;
  }
  void Forget(uint64_t closer) {
    const std::lock_guard lock(mutex);
    closers.erase(closer);
    callers.erase(closer);
    places.erase(closer);
  }

  /// The connection waits for a request from now on; so does one whose first is not there yet.
  void NoteWaiting(uint64_t closer, const boost::asio::ip::address& address) {
    const std::lock_guard lock(mutex);
    places[closer] = {++last_number, address};
  }
  void NoteBusy(uint64_t closer) {
    const std::lock_guard lock(mutex);
    if (const auto place = places.find(closer); place != places.end()) place->second.since = 0;
  }
  /// A listener takes no place of others.
  void NoteListening(uint64_t closer) {
    const std::lock_guard lock(mutex);
    places.erase(closer);
  }
  /// Has a connection end that waits for a request: of the address that has most connections the one that
  /// has waited longest. False where none waits.
  bool MakeRoom() {
    std::function<void()> give_way;
    {
      const std::lock_guard lock(mutex);
      std::map<boost::asio::ip::address, int64_t> counts;
      for (const auto& [closer, place] : places) ++counts[place.address];
      auto first = places.end();
      for (auto place = places.begin(); place != places.end(); ++place) {
        if (place->second.since == 0) continue;
        const auto order = [&counts](const Place& one) { return std::pair(-counts[one.address], one.since); };
        if (first == places.end() || order(place->second) < order(first->second)) first = place;
      }
      if (first == places.end()) return false;
      give_way = closers.at(first->first).give_way;
      places.erase(first);
    }
    give_way();
    return true;
  }

  /// Who a connection that became a listener, or is sent a file, was let in as.
  struct LetIn {
    std::string token;
    std::string session;
  };
  void NoteCaller(uint64_t closer, LetIn caller) {
    const std::lock_guard lock(mutex);
    callers.emplace(closer, std::move(caller));
  }
  void ForgetCaller(uint64_t closer) {
    const std::lock_guard lock(mutex);
    callers.erase(closer);
  }
  /// Ends those of callers that `is_one` is true of.
  template <typename IsOne>
  void EndListenersOf(IsOne is_one) {
    std::vector<std::function<void()>> calls;
    {
      const std::lock_guard lock(mutex);
      for (const auto& [closer, caller] : callers) {
        if (is_one(caller)) calls.push_back(closers.at(closer).close);
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
      for (const auto& [number, closer] : closers) calls.push_back(closer.close);
    }
    for (const auto& close : calls) close();
  }

 private:
  std::mutex mutex;  // guards all below
  struct Place {
    uint64_t since = 0;  ///< when it began to wait, growing from one to the next; 0: it has a request
    boost::asio::ip::address address;
  };
  std::map<uint64_t, Closer> closers;
  std::map<uint64_t, LetIn> callers;  ///< by their closers, as all below
  std::map<uint64_t, Place> places;
  uint64_t last_number = 0;
  bool ended = false;
  std::condition_variable idle;
  size_t in_flight = 0;
};

}  // namespace imgd::web
