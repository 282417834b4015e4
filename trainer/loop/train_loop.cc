#include "trainer/loop/train_loop.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "trainer/dist/device.h"
#include "trainer/loop/saving.h"
#include "trainer/loop/validation.h"
#include "trainer/optim/autocast.h"

namespace imgd::trainer {
namespace {

using std::chrono::steady_clock;

/// Below this a fp16 run has found no scale that its gradients bear.
constexpr double kLeastLossScale = 1.0 / (1 << 14);

report::Started DescribeStart(const Session& session) {
  return {.world_size = session.env.world_size,
          .device = DescribeDevice(session.device),
          .start_step = session.state.step,
          .total_steps = session.total_steps,
          .steps_per_epoch = session.phases.At(session.state.step).steps_per_epoch,
          .train_images = session.train->size(),
          .val_images = session.val ? session.val->size() : 0,
          .resumed_from = session.resumed_from,
          .model = session.spec.model.name,
          .total_epochs = session.spec.train.epochs};
}

/// Batch norm can't gather statistics from one value for each channel, which is what one image makes in the
/// last layers when it is small.
bool TooFewForBatchNorm(const DeviceBatch& batch) {
  return batch.count == 0 || (batch.count == 1 && batch.images.size(2) <= 32);
}

}  // namespace

TrainLoop::TrainLoop(Session& session)
    : session_(session),
      first_step_(session.state.step),
      meter_(steady_clock::now()),
      sums_(at::zeros({3}, at::dtype(at::kDouble).device(session.device))) {}

Result<RunEnd> TrainLoop::Run() {
  session_.reporter.On(DescribeStart(session_));
  bool stopped = false;
  if (session_.state.step > 0 && ValidationDue() && session_.state.validation.step < session_.state.step) {
    saved_step_ = session_.state.step;  // the one that it goes on from
    IMGD_ASSIGN(stopped, ValidateAndObey());
  }
  if (!session_.env.trace_file.empty()) {
    IMGD_ASSIGN(auto trace, data::SampleTrace::Open(session_.env.trace_file));
    trace_.emplace(std::move(trace));
  }
  meter_ = Meter(steady_clock::now());
  while (!stopped && session_.state.step < session_.total_steps) {
    IMGD_ASSIGN(stopped, RunPhase(session_.phases.At(session_.state.step)));
  }
  if (!stopped) {
    session_.reporter.On(report::Finished{session_.state.step, session_.state.validation.top1,
                                          session_.state.validation.top5});
  }
  session_.gang->SetPosition(session_.state.step, "the end");
  session_.gang->FinalBarrier();
  return stopped ? RunEnd::kStopped : RunEnd::kFinished;
}

/// Trains to the end of the phase or of the run. Whether the run is to stop.
Result<bool> TrainLoop::RunPhase(const Phase& phase) {
  feed_.reset();
  feed_.emplace(session_.TrainSet(phase), session_.TrainOptions(phase), session_.device, session_.mix());
  reported_ = {};
  noted_ = {};
  bool stopped = false;
  while (!stopped && session_.state.step < std::min(phase.end_step, session_.total_steps)) {
    IMGD_ASSIGN(const Agreed agreed, Step(*feed_));
    IMGD_ASSIGN(stopped, AfterStep(agreed));
  }
  return stopped;
}

Result<TrainLoop::Agreed> TrainLoop::Step(Feed& feed) {
  Gang& gang = *session_.gang;
  const uint64_t step = session_.state.step;
  gang.SetPosition(step, "waiting for input");
  const auto asked_at = steady_clock::now();
  IMGD_ASSIGN(auto next, feed.Next());
  meter_.AddInputWait(steady_clock::now() - asked_at);
  if (!next) return Fail(ErrorCode::kInternal, "the loader ended before step {}", step);
  const DeviceBatch& batch = *next;

  gang.SetPosition(step, "forward pass");
  auto pending = StartAgreement(batch.count);
  session_.averager->BeforeForward();
  const at::Tensor loss_sum = ForwardLoss(batch);
  const Agreed agreed = FinishAgreement(std::move(pending));
  good_images_ += static_cast<uint64_t>(agreed.images);

  gang.SetPosition(step, "backward pass and gradient all-reduce");
  learning_rate_ = LearningRate(session_.schedule, step);
  Backward(loss_sum, agreed.images);
  meter_.AddStep(batch.count);
  ++session_.state.step;
  session_.state.epoch = session_.phases.Epochs(session_.state.step);
  IMGD_TRY(Trace(batch));
  return agreed;
}

Status TrainLoop::Trace(const DeviceBatch& batch) {
  if (!trace_) return {};
  return trace_->Write(batch.step, session_.env.rank, batch.samples);
}

/// Summed over the images; one that is mixed is as much of each class as there is of it.
at::Tensor TrainLoop::LossOf(const DeviceBatch& batch, const at::Tensor& logits) const {
  namespace F = torch::nn::functional;
  const auto loss_for = [&](const at::Tensor& labels) {
    const auto options = F::CrossEntropyFuncOptions().label_smoothing(session_.spec.schedule.label_smoothing);
    if (!batch.own_weights.defined()) {
      return F::cross_entropy(logits, labels, F::CrossEntropyFuncOptions(options).reduction(torch::kSum));
    }
    return F::cross_entropy(logits, labels, F::CrossEntropyFuncOptions(options).reduction(torch::kNone));
  };
  const auto loss = loss_for(batch.labels);
  if (!batch.own_weights.defined()) return loss;
  return (loss * batch.own_weights + loss_for(batch.partner_labels) * (1 - batch.own_weights)).sum();
}

/// A mixed image counts as right by the share of the class that was answered.
void TrainLoop::CountTop1(const DeviceBatch& batch, const at::Tensor& logits) {
  const auto answers = logits.argmax(1);
  const auto right = answers.eq(batch.labels);
  if (!batch.own_weights.defined()) {
    sums_[1] += right.sum();
    return;
  }
  sums_[1] += (right * batch.own_weights + answers.eq(batch.partner_labels) * (1 - batch.own_weights)).sum();
}

/// The sum of the losses of this rank's images. A rank without any passes one black image with weight 0
/// through, since its share in the gradient all-reduce is needed all the same; its batch-norm statistics stay
/// untouched.
at::Tensor TrainLoop::ForwardLoss(const DeviceBatch& batch) {
  Model& model = *session_.model;
  model.train();
  if (session_.spec.train.freeze_batch_norm || TooFewForBatchNorm(batch)) SetBatchNormTraining(model, false);
  const int64_t size = session_.phases.At(batch.step).image_size;
  const auto images = batch.count > 0
                          ? batch.images
                          : at::zeros({1, 3, size, size}, at::dtype(at::kFloat).device(session_.device))
                                .contiguous(at::MemoryFormat::ChannelsLast);
  at::Tensor logits;
  {
    const Autocast autocast(session_.device.type(), session_.compute_type);
    logits = model.forward(images);
  }
  logits = logits.to(at::kFloat);
  if (batch.count == 0) return (logits * 0).sum();
  const auto loss = LossOf(batch, logits);
  torch::NoGradGuard no_grad;
  sums_[0] += loss.detach();
  CountTop1(batch, logits);
  sums_[2] += batch.count;
  return loss;
}

void TrainLoop::Backward(const at::Tensor& loss_sum, int64_t all_images) {
  // The averager divides by the world size; together this is the mean over all images of the step.
  const double weight =
      static_cast<double>(session_.env.world_size) / static_cast<double>(std::max<int64_t>(all_images, 1));
  const auto loss = session_.loss_scale.Scale(loss_sum * weight);
  session_.sgd->ClearGradients();
  session_.averager->BeforeBackward(loss);
  session_.gang->Guard([&] { loss.backward(); });
  if (all_images == 0) return;  // nothing was learnt; decay and momentum alone are no step
  std::optional<at::Tensor> found_inf;
  if (session_.loss_scale.on()) found_inf = session_.loss_scale.Unscale(session_.sgd->Gradients());
  if (session_.spec.optimizer.clip_norm > 0)
    ClipNorm(session_.sgd->Gradients(), session_.spec.optimizer.clip_norm);
  session_.sgd->Step(learning_rate_, found_inf);
}

/// Rank 0 alone decides by the clock when to report, so that all do it after the same step.
Gang::PendingSum TrainLoop::StartAgreement(int64_t images) {
  const auto asked = session_.commands.Take();
  const uint64_t next = session_.state.step + 1;
  const bool report = next % static_cast<uint64_t>(session_.spec.train.log_every_steps) == 0 ||
                      next == session_.total_steps ||
                      meter_.SinceReport(steady_clock::now()) >= std::chrono::seconds(1);
  return session_.gang->StartSum(
      {images, asked.checkpoint, asked.stop, asked.stop_with_checkpoint, session_.is_rank0() && report});
}

TrainLoop::Agreed TrainLoop::FinishAgreement(Gang::PendingSum pending) const {
  const auto sums = pending.Wait();
  return {.images = sums[0],
          .asked = {.checkpoint = sums[1] > 0, .stop = sums[2] > 0, .stop_with_checkpoint = sums[3] > 0},
          .report = sums[4] > 0};
}

/// What the loader did since the last report.
report::LoaderFigures TrainLoop::LoaderFiguresSince(const Meter::Figures& speed) {
  const data::LoaderFigures now = feed_->figures();
  const data::LoaderFigures before = std::exchange(reported_, now);
  return {.interval_seconds = speed.seconds,
          .wait_seconds = speed.input_wait_seconds,
          .workers = session_.workers,
          .read_seconds = now.read_seconds - before.read_seconds,
          .decode_seconds = now.decode_seconds - before.decode_seconds,
          .augment_seconds = now.augment_seconds - before.augment_seconds,
          .idle_seconds = now.idle_seconds - before.idle_seconds,
          .images = now.images - before.images,
          .bytes = now.bytes - before.bytes,
          .images_left_to_cpu = now.images_left_to_cpu - before.images_left_to_cpu};
}

/// Once an epoch, of the images that were decoded meanwhile.
void TrainLoop::NoteImagesLeftToCpu() {
  if (!session_.nvjpeg) return;
  const data::LoaderFigures now = feed_->figures();
  const data::LoaderFigures before = std::exchange(noted_, now);
  const uint64_t left = now.images_left_to_cpu - before.images_left_to_cpu;
  if (left == 0) return;
  session_.reporter.Note(
      fmt::format("rank {}: nvJPEG left {} of {} images to the CPU, the first because of {}",
                  session_.env.rank, left, now.images - before.images, session_.nvjpeg->first_refusal()));
}

Status TrainLoop::Report() {
  session_.gang->SetPosition(session_.state.step, "sums for the report");
  // A copy, since a CPU tensor moved to the CPU would be the same one.
  auto sums = sums_.to(at::kCPU, at::kDouble, /*non_blocking=*/false, /*copy=*/true);
  sums_.zero_();
  session_.gang->AllReduceSum(sums);
  const auto* data = sums.const_data_ptr<double>();
  const Sums all{data[0], data[1], data[2]};
  const uint64_t step = session_.state.step;
  const auto speed = meter_.Report(steady_clock::now(), all.images, session_.total_steps - step);
  const double images = std::max(all.images, 1.0);
  session_.state.last_loss = all.loss / images;
  session_.reporter.On(report::StepFigures{.step = step,
                                           .total_steps = session_.total_steps,
                                           .epoch = session_.state.epoch,
                                           .loss = all.loss / images,
                                           .top1 = all.correct / images,
                                           .learning_rate = learning_rate_,
                                           .rank_images_per_second = speed.rank_images_per_second,
                                           .images_per_second = speed.images_per_second,
                                           .input_wait_ratio = speed.input_wait_ratio,
                                           .eta_seconds = speed.eta_seconds,
                                           .loader = LoaderFiguresSince(speed)});
  const bool fp16 = session_.loss_scale.on();
  if (fp16 ? session_.loss_scale.scale() < kLeastLossScale : !std::isfinite(all.loss)) {
    return Fail(ErrorCode::kInvalidArgument,
                "training diverged: the loss is {} at step {}; a lower optimizer.lr or a longer "
                "schedule.warmup_epochs may help",
                all.loss / images, step);
  }
  return {};
}

/// Whether the run is to stop.
Result<bool> TrainLoop::AfterStep(const Agreed& agreed) {
  IMGD_TRY(CheckThatSomethingWasSeen());
  if (agreed.report) IMGD_TRY(Report());
  const uint64_t step = session_.state.step;
  if (session_.phases.WholeEpochs(step) || step == session_.total_steps) NoteImagesLeftToCpu();
  const bool save = agreed.asked.checkpoint || agreed.asked.stop_with_checkpoint;
  const auto start = steady_clock::now();
  if (save || CheckpointDue()) IMGD_TRY(Save());
  if (agreed.asked.stop) return true;
  bool stop = false;
  if (ValidationDue()) {
    IMGD_ASSIGN(stop, ValidateAndObey());
  }
  meter_.AddPause(steady_clock::now() - start);
  return stop;
}

Result<bool> TrainLoop::ValidateAndObey() {
  if (saved_step_ != session_.state.step) ShareBuffers(session_);
  IMGD_ASSIGN(const ValidationEnd end, Validate(session_));
  if (!end.stopped && session_.is_rank0()) {
    if (auto written = SaveValidation(session_); !written) session_.reporter.Note(written.error().ToString());
  }
  const bool save = end.asked.checkpoint || end.asked.stop_with_checkpoint;
  if (save && saved_step_ != session_.state.step) IMGD_TRY(Save());
  return end.stopped;
}

bool TrainLoop::ValidationDue() const {
  const uint64_t step = session_.state.step;
  if (!session_.val) return false;
  if (step == session_.total_steps) return true;
  const auto epochs = session_.phases.WholeEpochs(step);
  return epochs && *epochs % static_cast<uint64_t>(session_.spec.train.eval_every_epochs) == 0;
}

bool TrainLoop::CheckpointDue() const {
  const uint64_t step = session_.state.step;
  if (step == session_.total_steps) return true;
  const auto every_steps = static_cast<uint64_t>(session_.spec.checkpoint.every_steps);
  if (every_steps > 0 && step % every_steps == 0) return true;
  const auto every_epochs = static_cast<uint64_t>(session_.spec.checkpoint.every_epochs);
  const auto epochs = session_.phases.WholeEpochs(step);
  return every_epochs > 0 && epochs && *epochs % every_epochs == 0;
}

/// Some damaged images are left out; a run of nothing else would end well and have learnt nothing.
Status TrainLoop::CheckThatSomethingWasSeen() const {
  const uint64_t steps = session_.state.step - first_step_;
  const bool whole_run = first_step_ == 0 && session_.state.step == session_.total_steps;
  if (good_images_ > 0 || (steps < session_.phases.At(first_step_).steps_per_epoch && !whole_run)) return {};
  return Fail(ErrorCode::kInvalidArgument,
              "none of the images of data.train ({}) could be decoded; the log names them with what is wrong",
              session_.spec.data.train);
}

Status TrainLoop::Save() {
  IMGD_TRY(SaveCheckpoint(session_));
  saved_step_ = session_.state.step;
  return {};
}

}  // namespace imgd::trainer
