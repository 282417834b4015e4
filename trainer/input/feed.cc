#include "trainer/input/feed.h"

#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <condition_variable>
#include <cstring>
#include <deque>
#include <exception>
#include <mutex>
#include <thread>

#include "trainer/input/normalise.h"

namespace imgd::trainer {
namespace {

constexpr size_t kDepth = 2;

/// A batch, and on a GPU the event after which it is there.
struct Item {
  Result<std::optional<DeviceBatch>> batch;
  std::optional<c10::Event> ready;
};

at::Tensor LabelsOf(const data::Batch& batch, bool pinned) {
  auto labels = at::empty({batch.count()}, at::dtype(at::kLong).pinned_memory(pinned));
  std::copy(batch.labels.begin(), batch.labels.end(), labels.data_ptr<int64_t>());
  return labels;
}

DeviceBatch ToCpu(const data::Batch& batch, int64_t size) {
  auto images = at::empty({batch.count(), size, size, 3}, at::kFloat);
  Normalise(batch.pixels, {images.data_ptr<float>(), batch.pixels.size()});
  return {batch.step, batch.count(), images.permute({0, 3, 1, 2}), LabelsOf(batch, false)};
}

DeviceBatch ToGpu(const data::Batch& batch, int64_t size, at::Device device) {
  auto pixels = at::empty({batch.count(), size, size, 3}, at::dtype(at::kByte).pinned_memory(true));
  std::memcpy(pixels.data_ptr(), batch.pixels.data(), batch.pixels.size());
  return {batch.step, batch.count(), Normalise(pixels.to(device, /*non_blocking=*/true)),
          LabelsOf(batch, true).to(device, /*non_blocking=*/true)};
}

}  // namespace

class Feed::Impl {
 public:
  Impl(const data::Dataset& dataset, data::LoaderOptions options, at::Device device)
      : device_(device), size_(options.crop_size), loader_(dataset, std::move(options)) {
    thread_ = std::thread([this] { Fill(); });
  }

  ~Impl() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

  Result<std::optional<DeviceBatch>> Next() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return !items_.empty(); });
    Item& front = items_.front();
    // The end and an error stay, for whoever asks again.
    if (!front.batch || !*front.batch) return front.batch;
    Item item = std::move(front);
    items_.pop_front();
    lock.unlock();
    changed_.notify_all();
    if (item.ready) {
      const c10::impl::VirtualGuardImpl guard(device_.type());
      const c10::Stream stream = guard.getStream(device_);
      item.ready->block(stream);
      // The memory belongs to the feed's stream; this keeps it until the computing one is done with it.
      (*item.batch)->images.record_stream(stream);
      (*item.batch)->labels.record_stream(stream);
    }
    return std::move(item.batch);
  }

 private:
  void Fill() {
    torch::NoGradGuard no_grad;
    std::optional<c10::StreamGuard> stream;
    bool more = true;
    while (more) {
      Item item;
      try {
        if (device_.is_cuda() && !stream) {
          stream.emplace(c10::impl::VirtualGuardImpl(device_.type()).getStreamFromGlobalPool(device_));
        }
        item = Make();
      } catch (const std::exception& e) {
        item.batch = Fail(ErrorCode::kInternal, "cannot bring a batch to {}: {}", device_.str(), e.what());
      }
      more = item.batch && *item.batch;
      if (!Put(std::move(item))) return;
    }
  }

  Item Make() {
    auto loaded = loader_.Next();
    if (!loaded) {
      Error error = std::move(loaded).error();
      // Damaged images are the data set's fault: another start would find the same.
      if (error.code == ErrorCode::kDataLoss) error.code = ErrorCode::kInvalidArgument;
      return {tl::unexpected<Error>(std::move(error)), std::nullopt};
    }
    if (!*loaded) return {std::optional<DeviceBatch>(), std::nullopt};
    data::Batch& batch = **loaded;
    Item item{DeviceBatch{.step = batch.step}, std::nullopt};
    if (batch.count() > 0 && device_.is_cuda()) {
      item.batch = ToGpu(batch, size_, device_);
      item.ready.emplace(device_.type());
      item.ready->record(c10::impl::VirtualGuardImpl(device_.type()).getStream(device_));
    } else if (batch.count() > 0) {
      item.batch = ToCpu(batch, size_);
    }
    loader_.Recycle(std::move(batch));
    return item;
  }

  /// False when the feed is to end.
  bool Put(Item item) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return stopping_ || items_.size() < kDepth; });
    if (stopping_) return false;
    items_.push_back(std::move(item));
    changed_.notify_all();
    return true;
  }

  const at::Device device_;
  const int64_t size_;
  data::Loader loader_;  ///< the thread's
  std::mutex mutex_;     ///< guards the three below
  std::condition_variable changed_;
  std::deque<Item> items_;
  bool stopping_ = false;
  std::thread thread_;
};

Feed::Feed(const data::Dataset& dataset, data::LoaderOptions options, at::Device device)
    : impl_(std::make_unique<Impl>(dataset, std::move(options), device)) {}
Feed::~Feed() = default;

Result<std::optional<DeviceBatch>> Feed::Next() { return impl_->Next(); }

}  // namespace imgd::trainer
