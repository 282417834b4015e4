#include "server/store/log_search.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <optional>
#include <thread>

#include "server/store/log_files.h"

namespace imgd {
namespace {

constexpr uint64_t kSmallBlock = 256 << 10;
constexpr uint64_t kLargeBlock = 1 << 20;
constexpr unsigned kMostThreads = 8;

/// The lines that begin within [begin, end) of a file whose first `bytes` count.
struct Block {
  std::filesystem::path path;
  uint64_t begin = 0;
  uint64_t end = 0;
  uint64_t bytes = 0;
};

/// What was found in one.
struct BlockLines {
  std::vector<StoredLine> lines;
  size_t text_bytes = 0;
};

/// The newest first.
std::vector<Block> BlocksBefore(const std::filesystem::path& folder, const LogStream& stream,
                                const LogPosition& stored, LogPlace place, uint64_t size) {
  std::vector<Block> out;
  for (uint64_t segment = place.segment + 1; segment-- > OldestSegment(stored);) {
    const auto path = LogFile(folder, stream, segment);
    const uint64_t bytes = StoredBytes(path, stored, segment);
    uint64_t end = segment == place.segment ? std::min(place.offset, bytes) : bytes;
    while (end > 0) {
      const uint64_t begin = end > size ? end - size : 0;
      out.push_back({path, begin, end, bytes});
      end = begin;
    }
  }
  return out;
}

/// The whole lines that begin in the block; empty where its file is not there any more.
Result<std::string> TextOf(const Block& block) {
  const uint64_t begin = block.begin == 0 ? 0 : block.begin - 1;
  const uint64_t most = std::min(block.bytes, block.end + kLogChunk) - begin;
  IMGD_ASSIGN(auto text, ReadAt(block.path, begin, static_cast<size_t>(most)));
  if (!text) return std::string();
  // The newline that ends the block's last line is at end - 1 or after it.
  const size_t last = text->find('\n', static_cast<size_t>(block.end - 1 - begin));
  text->resize(last == std::string::npos ? 0 : last + 1);
  if (block.begin > 0) text->erase(0, text->find('\n') + 1);
  return std::move(*text);
}

Result<BlockLines> Look(const Block& block, const LineFilter& filter) {
  IMGD_ASSIGN(const auto text, TextOf(block));
  BlockLines out;
  filter.Choose(text, out.lines);
  for (const auto& line : out.lines) out.text_bytes += line.text.size();
  return out;
}

/// Looks through blocks in turn, some at once, until there is enough.
class Search {
 public:
  Search(const std::vector<Block>& blocks, const LineFilter& filter, const LogLimits& limits)
      : blocks_(blocks), filter_(filter), limits_(limits), found_(blocks.size()) {}

  void Run(unsigned threads) {
    std::vector<std::jthread> helpers;
    for (unsigned i = 1; i < threads; ++i) helpers.emplace_back([this] { Work(); });
    Work();
  }

  /// Those before it were looked through.
  size_t looked() const { return std::min(next_.load(), blocks_.size()); }
  std::vector<BlockLines>& found() { return found_; }
  const std::optional<Error>& error() const { return error_; }
  uint64_t read_bytes() const { return read_bytes_; }

 private:
  // A block that was taken is looked through, so that those before `next_` have no gap.
  void Work() {
    while (!enough_) {
      const size_t i = next_++;
      if (i >= blocks_.size()) return;
      auto lines = Look(blocks_[i], filter_);
      read_bytes_ += blocks_[i].end - blocks_[i].begin;
      if (!lines) {
        const std::lock_guard lock(mutex_);
        error_ = lines.error();
        enough_ = true;
        return;
      }
      lines_ += lines->lines.size();
      text_bytes_ += lines->text_bytes;
      found_[i] = std::move(*lines);
      if (lines_ >= limits_.lines || text_bytes_ >= limits_.text_bytes || read_bytes_ >= limits_.read_bytes)
        enough_ = true;
    }
  }

  const std::vector<Block>& blocks_;
  const LineFilter& filter_;
  const LogLimits& limits_;
  std::vector<BlockLines> found_;  ///< each by who took the block
  std::atomic<size_t> next_ = 0;
  std::atomic<uint64_t> lines_ = 0;
  std::atomic<size_t> text_bytes_ = 0;
  std::atomic<uint64_t> read_bytes_ = 0;
  std::atomic<bool> enough_ = false;
  std::mutex mutex_;
  std::optional<Error> error_;  ///< guarded by mutex_ until the threads have ended
};

/// The newest lines of what was found; true where some were left out. One is taken whatever its size, so that
/// who asks for those before it comes on.
bool TakeNewest(std::vector<BlockLines>& found, const LogLimits& limits, FoundLines& out) {
  size_t bytes = 0;
  for (auto& block : found) {  // the newest first
    for (auto line = block.lines.rbegin(); line != block.lines.rend(); ++line) {
      if (out.lines.size() >= limits.lines) return true;
      bytes += line->text.size();
      out.too_many_bytes = !out.lines.empty() && bytes > limits.text_bytes;
      if (out.too_many_bytes) return true;
      out.lines.push_back(std::move(*line));
    }
  }
  return false;
}

/// The number of the first line that begins in the block or after it in its file.
Result<uint64_t> FirstNumber(const Block& block) {
  IMGD_ASSIGN(const auto text, TextOf(block));
  const auto line = DecodeLine(std::string_view(text).substr(0, text.find('\n')));
  return line ? line->number : 0;
}

}  // namespace

Result<FoundLines> FindBackwards(const std::filesystem::path& folder, const LogStream& stream,
                                 const LogPosition& stored, uint64_t before, const LineFilter& filter,
                                 const LogLimits& limits) {
  LogPlace place{stored.segment, stored.segment_bytes};
  if (before <= stored.last_line) {
    IMGD_ASSIGN(place, FindLine(folder, stream, stored, before));
  }
  const bool all = filter.TakesAll();
  const auto blocks = BlocksBefore(folder, stream, stored, place, all ? kSmallBlock : kLargeBlock);
  Search search(blocks, filter, limits);
  const auto useful = static_cast<unsigned>(std::min<size_t>(blocks.size(), kMostThreads));
  search.Run(all ? 1 : std::min(useful, std::max(std::thread::hardware_concurrency(), 1u)));
  if (search.error()) return tl::unexpected(*search.error());
  FoundLines out{.read_bytes = search.read_bytes()};
  const bool left_out = TakeNewest(search.found(), limits, out);
  std::reverse(out.lines.begin(), out.lines.end());
  if (left_out) {
    out.previous = out.lines.front().number;
  } else if (search.looked() < blocks.size()) {
    IMGD_ASSIGN(out.previous, FirstNumber(blocks[search.looked() - 1]));
  } else if (all && !out.lines.empty() && out.lines.front().number > 1 && OldestSegment(stored) > 0) {
    const auto& first = out.lines.front();
    out.lines.insert(out.lines.begin(), RemovedLines(1, first.number - 1, first.time_us));
  }
  return out;
}

}  // namespace imgd
