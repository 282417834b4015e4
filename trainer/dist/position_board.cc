#include "trainer/dist/position_board.h"

#include <fmt/format.h>

#include <algorithm>

namespace imgd::trainer {
namespace {

constexpr std::chrono::seconds kPublishInterval{2};

std::string KeyOf(int rank) { return fmt::format("at/{}", rank); }

}  // namespace

PositionBoard::PositionBoard(c10::intrusive_ptr<c10d::Store> store, int rank, int world_size)
    : store_(std::move(store)), rank_(rank), world_size_(world_size), thread_([this] { Publish(); }) {}

PositionBoard::~PositionBoard() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void PositionBoard::Set(uint64_t step, const char* what) {
  std::lock_guard lock(mutex_);
  step_ = step;
  what_ = what;
}

std::string PositionBoard::Here() const {
  std::lock_guard lock(mutex_);
  return fmt::format("step {}, {}", step_, what_);
}

void PositionBoard::Publish() {
  std::string published;
  std::unique_lock lock(mutex_);
  while (!stop_) {
    // The step leads, padded, so that places can be compared as text.
    const std::string place = fmt::format("{:020} {}", step_, what_);
    lock.unlock();
    if (place != published) {
      try {
        std::lock_guard store_lock(store_mutex_);
        store_->set(KeyOf(rank_), std::vector<uint8_t>(place.begin(), place.end()));
        published = place;
      } catch (const std::exception&) {
        return;  // the store is gone, and with it those who would read
      }
    }
    lock.lock();
    changed_.wait_for(lock, kPublishInterval, [this] { return stop_; });
  }
}

std::string PositionBoard::Laggards() {
  std::string least;
  std::vector<int> ranks;
  try {
    std::lock_guard lock(store_mutex_);
    for (int rank = 0; rank < world_size_; ++rank) {
      if (rank == rank_ || !store_->check({KeyOf(rank)})) continue;
      const auto bytes = store_->get(KeyOf(rank));
      const std::string place(bytes.begin(), bytes.end());
      if (least.empty() || place < least) ranks.clear();
      if (ranks.empty()) least = place;
      if (place == least) ranks.push_back(rank);
    }
  } catch (const std::exception&) {
    return "";
  }
  if (ranks.empty()) return "";
  const size_t digits = least.find_first_not_of('0');
  const size_t space = least.find(' ');
  const std::string step = digits < space ? least.substr(digits, space - digits) : "0";
  return fmt::format("rank {} was last seen at step {}, {}", fmt::join(ranks, ", "), step,
                     least.substr(space + 1));
}

}  // namespace imgd::trainer
