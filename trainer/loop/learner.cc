#include "trainer/loop/learner.h"
//
#include <ATen/record_function.h>

#include <algorithm>
#include <utility>

#include "trainer/data/random.h"
#include "trainer/optim/autocast.h"

namespace imgd::trainer {
namespace {

/// Images of at most so many pixels a side are one value for each channel in the last layers.
constexpr int64_t kSmallImage = 32;

/// Batch norm can't gather statistics from one value for each channel.
bool TooFewForBatchNorm(const DeviceBatch& batch) {
  return batch.count == 0 || (batch.count == 1 && batch.images.size(2) <= kSmallImage);
}

/// The batch in `parts` parts. Where the ranks' numbers of parts may differ, in fewer, so that each has an
/// image, or two small ones.
std::vector<DeviceBatch> Parts(const DeviceBatch& batch, int parts, bool may_differ) {
  const bool small = batch.count > 0 && batch.images.size(2) <= kSmallImage;
  const int64_t most = may_differ ? std::max<int64_t>(small ? batch.count / 2 : batch.count, 1) : parts;
  const int64_t count = std::min<int64_t>(most, parts);
  if (count == 1) return {batch};
  std::vector<DeviceBatch> out;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t begin = batch.count * i / count;
    const int64_t length = batch.count * (i + 1) / count - begin;
    const auto cut = [&](const at::Tensor& whole) {
      return whole.defined() ? whole.narrow(0, begin, length) : whole;
    };
    out.push_back({.step = batch.step,
                   .count = length,
                   .images = cut(batch.images),
                   .labels = cut(batch.labels),
                   .partner_labels = cut(batch.partner_labels),
                   .own_weights = cut(batch.own_weights)});
  }
  return out;
}

/// What the model draws in a step depends on the seed, the step and the rank only, so that a run that was
/// resumed draws the same.
void SeedStep(const Session& session, uint64_t step) {
  data::Random random(session.spec.seed, static_cast<uint32_t>(step), static_cast<uint32_t>(session.env.rank),
                      data::Purpose::kDropPath);
  torch::manual_seed(uint64_t{random.Next32()} << 32 | random.Next32());
}

}  // namespace

Learner::Learner(Session& session, StepClock& clock)
    : session_(session),
      clock_(clock),
      sums_(at::zeros({4}, at::dtype(at::kDouble).device(session.device))),
      guard_sums_(at::zeros_like(sums_)),
      skip_(session.spec.guard.action == "skip") {
  if (session.spec.train.cuda_graph) BeginGraph();
  if (!skip_) return;
  for (const auto& [name, buffer] : Buffers(*session.model)) buffers_.push_back(buffer);
}

/// Says of which steps there is no recording, and why.
void Learner::BeginGraph() {
  bool any = false;
  std::string said;
  for (const Phase& phase : session_.phases.all()) {
    const std::string why = WhyNotRecorded(session_.spec, phase, session_.device, session_.env.world_size);
    any = any || why.empty();
    if (why.empty() || why == said || !session_.is_rank0()) continue;
    said = why;
    session_.reporter.Note(
        fmt::format("train.cuda_graph: from step {} on, steps are computed without a recording: {}",
                    phase.first_step, why));
  }
  if (!any) return;
  std::vector<at::Tensor> parameters;
  for (const auto& [name, parameter] : Parameters(*session_.model)) parameters.push_back(parameter);
  graph_.emplace(
      std::move(parameters), [] { return LoadedCudaParts().MakeGraph(); }, session_.reporter);
}

void Learner::Step(const DeviceBatch& batch, double learning_rate, const std::function<Agreement()>& agree) {
  SeedStep(session_, batch.step);
  session_.optimizer->ClearGradients();
  std::optional<Agreement> agreed;
  kept_.clear();
  for (const auto& buffer : buffers_) kept_.push_back(buffer.clone());
  const int wanted = PartsOfStep(session_.spec, session_.phases.At(batch.step), session_.env.world_size);
  auto parts = Parts(batch, wanted, session_.norm_sum == nullptr);
  // The averager divides by the world size; together this is the mean over all images of the step.
  const auto weight = [&] {
    return static_cast<double>(session_.env.world_size) /
           static_cast<double>(std::max<int64_t>(agreed->images, 1));
  };
  if (graph_ && parts.size() == 1 && !keep_samples_) {
    agreed = agree();
    if (graph_->Run(batch, [&](const DeviceBatch& part) { (ForwardLoss(part) * weight()).backward(); })) {
      clock_.Mark(Part::kBackward);
      parts.clear();  // the recording has done it
    }
  }
  for (const auto& part : parts) {
    session_.averager->BeforeForward();
    const at::Tensor loss_sum = ForwardLoss(part);
    clock_.Mark(Part::kForward);
    if (!agreed) {
      agreed = agree();
      clock_.Mark(Part::kCommunication);
      session_.gang->SetPosition(batch.step, "backward pass and gradient all-reduce");
    }
    const auto loss = session_.loss_scale.Scale(loss_sum * weight());
    Backward(loss, &part == &parts.back());
  }
  // Decay and momentum alone are no step.
  if (agreed->images > 0) Update(learning_rate, agreed->norm);
  clock_.Mark(Part::kOptimizer);
}

/// The gradients are averaged over the ranks in the last part's backward pass.
void Learner::Backward(const at::Tensor& loss, bool is_last) {
  RECORD_USER_SCOPE("imgtrain: backward and all-reduce");
  Part part = Part::kBackward;
  if (is_last) {
    session_.averager->BeforeBackward(loss, [&] {
      clock_.Mark(Part::kBackward);
      part = Part::kCommunication;
    });
  }
  session_.gang->Guard([&] { loss.backward(); });
  clock_.Mark(part);
}

void Learner::Update(double learning_rate, bool norm) {
  RECORD_USER_SCOPE("imgtrain: optimizer");
  std::optional<at::Tensor> found_inf;
  const double most = session_.spec.optimizer.clip_norm;
  if (session_.loss_scale.on() || norm || most > 0 || skip_) {
    const auto gradients = session_.optimizer->Gradients();
    if (session_.loss_scale.on()) found_inf = session_.loss_scale.Unscale(gradients);
    if (norm || most > 0 || skip_) norm_ = NormOf(gradients);
    if (skip_) found_inf = LeaveOut();
    if (most > 0) ClipNorm(gradients, norm_, most);
  }
  session_.optimizer->Step(learning_rate, found_inf);
  const auto every = static_cast<uint64_t>(session_.spec.ema.every_steps);
  if (session_.average && (session_.state.step + 1) % every == 0) session_.average->Update();
}

/// 1 where the gradients, which are the same on all ranks, are no finite numbers, and the step is to be as if
/// it had not been; else 0. Does not wait for the device.
at::Tensor Learner::LeaveOut() {
  torch::NoGradGuard no_grad;
  const auto bad = norm_.isfinite().logical_not();
  for (size_t i = 0; i < buffers_.size(); ++i) buffers_[i].copy_(at::where(bad, kept_[i], buffers_[i]));
  // The same steps on every rank, which are summed.
  if (session_.is_rank0()) {
    sums_[3] += bad;
    guard_sums_[3] += bad;
  }
  return bad.to(at::kFloat);
}

/// The sum of the losses of this rank's images. A rank without any passes one black image with weight 0
/// through, since its share in the gradient all-reduce is needed all the same; its batch-norm statistics stay
/// untouched.
at::Tensor Learner::ForwardLoss(const DeviceBatch& part) {
  RECORD_USER_SCOPE("imgtrain: forward");
  Model& model = *session_.model;
  model.train();
  if (session_.norm_sum) {
    session_.norm_sum->has_images = part.count > 0;
  } else if (session_.spec.train.freeze_batch_norm || TooFewForBatchNorm(part)) {
    SetBatchNormTraining(model, false);
  }
  const int64_t size = session_.phases.At(part.step).image_size;
  const auto images = part.count > 0
                          ? part.images
                          : at::zeros({1, 3, size, size}, at::dtype(at::kFloat).device(session_.device))
                                .contiguous(at::MemoryFormat::ChannelsLast);
  at::Tensor logits;
  {
    const Autocast autocast(session_.device.type(), session_.compute_type);
    logits = model.forward(images);
  }
  logits = logits.to(at::kFloat);
  if (part.count == 0) return (logits * 0).sum();
  const auto loss = LossOf(part, logits);
  if (std::exchange(keep_samples_, false)) {
    torch::NoGradGuard no_grad;
    samples_ = KeepSomeOf(part, logits);
  }
  Count(part, logits, loss.detach());
  return loss;
}

void Learner::Count(const DeviceBatch& part, const at::Tensor& logits, const at::Tensor& loss) {
  torch::NoGradGuard no_grad;
  const auto images = at::full_like(loss, static_cast<double>(part.count));
  auto counted = at::stack({loss, CountTop1(part, logits).to(loss.scalar_type()), images});
  if (skip_) counted = at::where(loss.isfinite(), counted, at::zeros_like(counted));
  sums_.narrow(0, 0, 3) += counted;
  guard_sums_.narrow(0, 0, 3) += counted;
}

/// Of each image.
at::Tensor Learner::LossFor(const at::Tensor& labels, const at::Tensor& logits) const {
  namespace F = torch::nn::functional;
  const double smoothing = session_.spec.loss.label_smoothing;
  if (session_.spec.loss.kind == "bce") {
    const int64_t classes = logits.size(1);
    const auto targets = at::one_hot(labels, classes).to(at::kFloat) * (1 - smoothing) +
                         smoothing / static_cast<double>(classes);
    return at::binary_cross_entropy_with_logits(logits, targets, {}, {}, at::Reduction::None).sum(1);
  }
  return F::cross_entropy(logits, labels,
                          F::CrossEntropyFuncOptions().label_smoothing(smoothing).reduction(torch::kNone));
}

/// Summed over the images; one that is mixed is as much of each class as there is of it.
at::Tensor Learner::LossOf(const DeviceBatch& part, const at::Tensor& logits) const {
  const auto loss = LossFor(part.labels, logits);
  if (!part.own_weights.defined()) return loss.sum();
  return (loss * part.own_weights + LossFor(part.partner_labels, logits) * (1 - part.own_weights)).sum();
}

/// A mixed image counts as right by the share of the class that was answered.
at::Tensor Learner::CountTop1(const DeviceBatch& part, const at::Tensor& logits) const {
  const auto answers = logits.argmax(1);
  const auto right = answers.eq(part.labels);
  if (!part.own_weights.defined()) return right.sum();
  return (right * part.own_weights + answers.eq(part.partner_labels) * (1 - part.own_weights)).sum();
}

std::optional<report::SampleFigures> Learner::TakeSamples() {
  if (!samples_) return std::nullopt;
  return FiguresOf(*std::exchange(samples_, std::nullopt), session_.spec.data.normalisation,
                   session_.state.class_names);
}

/// A copy, since a CPU tensor moved to the CPU would be the same one.
at::Tensor Learner::OnHost(const at::Tensor& sums) {
  return sums.to(at::kCPU, at::kDouble, /*non_blocking=*/false, /*copy=*/true);
}

void Learner::SetGuardSums(const std::array<double, 4>& sums) {
  guard_sums_.copy_(at::tensor(at::ArrayRef<double>(sums), at::kDouble));
}

at::Tensor Learner::TakeSums() {
  auto sums = OnHost(sums_);
  sums_.zero_();
  return sums;
}

}  // namespace imgd::trainer
