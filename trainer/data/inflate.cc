#include "trainer/data/inflate.h"

#include <zlib.h>

#include <algorithm>
#include <array>
#include <mutex>
#include <vector>

namespace imgd::data {
namespace {

constexpr uint64_t kMostUnpacked = uint64_t{8} << 30;
/// More than 1032 bytes for one are not possible in this format.
constexpr uint64_t kMostRatio = 1040;
constexpr size_t kChunk = size_t{64} << 10;
constexpr int kGzip = 15 + 16;  ///< inflateInit2's window bits, with gzip's header
constexpr int kZlib = 15;

/// zlib's state, released with it.
class Stream {
 public:
  explicit Stream(int window_bits) : ok_(inflateInit2(&z_, window_bits) == Z_OK) {}
  ~Stream() {
    if (ok_) inflateEnd(&z_);
  }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  bool ok() const { return ok_; }
  z_stream& operator*() { return z_; }
  z_stream* operator->() { return &z_; }
  const char* message() const { return z_.msg != nullptr ? z_.msg : "it does not look like one"; }

 private:
  z_stream z_{};
  bool ok_;
};

class GzipSource final : public Source {
 public:
  GzipSource(std::shared_ptr<Source> packed, uint64_t most_bytes)
      : Source(packed->name(), most_bytes, packed->version()),
        packed_(std::move(packed)),
        stream_(kGzip),
        input_(kChunk) {}

  Status ReadAt(uint64_t offset, std::span<uint8_t> out) const override {
    const std::scoped_lock lock(mutex_);
    if (!stream_.ok()) return Fail(ErrorCode::kResourceExhausted, "no memory to unpack {}", name());
    if (offset < at_) Restart();
    std::array<uint8_t, 4096> passed_over;
    while (at_ < offset) {
      IMGD_TRY(Unpack(std::span(passed_over).first(std::min<uint64_t>(offset - at_, passed_over.size()))));
    }
    return Unpack(out);
  }

 private:
  void Restart() const {
    inflateReset(&*stream_);
    stream_->avail_in = 0;
    packed_at_ = at_ = 0;
    ended_ = false;
  }

  /// The next bytes of the content.
  Status Unpack(std::span<uint8_t> out) const {
    while (!out.empty()) {
      if (at_ == size())
        return Fail(ErrorCode::kDataLoss, "{} unpacks to more than {} bytes", name(), size());
      const auto want = static_cast<uInt>(std::min({uint64_t{out.size()}, size() - at_, uint64_t{1} << 30}));
      IMGD_TRY(TakeInput());
      if (ended_) {
        return Fail(ErrorCode::kDataLoss, "{} unpacks to {} bytes, which is too short", name(), at_);
      }
      stream_->next_out = out.data();
      stream_->avail_out = want;
      const int result = inflate(&*stream_, Z_NO_FLUSH);
      if (result != Z_OK && result != Z_STREAM_END && result != Z_BUF_ERROR) {
        return Fail(ErrorCode::kDataLoss, "{} is no good gzip file: {}", name(), stream_.message());
      }
      const size_t got = want - stream_->avail_out;
      at_ += got;
      out = out.subspan(got);
      if (result == Z_STREAM_END) IMGD_TRY(NextMember());
    }
    return {};
  }

  Status TakeInput() const {
    if (ended_ || stream_->avail_in > 0) return {};
    const uint64_t n = std::min<uint64_t>(packed_->size() - packed_at_, input_.size());
    if (n == 0) return Fail(ErrorCode::kDataLoss, "{} is cut short: its gzip data have no end", name());
    IMGD_TRY(packed_->ReadAt(packed_at_, std::span(input_).first(n)));
    packed_at_ += n;
    stream_->next_in = input_.data();
    stream_->avail_in = static_cast<uInt>(n);
    return {};
  }

  /// A gzip file may be several, one after the other; anything else behind it is padding.
  Status NextMember() const {
    if (stream_->avail_in == 0 && packed_at_ < packed_->size()) IMGD_TRY(TakeInput());
    ended_ = stream_->avail_in == 0 || *stream_->next_in != 0x1F;
    if (!ended_) inflateReset(&*stream_);
    return {};
  }

  std::shared_ptr<Source> packed_;
  mutable std::mutex mutex_;  // guards all below
  mutable Stream stream_;
  mutable std::vector<uint8_t> input_;
  mutable uint64_t packed_at_ = 0;
  mutable uint64_t at_ = 0;
  mutable bool ended_ = false;
};

}  // namespace

Result<std::shared_ptr<Source>> OpenUnpacked(const std::string& path) {
  IMGD_ASSIGN(auto file, OpenFileSource(path));
  std::array<uint8_t, 2> magic{};
  if (file->size() >= magic.size()) IMGD_TRY(file->ReadAt(0, magic));
  if (magic != std::array<uint8_t, 2>{0x1F, 0x8B}) return file;
  const uint64_t most = file->size() > kMostUnpacked / kMostRatio ? kMostUnpacked : file->size() * kMostRatio;
  return std::make_shared<GzipSource>(std::move(file), most);
}

Result<std::string> InflateZlib(std::span<const uint8_t> packed, size_t most_bytes) {
  Stream stream(kZlib);
  if (!stream.ok() || packed.size() > UINT32_MAX)
    return Fail(ErrorCode::kResourceExhausted, "no memory to unpack {} bytes", packed.size());
  stream->next_in = const_cast<uint8_t*>(packed.data());  // zlib does not write there
  stream->avail_in = static_cast<uInt>(packed.size());
  std::string out;
  for (;;) {
    const size_t before = out.size();
    if (before > most_bytes)
      return Fail(ErrorCode::kDataLoss, "it unpacks to more than {} bytes", most_bytes);
    out.resize(std::min(most_bytes + 1, before + kChunk));
    stream->next_out = reinterpret_cast<uint8_t*>(out.data()) + before;
    stream->avail_out = static_cast<uInt>(out.size() - before);
    const int result = inflate(&*stream, Z_NO_FLUSH);
    out.resize(out.size() - stream->avail_out);
    if (result == Z_STREAM_END) break;
    if (result == Z_OK && out.size() > before) continue;
    const char* why = result == Z_OK || result == Z_BUF_ERROR ? "it is cut short" : stream.message();
    return Fail(ErrorCode::kDataLoss, "no good zlib data: {}", why);
  }
  if (out.size() > most_bytes)
    return Fail(ErrorCode::kDataLoss, "it unpacks to more than {} bytes", most_bytes);
  return out;
}

}  // namespace imgd::data
