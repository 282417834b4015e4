#include "trainer/loop/samples.h"

#include <fmt/format.h>

#include <algorithm>

#include "trainer/input/normalise.h"

namespace imgd::trainer {
namespace {

constexpr int64_t kMostSamples = 8;

std::string LabelOf(const KeptSamples& kept, int64_t i, const std::vector<std::string>& classes) {
  const auto name = [&](const at::Tensor& labels) {
    return classes.at(static_cast<size_t>(labels[i].item<int64_t>()));
  };
  const std::string own = name(kept.batch.labels);
  if (!kept.batch.own_weights.defined()) return own;
  const double weight = kept.batch.own_weights[i].item<double>();
  if (weight >= 1) return own;
  return fmt::format("{:.0f}% {} + {}", 100 * weight, own, name(kept.batch.partner_labels));
}

}  // namespace

KeptSamples KeepSomeOf(const DeviceBatch& batch, const at::Tensor& logits) {
  torch::NoGradGuard no_grad;
  const int64_t count = std::min(batch.count, kMostSamples);
  const auto some = [count](const at::Tensor& all) {
    return all.defined() ? all.narrow(0, 0, count).clone() : all;
  };
  const auto [confidence, answers] = logits.detach().narrow(0, 0, count).softmax(1).max(1);
  return {.batch = {.step = batch.step,
                    .count = count,
                    .images = some(batch.images),
                    .labels = some(batch.labels),
                    .partner_labels = some(batch.partner_labels),
                    .own_weights = some(batch.own_weights)},
          .answers = answers,
          .confidence = confidence};
}

report::SampleFigures FiguresOf(const KeptSamples& kept, const JobSpec::Normalisation& normalisation,
                                const std::vector<std::string>& classes) {
  torch::NoGradGuard no_grad;
  const auto pixels = PixelsOf(kept.batch.images, normalisation);
  report::SampleFigures out{.step = kept.batch.step + 1, .size = static_cast<int>(pixels.size(1))};
  for (int64_t i = 0; i < kept.batch.count; ++i) {
    const auto own = pixels[i];
    const auto* bytes = own.const_data_ptr<uint8_t>();
    const auto answer = kept.answers[i].item<int64_t>();
    out.samples.push_back({.rgb = {bytes, bytes + own.numel()},
                           .label = LabelOf(kept, i, classes),
                           .answer = fmt::format("{} {:.0f}%", classes.at(static_cast<size_t>(answer)),
                                                 100 * kept.confidence[i].item<double>()),
                           .right = answer == kept.batch.labels[i].item<int64_t>()});
  }
  return out;
}

}  // namespace imgd::trainer
