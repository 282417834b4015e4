#include "trainer/data/loader.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <exception>
#include <mutex>
#include <set>
#include <stop_token>
#include <thread>
#include <utility>

#include "trainer/data/planner.h"
#include "trainer/data/sample.h"
#include "trainer/data/shapes.h"
#include "trainer/data/slots.h"

namespace imgd::data {
namespace {

using std::chrono::steady_clock;

uint64_t NanosSince(steady_clock::time_point start) {
  return static_cast<uint64_t>(std::chrono::nanoseconds(steady_clock::now() - start).count());
}

double Seconds(const std::atomic<uint64_t>& nanos) { return static_cast<double>(nanos.load()) * 1e-9; }

/// Sums over all workers, in nanoseconds; LoaderFigures has the meaning of each.
struct Counters {
  std::atomic<uint64_t> read = 0;
  std::atomic<uint64_t> decode = 0;
  std::atomic<uint64_t> augment = 0;
  std::atomic<uint64_t> wait = 0;
  std::atomic<uint64_t> images = 0;
  std::atomic<uint64_t> bytes = 0;
  std::atomic<uint64_t> left_to_cpu = 0;
};

size_t PrefetchOf(const LoaderOptions& options, const Planner& planner) {
  auto batches = static_cast<uint64_t>(std::max(options.prefetch, 1));
  if (options.max_memory_bytes > 0) {
    const uint64_t batch = std::max<uint64_t>(planner.MaxBatchBytes(), 1);
    batches = std::clamp<uint64_t>(options.max_memory_bytes / batch, 1, batches);
  }
  return batches;
}

}  // namespace

uint64_t StepsPerEpoch(uint64_t images, int global_batch) {
  const auto batch = static_cast<uint64_t>(std::max(global_batch, 1));
  return (images + batch - 1) / batch;
}

class Loader::Impl {
 public:
  Impl(const Dataset& dataset, LoaderOptions options)
      : dataset_(dataset),
        options_(std::move(options)),
        planner_(options_, dataset),
        queue_({planner_.first_step(), planner_.end_step(), PrefetchOf(options_, planner_),
                static_cast<size_t>(std::max(options_.workers, 1))}) {
    Status status = Check();
    if (!status) {
      queue_.Fail(status.error());
      return;
    }
    for (int i = 0; i < options_.workers; ++i) workers_.emplace_back([this] { Work(); });
  }

  ~Impl() {
    Stop();
    for (auto& worker : workers_) worker.join();
  }

  Result<std::optional<Batch>> Next() {
    const auto start = steady_clock::now();
    IMGD_ASSIGN(const auto slot, queue_.Take());
    counters_.wait += NanosSince(start);
    if (!slot) return std::optional<Batch>();
    return Deliver(*slot);
  }

  void Stop() {
    queue_.Fail({.code = ErrorCode::kCancelled, .message = "stopped"});
    stop_.request_stop();
  }

  void Recycle(Batch batch) { queue_.GiveBack(std::move(batch.pixels)); }

  LoaderFigures figures() const {
    return {.read_seconds = Seconds(counters_.read),
            .decode_seconds = Seconds(counters_.decode),
            .augment_seconds = Seconds(counters_.augment),
            .idle_seconds = queue_.IdleSeconds(),
            .wait_seconds = Seconds(counters_.wait),
            .images = counters_.images,
            .bytes = counters_.bytes,
            .images_left_to_cpu = counters_.left_to_cpu};
  }

 private:
  // A thread's memory, kept between images.
  struct Reader {
    explicit Reader(std::unique_ptr<ImageDecoder> decoder) : sample(std::move(decoder)) {}
    FileBuffer file;
    bool has_file = false;  // of the image in the making
    SampleReader sample;
    ImageOps ops;
    SampleReader::Times counted;  // of `sample`, that the counters have
    uint64_t counted_left_to_cpu = 0;
  };

  Status Check() const {
    IMGD_TRY(CheckOptions(options_));
    if (dataset_.size() == 0) return Fail(ErrorCode::kInvalidArgument, "the data set has no image");
    if (options_.shapes && (options_.shapes->order.size() != dataset_.size() ||
                            options_.shapes->batches.size() != planner_.end_step())) {
      return Fail(ErrorCode::kInvalidArgument, "shapes are of another data set or batch size");
    }
    return {};
  }

  void Work() {
    std::unique_ptr<ImageDecoder> decoder;
    if (options_.decoder) {
      auto made = options_.decoder();
      if (!made) return queue_.Fail(made.error());
      decoder = std::move(*made);
    }
    Reader reader(std::move(decoder));
    reader.file.stop = stop_.get_token();
    for (;;) {
      const auto claim = queue_.NextClaim();
      if (!claim) return;
      if (claim->step_to_plan) {
        Open(*claim->step_to_plan);
        continue;
      }
      Slot& slot = *claim->slot;
      const Status made = Make(reader, slot, claim->image);
      if (stop_.stop_requested()) return;
      if (!made && IsOutage(made.error())) {
        queue_.Fail(NoImage(reader.has_file ? "decode" : "read", slot, claim->image, made.error()));
      } else if (!made) {
        slot.errors[claim->image] = made.error().message;
        ReportBad(slot, claim->image);
      }
      queue_.Done(slot);
    }
  }

  void Open(uint64_t step) {
    auto plan = planner_.Make(step);
    if (!plan) return queue_.Fail(plan.error());
    dataset_.WillRead(plan->samples);
    auto slot = std::make_unique<Slot>();
    slot->plan = std::move(*plan);
    slot->open = slot->plan.samples.size();
    slot->errors.resize(slot->open);
    slot->erased.resize(slot->open);
    slot->pixels = queue_.SpareMemory();
    slot->pixels.resize(slot->open * slot->image_bytes());
    queue_.Opened(std::move(slot));
  }

  // Errors: why the image can't be used.
  Status Make(Reader& reader, Slot& slot, size_t image) {
    try {
      const auto start = steady_clock::now();
      const Status status = dataset_.Read(slot.plan.samples[image], reader.file);
      counters_.read += NanosSince(start);
      reader.has_file = status.has_value();
      IMGD_TRY(status);
      const Status made =
          options_.training ? MakeTraining(reader, slot, image) : MakeValidation(reader, slot, image);
      const auto& times = reader.sample.times();
      counters_.decode += times.decode - reader.counted.decode;
      counters_.augment += times.resize - reader.counted.resize;
      reader.counted = times;
      const uint64_t left = reader.sample.images_left_to_cpu();
      counters_.left_to_cpu += left - reader.counted_left_to_cpu;
      reader.counted_left_to_cpu = left;
      IMGD_TRY(made);
      ++counters_.images;
      counters_.bytes += reader.file.bytes().size();
      return {};
    } catch (const std::exception& e) {  // out of memory, for one; nothing may leave a thread
      return Fail(ErrorCode::kInternal, "{}", e.what());
    }
  }

  Status MakeTraining(Reader& reader, Slot& slot, size_t image) {
    uint8_t* out = slot.pixels.data() + image * slot.image_bytes();
    IMGD_TRY(reader.sample.ReadForTraining(reader.file.bytes(),
                                           {.min_scale = options_.min_scale,
                                            .flip = options_.flip,
                                            .random = RandomOf(slot.plan, image, Purpose::kCrop),
                                            .decode = options_.decode,
                                            .restarts = dataset_.restarts(slot.plan.samples[image])},
                                           options_.crop_size, out));
    const auto start = steady_clock::now();
    const AugmentOptions& augment = options_.augment;
    ApplyPolicy(reader.ops, augment.policy, RandomOf(slot.plan, image, Purpose::kAugment),
                {out, slot.plan.width, slot.plan.height});
    if (augment.erasing > 0) {
      Random random = RandomOf(slot.plan, image, Purpose::kErase);
      slot.erased[image] = ErasedBox(augment.erasing, slot.plan.width, slot.plan.height, random);
    }
    counters_.augment += NanosSince(start);
    return {};
  }

  Status MakeValidation(Reader& reader, Slot& slot, size_t image) {
    return reader.sample.ReadForValidation(reader.file.bytes(),
                                           {.resize = options_.resize,
                                            .width = slot.plan.width,
                                            .height = slot.plan.height,
                                            .decode = options_.decode,
                                            .restarts = dataset_.restarts(slot.plan.samples[image])},
                                           slot.pixels.data() + image * slot.image_bytes());
  }

  // In a resampled epoch an image may come more than once, each time augmented in another way.
  Random RandomOf(const Plan& plan, size_t image, Purpose purpose) const {
    if (options_.epoch_mode == EpochMode::kExact) {
      return {options_.seed, plan.epoch, plan.samples[image], purpose};
    }
    return {options_.seed, static_cast<uint32_t>(plan.step),
            plan.first_position + static_cast<uint32_t>(image), Resampled(purpose)};
  }

  void ReportBad(const Slot& slot, size_t image) {
    const uint32_t sample = slot.plan.samples[image];
    const std::lock_guard lock(bad_mutex_);
    if (!reported_.insert(sample).second || !options_.on_bad_image) return;
    options_.on_bad_image(dataset_.name(sample), slot.errors[image], reported_.size());
  }

  // Moves the good images together. What is bad is counted here too, in the order of delivery, so that the
  // run ends at the same batch however many threads there are.
  Result<std::optional<Batch>> Deliver(Slot& slot) {
    const Plan& plan = slot.plan;
    const size_t bytes = slot.image_bytes();
    Batch batch{
        .step = plan.step, .global_count = plan.global_count, .width = plan.width, .height = plan.height};
    for (size_t i = 0; i < plan.samples.size(); ++i) {
      const uint32_t sample = plan.samples[i];
      if (!slot.errors[i].empty()) {
        bad_.insert(sample);
        if (bad_.size() > static_cast<size_t>(std::max(options_.max_bad_images, 0))) {
          return tl::unexpected<Error>(TooManyBad(sample, slot.errors[i]));
        }
        continue;
      }
      const size_t to = batch.samples.size();
      if (to != i) std::memcpy(slot.pixels.data() + to * bytes, slot.pixels.data() + i * bytes, bytes);
      if (i < plan.own.first) ++batch.own.first;
      if (i < plan.own.last) ++batch.own.last;
      batch.samples.push_back(sample);
      batch.labels.push_back(dataset_.label(sample));
      batch.positions.push_back(plan.first_position + static_cast<uint32_t>(i));
      if (options_.training && options_.augment.erasing > 0) {
        batch.erased.push_back(slot.erased[i].value_or(Crop{}));
      }
    }
    batch.pixels = std::move(slot.pixels);
    batch.pixels.resize(batch.samples.size() * bytes);
    return std::optional<Batch>(std::move(batch));
  }

  // Where a server is away, or a decoder broken, nothing is known of the images: they are not bad, and none
  // is left out.
  static bool IsOutage(const Error& error) {
    return error.code == ErrorCode::kUnavailable || error.code == ErrorCode::kDeadlineExceeded;
  }

  // Of another code than a broken collective's, which the trainer knows by kUnavailable.
  Error NoImage(const char* verb, const Slot& slot, size_t image, Error error) const {
    error.code = ErrorCode::kInternal;
    error.message =
        fmt::format("cannot {} {}: {}", verb, dataset_.place(slot.plan.samples[image]), error.message);
    return error;
  }

  Error TooManyBad(uint32_t sample, const std::string& why) {
    Error error = {
        .code = ErrorCode::kDataLoss,
        .message = fmt::format("{} images could not be decoded, at most {} are allowed; the last is {}: {}",
                               bad_.size(), options_.max_bad_images, dataset_.place(sample), why)};
    queue_.Fail(error);
    return error;
  }

  const Dataset& dataset_;
  const LoaderOptions options_;
  Planner planner_;  // of the worker that lays out the next step
  SlotQueue queue_;
  Counters counters_;
  std::stop_source stop_;

  std::mutex bad_mutex_;         // guards reported_ and serialises on_bad_image
  std::set<uint32_t> reported_;  // bad images that on_bad_image was told of
  std::set<uint32_t> bad_;       // bad images in batches delivered; of the thread that calls Next()

  std::vector<std::thread> workers_;  // last, so that all else is there when they start
};

Loader::Loader(const Dataset& dataset, LoaderOptions options)
    : impl_(std::make_unique<Impl>(dataset, std::move(options))) {}
Loader::~Loader() = default;

Result<std::optional<Batch>> Loader::Next() { return impl_->Next(); }

void Loader::Stop() { impl_->Stop(); }

void Loader::Recycle(Batch batch) { impl_->Recycle(std::move(batch)); }

LoaderFigures Loader::figures() const { return impl_->figures(); }

}  // namespace imgd::data
