#include "trainer/data/loader.h"

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <exception>
#include <mutex>
#include <set>
#include <thread>
#include <utility>

#include "trainer/data/order.h"
#include "trainer/data/sample.h"

namespace imgd::data {
namespace {

Status Check(const LoaderOptions& options) {
  const auto at_least = [](const char* name, int value, int least) -> Status {
    if (value >= least) return {};
    return Fail(ErrorCode::kInvalidArgument, "{} is {}, which must be at least {}", name, value, least);
  };
  IMGD_TRY(at_least("crop_size", options.crop_size, 1));
  IMGD_TRY(at_least("global_batch", options.global_batch, 1));
  IMGD_TRY(at_least("segments", options.segments, 1));
  IMGD_TRY(at_least("world_size", options.world_size, 1));
  IMGD_TRY(at_least("workers", options.workers, 1));
  IMGD_TRY(at_least("prefetch", options.prefetch, 1));
  if (!options.training) IMGD_TRY(at_least("resize", options.resize, options.crop_size));
  if (options.rank < 0 || options.rank >= options.world_size) {
    return Fail(ErrorCode::kInvalidArgument, "rank is {}, which must be from 0 to {}", options.rank,
                options.world_size - 1);
  }
  return {};
}

// Which samples this rank has in which batch.
struct Plan {
  uint64_t step = 0;
  uint32_t epoch = 0;
  int global_count = 0;
  std::vector<uint32_t> samples;
};

class Planner {
 public:
  Planner(const LoaderOptions& options, const Dataset& dataset)
      : options_(options), dataset_(dataset), samples_(static_cast<uint32_t>(dataset.size())) {}

  uint64_t first_step() const { return options_.training ? options_.start_step : 0; }
  uint64_t end_step() const { return options_.training ? options_.end_step : StepsPerEpoch(); }

  // By one thread at a time.
  Result<Plan> Make(uint64_t step) { return options_.training ? MakeTraining(step) : MakeValidation(step); }

 private:
  uint64_t StepsPerEpoch() const { return data::StepsPerEpoch(samples_, options_.global_batch); }

  Result<Plan> MakeTraining(uint64_t step) {
    Plan plan{.step = step, .epoch = static_cast<uint32_t>(step / StepsPerEpoch())};
    if (!order_ || order_epoch_ != plan.epoch) {
      IMGD_ASSIGN(order_, EpochOrder::Create({.seed = options_.seed,
                                              .epoch = plan.epoch,
                                              .samples = samples_,
                                              .global_batch = options_.global_batch,
                                              .segments = options_.segments,
                                              .shards = dataset_.shard_sizes()}));
      order_epoch_ = plan.epoch;
    }
    const uint64_t step_of_epoch = step % StepsPerEpoch();
    plan.global_count = static_cast<int>(order_->StepSize(step_of_epoch));
    plan.samples = order_->RankSamples(step_of_epoch, options_.rank, options_.world_size);
    return plan;
  }

  Result<Plan> MakeValidation(uint64_t step) const {
    const auto batch = static_cast<uint64_t>(options_.global_batch);
    const uint64_t start = step * batch;
    const auto count = static_cast<uint32_t>(std::min<uint64_t>(batch, samples_ - start));
    const Slice slice = RankSlice(count, options_.rank, options_.world_size);
    Plan plan{.step = step, .global_count = static_cast<int>(count)};
    for (uint32_t i = slice.first; i < slice.last; ++i) {
      plan.samples.push_back(static_cast<uint32_t>(start) + i);
    }
    return plan;
  }

  const LoaderOptions& options_;
  const Dataset& dataset_;
  uint32_t samples_;
  std::optional<EpochOrder> order_;
  uint32_t order_epoch_ = 0;
};

// A batch that is being decoded. Workers write to distinct images of it; what they wrote is handed over by
// the loader's mutex.
struct Slot {
  Plan plan;
  std::vector<uint8_t> pixels;
  std::vector<std::string> errors;  // [images]; empty for a good one
  size_t claimed = 0;               // guarded by the loader's mutex, like `open`
  size_t open = 0;                  // images not decoded yet
};

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
        image_bytes_(static_cast<size_t>(options_.crop_size) * static_cast<size_t>(options_.crop_size) * 3) {
    Status status = Check(options_);
    if (status && dataset.size() == 0)
      status = Fail(ErrorCode::kInvalidArgument, "the data set has no image");
    if (!status) {
      failure_ = status.error();
      return;
    }
    next_to_plan_ = planner_.first_step();
    next_to_deliver_ = next_to_plan_;
    for (int i = 0; i < options_.workers; ++i) workers_.emplace_back([this] { Work(); });
  }

  ~Impl() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    work_.notify_all();
    for (auto& worker : workers_) worker.join();
  }

  Result<std::optional<Batch>> Next() {
    std::unique_ptr<Slot> slot;
    {
      std::unique_lock lock(mutex_);
      if (!failure_ && next_to_deliver_ >= planner_.end_step()) return std::optional<Batch>();
      ready_.wait(lock, [this] { return failure_ || (!slots_.empty() && slots_.front()->open == 0); });
      if (failure_) return tl::unexpected<Error>(*failure_);
      slot = std::move(slots_.front());
      slots_.pop_front();
      ++next_to_deliver_;
    }
    work_.notify_all();
    return Deliver(*slot);
  }

  void Recycle(Batch batch) {
    const std::lock_guard lock(mutex_);
    if (spare_.size() < static_cast<size_t>(options_.prefetch)) spare_.push_back(std::move(batch.pixels));
  }

 private:
  // Work of a thread: either an image to decode, or a batch to lay out for all threads.
  struct Claim {
    Slot* slot = nullptr;
    size_t image = 0;
    std::optional<uint64_t> step_to_plan;
  };

  // A thread's memory, kept between images.
  struct Reader {
    FileBuffer file;
    SampleReader decode;
  };

  void Work() {
    Reader reader;
    for (;;) {
      const auto claim = NextClaim();
      if (!claim) return;
      if (claim->step_to_plan) {
        Open(*claim->step_to_plan);
        continue;
      }
      Slot& slot = *claim->slot;
      slot.errors[claim->image] = Read(reader, slot, claim->image);
      if (!slot.errors[claim->image].empty()) ReportBad(slot, claim->image);
      const std::lock_guard lock(mutex_);
      if (--slot.open == 0) ready_.notify_one();
    }
  }

  // Images in the order in which they will be wanted. The next batch is laid out, if there is room for it,
  // before the images run out, so that nobody waits for its memory to be cleared.
  std::optional<Claim> NextClaim() {
    std::unique_lock lock(mutex_);
    for (;;) {
      if (stopping_ || failure_) return std::nullopt;
      const bool more = next_to_plan_ < planner_.end_step();
      const bool room = next_to_plan_ - next_to_deliver_ < static_cast<uint64_t>(options_.prefetch);
      if (more && room && !planning_ && Unclaimed() < static_cast<size_t>(options_.workers) * 2) {
        planning_ = true;
        return Claim{nullptr, 0, next_to_plan_};
      }
      for (const auto& slot : slots_) {
        if (slot->claimed < slot->plan.samples.size())
          return Claim{slot.get(), slot->claimed++, std::nullopt};
      }
      if (!more && !planning_) return std::nullopt;
      work_.wait(lock);
    }
  }

  size_t Unclaimed() const {
    size_t n = 0;
    for (const auto& slot : slots_) n += slot->plan.samples.size() - slot->claimed;
    return n;
  }

  void Open(uint64_t step) {
    auto plan = planner_.Make(step);
    auto slot = std::make_unique<Slot>();
    if (plan) {
      dataset_.WillRead(plan->samples);
      slot->plan = std::move(*plan);
      slot->open = slot->plan.samples.size();
      slot->errors.resize(slot->open);
      slot->pixels = SpareMemory();
      slot->pixels.resize(slot->open * image_bytes_);
    }
    {
      const std::lock_guard lock(mutex_);
      planning_ = false;
      ++next_to_plan_;
      if (plan) {
        slots_.push_back(std::move(slot));
      } else {
        failure_ = plan.error();
      }
    }
    work_.notify_all();
    ready_.notify_one();  // the batch may be empty, or a failure
  }

  std::vector<uint8_t> SpareMemory() {
    const std::lock_guard lock(mutex_);
    if (spare_.empty()) return {};
    auto memory = std::move(spare_.back());
    spare_.pop_back();
    return memory;
  }

  // Empty, or why the image can't be used.
  std::string Read(Reader& reader, Slot& slot, size_t image) {
    const uint32_t sample = slot.plan.samples[image];
    uint8_t* out = slot.pixels.data() + image * image_bytes_;
    try {
      Status status = dataset_.Read(sample, reader.file);
      if (!status) return status.error().message;
      const auto file = reader.file.bytes();
      status =
          options_.training
              ? reader.decode.ReadForTraining(file,
                                              {options_.min_scale, options_.flip,
                                               Random(options_.seed, slot.plan.epoch, sample, Purpose::kCrop),
                                               DecodeMode::kFast, dataset_.restarts(sample)},
                                              options_.crop_size, out)
              : reader.decode.ReadForValidation(file, options_.resize, options_.crop_size, out,
                                                DecodeMode::kExact, dataset_.restarts(sample));
      return status ? std::string() : status.error().message;
    } catch (const std::exception& e) {  // out of memory, for one; nothing may leave a thread
      return e.what();
    }
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
    Batch batch{.step = slot.plan.step, .global_count = slot.plan.global_count};
    for (size_t i = 0; i < slot.plan.samples.size(); ++i) {
      const uint32_t sample = slot.plan.samples[i];
      if (!slot.errors[i].empty()) {
        bad_.insert(sample);
        if (bad_.size() > static_cast<size_t>(std::max(options_.max_bad_images, 0))) {
          return tl::unexpected<Error>(TooManyBad(sample, slot.errors[i]));
        }
        continue;
      }
      if (batch.samples.size() != i) {
        std::memcpy(slot.pixels.data() + batch.samples.size() * image_bytes_,
                    slot.pixels.data() + i * image_bytes_, image_bytes_);
      }
      batch.samples.push_back(sample);
      batch.labels.push_back(dataset_.label(sample));
    }
    batch.pixels = std::move(slot.pixels);
    batch.pixels.resize(batch.samples.size() * image_bytes_);
    return std::optional<Batch>(std::move(batch));
  }

  Error TooManyBad(uint32_t sample, const std::string& why) {
    Error error = {
        .code = ErrorCode::kDataLoss,
        .message = fmt::format("{} images could not be decoded, at most {} are allowed; the last is {}: {}",
                               bad_.size(), options_.max_bad_images, dataset_.place(sample), why)};
    const std::lock_guard lock(mutex_);
    failure_ = error;
    work_.notify_all();
    return error;
  }

  const Dataset& dataset_;
  const LoaderOptions options_;
  Planner planner_;
  const size_t image_bytes_;

  std::mutex mutex_;  // guards down to spare_
  std::condition_variable work_;
  std::condition_variable ready_;
  std::deque<std::unique_ptr<Slot>> slots_;  // of consecutive steps; the first is the next to deliver
  uint64_t next_to_plan_ = 0;
  uint64_t next_to_deliver_ = 0;
  bool planning_ = false;
  bool stopping_ = false;
  std::optional<Error> failure_;
  std::vector<std::vector<uint8_t>> spare_;

  std::mutex bad_mutex_;         // guards reported_ and serialises on_bad_image
  std::set<uint32_t> reported_;  // bad images that on_bad_image was told of
  std::set<uint32_t> bad_;       // bad images in batches delivered; of the thread that calls Next()

  std::vector<std::thread> workers_;  // last, so that all else is there when they start
};

Loader::Loader(const Dataset& dataset, LoaderOptions options)
    : impl_(std::make_unique<Impl>(dataset, std::move(options))) {}
Loader::~Loader() = default;

Result<std::optional<Batch>> Loader::Next() { return impl_->Next(); }

void Loader::Recycle(Batch batch) { impl_->Recycle(std::move(batch)); }

}  // namespace imgd::data
