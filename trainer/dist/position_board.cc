#include "trainer/dist/position_board.h"

#include <fmt/format.h>

#include <chrono>
#include <utility>
#include <vector>

#include "trainer/dist/within.h"

namespace imgd::trainer {
namespace {

constexpr std::chrono::seconds kPublishInterval{2};
constexpr std::chrono::seconds kStoreTimeout{5};

std::string KeyOf(int rank) { return fmt::format("at/{}", rank); }

/// The collectives lead, padded, so that places can be compared as text: ranks begin them in the same order.
std::string PlaceOf(const PulseState& state) {
  return fmt::format("{:020} {} {}", state.collectives, state.step, state.what);
}

/// What a rank publishes: its place, and its host on a line of its own.
struct Published {
  std::string place;
  std::string host;
};

std::string ToText(const Published& published) {
  return fmt::format("{}\n{}", published.place, published.host);
}

Published ParsePublished(const std::string& text) {
  const size_t end = text.find('\n');
  return {text.substr(0, end), end == std::string::npos ? "an unknown host" : text.substr(end + 1)};
}

/// "step 12, forward pass".
std::string WordsOfPlace(const std::string& place) {
  const size_t step = place.find(' ') + 1;
  const size_t what = place.find(' ', step) + 1;
  return fmt::format("step {}, {}", place.substr(step, what - step - 1), place.substr(what));
}

}  // namespace

PositionBoard::PositionBoard(c10::intrusive_ptr<c10d::Store> store, int rank, int world_size,
                             std::string host, const Pulse& pulse)
    : shared_(std::make_shared<Shared>()), host_(std::move(host)), pulse_(pulse) {
  shared_->store = std::move(store);
  shared_->rank = rank;
  shared_->world_size = world_size;
  thread_ = std::thread([this] { Publish(); });
}

PositionBoard::~PositionBoard() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

std::string PositionBoard::Here() const { return WordsOfPlace(PlaceOf(pulse_.State())); }

void PositionBoard::Publish() {
  std::string published;
  std::unique_lock lock(mutex_);
  while (!stop_) {
    const std::string place = PlaceOf(pulse_.State());
    lock.unlock();
    if (place != published) {
      try {
        const std::lock_guard store_lock(shared_->mutex);
        const std::string text = ToText({place, host_});
        shared_->store->set(KeyOf(shared_->rank), std::vector<uint8_t>(text.begin(), text.end()));
        published = place;
      } catch (const std::exception&) {
        return;  // the store is gone, and with it those who would read
      }
    }
    lock.lock();
    changed_.wait_for(lock, kPublishInterval, [this] { return stop_; });
  }
}

std::string PositionBoard::Laggards() const {
  // A question to a store whose process is stopped has no end of its own.
  const auto answer =
      Within<std::string>(kStoreTimeout, [shared = shared_] { return shared->FindLaggards(); });
  if (answer) return *answer;
  return shared_->rank == 0 ? "the rendezvous store does not answer"
                            : "the rendezvous store, which rank 0 or its launcher keeps, does not answer";
}

std::string PositionBoard::Shared::FindLaggards() {
  std::string least;
  std::vector<std::string> ranks;
  try {
    const std::lock_guard lock(mutex);
    for (int other = 0; other < world_size; ++other) {
      if (other == rank || !store->check({KeyOf(other)})) continue;
      const auto bytes = store->get(KeyOf(other));
      const auto [place, host] = ParsePublished({bytes.begin(), bytes.end()});
      if (least.empty() || place < least) ranks.clear();
      if (ranks.empty()) least = place;
      if (place == least) ranks.push_back(fmt::format("rank {} on {}", other, host));
    }
  } catch (const std::exception&) {
    return "";
  }
  if (ranks.empty()) return "";
  return fmt::format("{} {} last seen at {}", fmt::join(ranks, ", "), ranks.size() == 1 ? "was" : "were",
                     WordsOfPlace(least));
}

}  // namespace imgd::trainer
