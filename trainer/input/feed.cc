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

#include "trainer/input/mix_batch.h"
#include "trainer/input/normalise.h"

namespace imgd::trainer {
namespace {

constexpr size_t kDepth = 2;

/// On a GPU: before and after its pixels and labels were copied there.
struct CopyTimes {
  c10::Event begin;
  c10::Event end;
};

/// A batch, and on a GPU the event after which it is there.
struct Item {
  Result<std::optional<DeviceBatch>> batch;
  std::optional<c10::Event> ready;
  std::optional<CopyTimes> copy = {};
};

at::Tensor LabelsOf(const data::Batch& batch, bool pinned) {
  auto labels = at::empty({batch.count()}, at::dtype(at::kLong).pinned_memory(pinned));
  std::copy(batch.labels.begin(), batch.labels.end(), labels.data_ptr<int64_t>());
  return labels;
}

/// All images of the batch, those of other ranks too.
void ToCpu(const data::Batch& batch, const Normaliser& normalise, DeviceBatch& out) {
  auto images = at::empty({batch.count(), batch.height, batch.width, 3}, at::kFloat);
  normalise(batch.pixels, {images.data_ptr<float>(), batch.pixels.size()});
  out.images = images.permute({0, 3, 1, 2});
  out.labels = LabelsOf(batch, false);
}

CopyTimes ToGpu(const data::Batch& batch, at::Device device, const Normaliser& normalise, DeviceBatch& out) {
  auto pixels =
      at::empty({batch.count(), batch.height, batch.width, 3}, at::dtype(at::kByte).pinned_memory(true));
  std::memcpy(pixels.data_ptr(), batch.pixels.data(), batch.pixels.size());
  const auto labels = LabelsOf(batch, true);
  const auto stream = c10::impl::VirtualGuardImpl(device.type()).getStream(device);
  CopyTimes times{c10::Event(device.type(), c10::EventFlag::BACKEND_DEFAULT),
                  c10::Event(device.type(), c10::EventFlag::BACKEND_DEFAULT)};
  times.begin.record(stream);
  const auto bytes = pixels.to(device, /*non_blocking=*/true);
  out.labels = labels.to(device, /*non_blocking=*/true);
  times.end.record(stream);
  out.images = normalise(bytes);
  return times;
}

}  // namespace

class Feed::Impl {
 public:
  Impl(const data::Dataset& dataset, data::LoaderOptions options, at::Device device,
       const JobSpec::Normalisation& normalisation, const data::MixOptions& mix)
      : device_(device),
        normalise_(normalisation),
        mix_(mix),
        seed_(options.seed),
        loader_(dataset, std::move(options)) {
    thread_ = std::thread([this] { Fill(); });
  }

  ~Impl() {
    loader_.Stop();  // the thread may wait for a batch
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
    if (item.copy) copies_.push_back(std::move(*item.copy));
    if (item.ready) {
      const c10::impl::VirtualGuardImpl guard(device_.type());
      const c10::Stream stream = guard.getStream(device_);
      item.ready->block(stream);
      // The memory belongs to the feed's stream; this keeps it until the computing one is done with it.
      for (const auto& tensor : {(*item.batch)->images, (*item.batch)->labels, (*item.batch)->partner_labels,
                                 (*item.batch)->own_weights}) {
        if (tensor.defined()) tensor.record_stream(stream);
      }
    }
    return std::move(item.batch);
  }

  data::LoaderFigures figures() const { return loader_.figures(); }

  double h2d_seconds() {
    while (!copies_.empty() && copies_.front().end.query()) {
      h2d_seconds_ += copies_.front().begin.elapsedTime(copies_.front().end) / 1000;
      copies_.pop_front();
    }
    return h2d_seconds_;
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
    DeviceBatch out{.step = batch.step, .count = batch.own_count()};
    out.samples.assign(batch.samples.begin() + batch.own.first, batch.samples.begin() + batch.own.last);
    std::optional<c10::Event> ready;
    std::optional<CopyTimes> copy;
    if (out.count > 0) {
      if (device_.is_cuda()) {
        copy = ToGpu(batch, device_, normalise_, out);
      } else {
        ToCpu(batch, normalise_, out);
      }
      EraseAndMix(batch, mix_, seed_, out);
    }
    if (out.count > 0 && device_.is_cuda()) {
      ready.emplace(device_.type());
      ready->record(c10::impl::VirtualGuardImpl(device_.type()).getStream(device_));
    }
    loader_.Recycle(std::move(batch));
    return {std::optional<DeviceBatch>(std::move(out)), std::move(ready), std::move(copy)};
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
  const Normaliser normalise_;
  const data::MixOptions mix_;
  const uint64_t seed_;
  data::Loader loader_;  ///< the thread's
  std::mutex mutex_;     ///< guards the three below
  std::condition_variable changed_;
  std::deque<Item> items_;
  bool stopping_ = false;
  std::thread thread_;
  // Of the thread of Next():
  std::deque<CopyTimes> copies_;  ///< not yet in the sum; as many as were given between two reports
  double h2d_seconds_ = 0;
};

Feed::Feed(const data::Dataset& dataset, data::LoaderOptions options, at::Device device,
           const JobSpec::Normalisation& normalisation, const data::MixOptions& mix)
    : impl_(std::make_unique<Impl>(dataset, std::move(options), device, normalisation, mix)) {}
Feed::~Feed() = default;

Result<std::optional<DeviceBatch>> Feed::Next() { return impl_->Next(); }

data::LoaderFigures Feed::figures() const { return impl_->figures(); }

double Feed::h2d_seconds() { return impl_->h2d_seconds(); }

}  // namespace imgd::trainer
