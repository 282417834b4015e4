#include "trainer/data/read_ahead.h"

#include <algorithm>
#include <cstring>
#include <numeric>

namespace imgd::data {
namespace {

constexpr uint64_t kMostGap = 64 << 10;
constexpr uint64_t kMostBlock = 1 << 20;
constexpr uint64_t kMostWindow = 4 << 20;
constexpr uint64_t kNear = 1 << 20;

}  // namespace

std::vector<JoinedRange> Join(std::span<const ByteRange> ranges, uint64_t most_gap, uint64_t most_bytes) {
  std::vector<size_t> order(ranges.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::sort(order, {}, [&](size_t i) { return std::pair(ranges[i].offset, i); });
  std::vector<JoinedRange> joined;
  for (const size_t i : order) {
    const ByteRange& range = ranges[i];
    if (range.size == 0) continue;
    if (!joined.empty()) {
      JoinedRange& last = joined.back();
      const uint64_t end = std::max(range.end(), last.range.end());
      if (range.offset <= last.range.end() + most_gap && end - last.range.offset <= most_bytes) {
        last.range.size = end - last.range.offset;
        ++last.pieces;
        last.first = std::min(last.first, i);
        continue;
      }
    }
    joined.push_back({range, 1, i});
  }
  std::ranges::sort(joined, {}, &JoinedRange::first);
  return joined;
}

/// The block that holds the stretch.
ReadAhead::Blocks::iterator ReadAhead::Find(const RemoteFile& file, uint64_t offset, uint64_t size) {
  auto it = blocks_.upper_bound({&file, offset});
  if (it == blocks_.begin()) return blocks_.end();
  --it;
  const auto& [key, block] = *it;
  const bool holds = key.first == &file && block->range.end() >= offset + size;
  return holds ? it : blocks_.end();
}

ReadAhead::Blocks::iterator ReadAhead::Drop(Blocks::iterator block) {
  used_ -= block->second->range.size;
  return blocks_.erase(block);
}

void ReadAhead::DropStale() {
  for (auto it = blocks_.begin(); it != blocks_.end();) {
    Block& block = *it->second;
    const bool stale = block.state != State::kRunning && announced_ - block.mark > 2 * limit_;
    if (stale && block.state == State::kQueued) block.state = State::kFailed;  // not fetched any more
    it = stale ? Drop(it) : std::next(it);
  }
}

void ReadAhead::Announce(const RemoteFile& file, std::span<const ByteRange> ranges) {
  for (const auto& joined : Join(ranges, kMostGap, kMostBlock)) {
    const ByteRange range = joined.range;
    if (range.end() > file.size() || range.end() < range.offset) continue;
    std::shared_ptr<Block> block;
    {
      const std::lock_guard lock(mutex_);
      announced_ += range.size;
      if (used_ + range.size > limit_) DropStale();
      if (used_ + range.size > limit_ || blocks_.contains({&file, range.offset})) continue;
      block = std::make_shared<Block>(Block{range, joined.pieces, announced_});
      blocks_[{&file, range.offset}] = block;
      used_ += range.size;
    }
    const bool taken = pool_->Submit(&file, [this, &file, block] {
      {
        const std::lock_guard lock(mutex_);
        if (block->state != State::kQueued) return;  // a reader was faster
        block->state = State::kRunning;
      }
      Fetch(file, block, {});
    });
    if (taken) continue;
    const std::lock_guard lock(mutex_);
    if (const auto it = blocks_.find({&file, range.offset}); it != blocks_.end() && it->second == block)
      Drop(it);
  }
}

/// Of a block that is kRunning, by the thread that made it so.
void ReadAhead::Fetch(const RemoteFile& file, const std::shared_ptr<Block>& block,
                      const std::stop_token& stop) {
  // All of it is written to: zeros before that would cost as much again as a copy.
  auto bytes = std::make_unique_for_overwrite<uint8_t[]>(block->range.size);
  const Status status = file.ReadUntil(block->range.offset, {bytes.get(), block->range.size}, stop);
  {
    const std::lock_guard lock(mutex_);
    block->bytes = std::move(bytes);
    block->state = status ? State::kDone : State::kFailed;
  }
  changed_.notify_all();
}

bool ReadAhead::Take(const RemoteFile& file, uint64_t offset, std::span<uint8_t> out,
                     const std::stop_token& stop) {
  std::shared_ptr<Block> block;
  {
    std::unique_lock lock(mutex_);
    const auto it = Find(file, offset, out.size());
    if (it == blocks_.end()) return false;
    block = it->second;
    // The last one who wants something of it takes it along.
    if (--block->pieces_left == 0) Drop(it);
    if (block->state == State::kQueued) {
      block->state = State::kRunning;
      lock.unlock();
      Fetch(file, block, stop);
      lock.lock();
    }
    changed_.wait(lock, stop, [&] { return block->state != State::kRunning; });
    if (block->state != State::kDone) return false;
  }
  // Nobody writes to a block that is done.
  std::memcpy(out.data(), block->bytes.get() + (offset - block->range.offset), out.size());
  return true;
}

void ReadAhead::Forget(const RemoteFile& file) {
  pool_->Cancel(&file);
  const std::lock_guard lock(mutex_);
  auto it = blocks_.lower_bound({&file, 0});
  while (it != blocks_.end() && it->first.first == &file) it = Drop(it);
}

uint64_t ReadAhead::used_bytes() const {
  const std::lock_guard lock(mutex_);
  return used_;
}

Status WindowSource::ReadAt(uint64_t offset, std::span<uint8_t> out) const {
  if (out.size() > kMostWindow || offset > size() || out.size() > size() - offset)
    return source_.ReadAt(offset, out);
  if (offset < at_ || offset + out.size() > at_ + window_.size()) {
    // From header to header of small files all is read, in ever larger pieces: a request for each would take
    // longer.
    const bool on = offset >= at_ && offset <= at_ + window_.size() + kNear;
    next_size_ = on ? std::min(next_size_ * 2, kMostWindow) : std::max<uint64_t>(next_size_ / 2, 16 << 10);
    window_.resize(std::min(std::max<uint64_t>(out.size(), next_size_), size() - offset));
    at_ = offset;
    const Status status = source_.ReadAt(at_, window_);
    if (!status) {
      window_.clear();
      return status;
    }
  }
  std::memcpy(out.data(), window_.data() + (offset - at_), out.size());
  return {};
}

}  // namespace imgd::data
