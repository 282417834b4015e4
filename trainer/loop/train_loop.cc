#include "trainer/loop/train_loop.h"
//
#include <ATen/record_function.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "trainer/dist/device.h"
#include "trainer/loop/rank_spread.h"
#include "trainer/loop/saving.h"
#include "trainer/loop/validation.h"

namespace imgd::trainer {
namespace {

using std::chrono::duration_cast;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

/// Algorithms are chosen, and memory is got, in the first steps of a start or of an image size.
constexpr int kAutotuneSteps = 3;

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
          .total_epochs = session.spec.train.epochs,
          .trial = session.trial};
}

/// A rank's own times in its place among zeros, so that the sum over the ranks has those of all.
at::Tensor TimesAsSums(const report::TimeFigures& times, const Environment& env) {
  const double steps = std::max(times.steps, 1U);
  const double input = times.input_seconds / steps;
  const double busy = (times.forward_seconds + times.backward_seconds + times.optimizer_seconds) / steps;
  auto out = at::zeros({env.world_size, 3}, at::kDouble);
  out[env.rank] = at::tensor({input + busy, times.communication_seconds / steps, input}, at::kDouble);
  return out.flatten();
}

}  // namespace

TrainLoop::TrainLoop(Session& session)
    : session_(session),
      first_step_(session.state.step),
      meter_(steady_clock::now()),
      clock_(session.device),
      learner_(session, clock_),
      guard_(session, learner_),
      profiler_(session.device, session.env, FiguresFolder(session.spec, session.env), clock_,
                session.reporter) {}

Result<RunEnd> TrainLoop::Run() {
  session_.commands.Listen();
  session_.reporter.On(DescribeStart(session_));
  bool stopped = false;
  enough_ = EnoughIsEnough(session_.spec.early_stop, session_.state);
  if (session_.state.step > 0 && ValidationDue() && session_.state.validation.step < session_.state.step) {
    saved_step_ = session_.state.step;  // the one that it goes on from
    IMGD_ASSIGN(stopped, ValidateAndObey());
  }
  if (!session_.env.trace_file.empty()) {
    IMGD_ASSIGN(auto trace, data::SampleTrace::Open(session_.env.trace_file));
    trace_.emplace(std::move(trace));
  }
  meter_.GoOn(steady_clock::now());
  while (!stopped && !enough_ && session_.state.step < session_.total_steps) {
    IMGD_ASSIGN(stopped, RunPhase(session_.phases.At(session_.state.step)));
  }
  if (enough_ && !stopped) IMGD_TRY(EndEarly());
  IMGD_TRY(FinishSaving());
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
  feed_.emplace(session_.TrainSet(phase), session_.TrainOptions(phase), session_.device,
                session_.spec.data.normalisation, session_.mix());
  reported_ = {};
  reported_h2d_ = 0;
  noted_ = {};
  warm_steps_ = 0;
  bool stopped = false;
  while (!stopped && !enough_ && session_.state.step < std::min(phase.end_step, session_.total_steps)) {
    IMGD_ASSIGN(const Agreed agreed, Step(*feed_));
    IMGD_ASSIGN(stopped, AfterStep(agreed));
  }
  return stopped;
}

Result<TrainLoop::Agreed> TrainLoop::Step(Feed& feed) {
  Gang& gang = *session_.gang;
  const uint64_t step = session_.state.step;
  session_.pulse->SetActivity(warm_steps_ < kAutotuneSteps ? Activity::kAutotune : Activity::kStep);
  gang.SetPosition(step, "waiting for input");
  profiler_.BeforeStep(step, session_.commands);
  clock_.Start();
  const auto asked_at = steady_clock::now();
  IMGD_ASSIGN(auto next, NextBatch(feed));
  meter_.AddInputWait(steady_clock::now() - asked_at);
  clock_.Mark(Part::kInput);
  if (!next) return Fail(ErrorCode::kInternal, "the loader ended before step {}", step);
  const DeviceBatch& batch = *next;

  gang.SetPosition(step, "forward pass");
  auto pending = StartAgreement(batch.count);
  Agreed agreed;
  learning_rate_ = session_.LearningRate(step);
  // Of the first step of each epoch.
  if (session_.is_rank0() && session_.spec.report.tensorboard && session_.phases.WholeEpochs(step)) {
    learner_.KeepSamples();
  }
  learner_.Step(batch, learning_rate_, [&] {
    agreed = FinishAgreement(std::move(pending));
    return Learner::Agreement{.images = agreed.images, .norm = agreed.report};
  });
  good_images_ += static_cast<uint64_t>(agreed.images);
  meter_.AddStep(batch.count);
  ++session_.state.step;
  session_.state.epoch = session_.phases.Epochs(session_.state.step);
  session_.pulse->AddStep(duration_cast<milliseconds>(steady_clock::now() - asked_at));
  warm_steps_ = std::min(warm_steps_ + 1, kAutotuneSteps);
  {
    const Pulse::During writing(*session_.pulse, Activity::kCheckpoint);
    profiler_.AfterStep(session_.state.step == session_.total_steps);
  }
  IMGD_TRY(Trace(batch));
  return agreed;
}

Result<std::optional<DeviceBatch>> TrainLoop::NextBatch(Feed& feed) {
  const Pulse::During input(*session_.pulse, Activity::kInput);
  RECORD_USER_SCOPE("imgtrain: input");
  return feed.Next();
}

Status TrainLoop::Trace(const DeviceBatch& batch) {
  if (!trace_) return {};
  return trace_->Write(batch.step, session_.env.rank, batch.samples);
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
  session_.gang->SetPosition(session_.state.step, "all-reduce of what the ranks agree on");
  const auto sums = pending.Wait();
  return {.images = sums[0],
          .asked = {.checkpoint = sums[1] > 0, .stop = sums[2] > 0, .stop_with_checkpoint = sums[3] > 0},
          .report = sums[4] > 0};
}

report::TimeFigures TrainLoop::TakeTimes() {
  const StepClock::Times times = clock_.Take();
  const auto all_reduce = session_.averager->LastAllReduce();
  const double h2d = feed_->h2d_seconds();
  const double h2d_before = std::exchange(reported_h2d_, h2d);
  return {
      .steps = times.steps,
      .input_seconds = times.seconds(Part::kInput),
      .forward_seconds = times.seconds(Part::kForward),
      .backward_seconds = times.seconds(Part::kBackward),
      .communication_seconds = times.seconds(Part::kCommunication),
      .optimizer_seconds = times.seconds(Part::kOptimizer),
      .all_reduce_seconds = all_reduce.seconds,
      .all_reduce_hidden_ratio = all_reduce.seconds > 0 ? all_reduce.hidden_seconds / all_reduce.seconds : 0,
      .h2d_seconds = h2d - h2d_before};
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
  session_.gang->SetPosition(session_.state.step, "all-reduce of the sums for the report");
  const auto images = at::full({1}, static_cast<double>(meter_.images()), at::kDouble);
  const auto own = at::cat({images, learner_.TakeSums()});
  const report::TimeFigures times = TakeTimes();
  auto sums = at::cat({own, TimesAsSums(times, session_.env)});
  session_.gang->AllReduceSum(sums);
  const auto* data = sums.const_data_ptr<double>();
  const Sums all{data[1], data[2], data[3]};
  std::vector<RankTimes> of_ranks;
  for (const double* row = data + own.numel(); row < data + sums.numel(); row += 3) {
    of_ranks.push_back({row[0], row[1], row[2]});
  }
  const uint64_t step = session_.state.step;
  const uint64_t validations = session_.val ? ValidationsLeft(session_.phases, step, session_.total_steps,
                                                              session_.spec.train.eval_every_epochs)
                                            : 0;
  const auto speed = meter_.Report(steady_clock::now(), data[0], session_.total_steps - step, validations);
  // Neither is a number where each of the steps was left out.
  const double loss = all.loss / all.images;
  const double top1 = all.correct / all.images;
  const double penalty = session_.is_rank0() ? session_.optimizer->Penalty().item<double>() : 0;
  session_.state.last_loss = loss;
  session_.reporter.On(report::StepFigures{.step = step,
                                           .total_steps = session_.total_steps,
                                           .epoch = session_.state.epoch,
                                           .loss = loss,
                                           .penalty = penalty,
                                           .top1 = top1,
                                           .learning_rate = learning_rate_,
                                           .gradient_norm = learner_.gradient_norm(),
                                           .rank_images_per_second = speed.rank_images_per_second,
                                           .images_per_second = speed.images_per_second,
                                           .input_wait_ratio = speed.input_wait_ratio,
                                           .eta_seconds = speed.eta_seconds,
                                           .loader = LoaderFiguresSince(speed),
                                           .times = times,
                                           .ranks = SpreadOf(of_ranks)});
  if (const auto samples = learner_.TakeSamples()) session_.reporter.On(*samples);
  if (session_.spec.guard.action != "stop") return {};
  const bool fp16 = session_.loss_scale.on();
  if (fp16 ? session_.loss_scale.lost() : !std::isfinite(all.loss)) {
    return Fail(ErrorCode::kInvalidArgument,
                "training diverged: the loss is {} at step {}; a lower optimizer.lr or a longer "
                "schedule.warmup_epochs may help",
                loss, step);
  }
  return {};
}

/// Whether the run is to stop.
Result<bool> TrainLoop::AfterStep(const Agreed& agreed) {
  IMGD_TRY(CheckThatSomethingWasSeen());
  if (agreed.report) IMGD_TRY(Report());
  const uint64_t step = session_.state.step;
  if (session_.phases.WholeEpochs(step) || step == session_.total_steps) NoteImagesLeftToCpu();
  const bool save =
      agreed.asked.checkpoint || agreed.asked.stop_with_checkpoint || CheckpointDue(session_, step);
  const auto start = steady_clock::now();
  if (session_.saver) {
    // It may have old checkpoints to remove.
    const Pulse::During saving(*session_.pulse, Activity::kCheckpoint);
    IMGD_TRY(session_.saver->Poll());
  }
  if (guard_.Due()) IMGD_TRY(guard_.Look());
  if (save) IMGD_TRY(Save());
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
  const auto start = steady_clock::now();
  IMGD_ASSIGN(const ValidationEnd end, Validate(session_));
  meter_.NoteValidation(steady_clock::now() - start);
  IMGD_TRY(FinishSaving());
  if (!end.stopped) KeepValidation();
  if (!end.stopped) enough_ = EnoughIsEnough(session_.spec.early_stop, session_.state);
  const bool save = end.asked.checkpoint || end.asked.stop_with_checkpoint;
  if (save && saved_step_ != session_.state.step) {
    IMGD_TRY(Save());
    IMGD_TRY(FinishSaving());
    if (!end.stopped) KeepValidation();
  }
  return end.stopped;
}

/// Beside the checkpoint of the same step, if there is one.
void TrainLoop::KeepValidation() {
  if (!session_.is_rank0()) return;
  const Pulse::During saving(*session_.pulse, Activity::kCheckpoint);
  if (auto written = SaveValidation(session_); !written) session_.reporter.Note(written.error().ToString());
}

/// The run ends as one that is finished, with a checkpoint of its last step.
Status TrainLoop::EndEarly() {
  if (session_.is_rank0()) {
    session_.reporter.Note(fmt::format("early_stop: {}; the run ends after step {} of {}",
                                       WhyEnough(session_.spec.early_stop, session_.state.best),
                                       session_.state.step, session_.total_steps));
  }
  if (session_.state.step == first_step_ || saved_step_ == session_.state.step) return {};
  IMGD_TRY(Save());
  IMGD_TRY(FinishSaving());
  KeepValidation();
  return {};
}

bool TrainLoop::ValidationDue() const {
  const uint64_t step = session_.state.step;
  if (!session_.val) return false;
  if (step == session_.total_steps) return true;
  const auto epochs = session_.phases.WholeEpochs(step);
  return epochs && *epochs % static_cast<uint64_t>(session_.spec.train.eval_every_epochs) == 0;
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

/// What is said of a run after this has its checkpoint on disk.
Status TrainLoop::FinishSaving() {
  if (!session_.saver) return {};
  const Pulse::During saving(*session_.pulse, Activity::kCheckpoint);
  session_.gang->SetPosition(session_.state.step, "writing a checkpoint");
  return session_.saver->Finish();
}

Status TrainLoop::Save() {
  const Pulse::During saving(*session_.pulse, Activity::kCheckpoint);
  guard_.Keep();
  ShareBuffers(session_);
  if (!WeightsAreFinite(session_)) {
    const std::string wrong =
        fmt::format("there are weights that are no finite numbers after step {}", session_.state.step);
    if (session_.spec.guard.action != "rollback") {
      return Fail(ErrorCode::kInvalidArgument,
                  "training diverged: {}; a lower optimizer.lr or a longer schedule.warmup_epochs may help",
                  wrong);
    }
    IMGD_TRY(guard_.GoBack(wrong));
  }
  IMGD_TRY(SaveCheckpoint(session_));
  saved_step_ = session_.state.step;
  return {};
}

}  // namespace imgd::trainer
