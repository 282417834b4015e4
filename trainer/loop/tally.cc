#include "trainer/loop/tally.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>

namespace imgd::trainer {
namespace {

constexpr auto kMostWorst = static_cast<int64_t>(report::ClassFigures::kMostWorst);
constexpr int64_t kColumns = 5;  ///< of Tally::worst_
constexpr size_t kChosen = 8;

/// The rows of all ranks, one below the other; a rank has at most kMostWorst, the others are zeros.
at::Tensor RowsOfAll(Gang& gang, const at::Tensor& own) {
  auto all = at::zeros({gang.world_size(), kMostWorst, kColumns}, at::kDouble);
  if (own.size(0) > 0) all[gang.rank()].narrow(0, 0, own.size(0)).copy_(own);
  gang.AllReduceSum(all);
  return all.view({-1, kColumns});
}

}  // namespace

Tally::Tally(at::Device device, size_t classes, size_t images)
    : classes_(static_cast<int64_t>(classes)),
      sums_(at::zeros({4}, at::dtype(at::kDouble).device(device))),
      counts_(at::zeros({3, classes_}, at::dtype(at::kLong).device(device))),
      worst_(at::empty({0, kColumns}, at::dtype(at::kDouble).device(device))),
      chosen_(at::empty_like(worst_)) {
  // The first of each eighth.
  for (size_t i = 0; i < std::min(kChosen, images); ++i)
    choice_.insert(static_cast<uint32_t>(i * images / std::min(kChosen, images)));
  if (classes <= report::ClassFigures::kMostConfused) {
    confusion_ = at::zeros({classes_ * classes_}, counts_.options());
  }
}

void Tally::Add(const at::Tensor& logits, const at::Tensor& labels, const std::vector<uint32_t>& samples) {
  namespace F = torch::nn::functional;
  const auto losses =
      F::cross_entropy(logits, labels, F::CrossEntropyFuncOptions().reduction(torch::kNone)).to(at::kDouble);
  const int64_t k = std::min<int64_t>(5, logits.size(1));
  const auto best = std::get<1>(logits.topk(k, 1));
  const auto hits = best.eq(labels.unsqueeze(1)).to(at::kLong);
  const auto top1 = hits.select(1, 0);
  const auto top5 = hits.sum(1);
  sums_[0] += losses.sum();
  sums_[1] += top1.sum();
  sums_[2] += top5.sum();
  sums_[3] += labels.size(0);
  counts_[0].index_add_(0, labels, at::ones_like(labels));
  counts_[1].index_add_(0, labels, top1);
  counts_[2].index_add_(0, labels, top5);
  if (confusion_.defined()) {
    confusion_.index_add_(0, labels * classes_ + best.select(1, 0), at::ones_like(labels));
  }
  const auto first = static_cast<int64_t>(samples_.size());
  const auto [probability, answer] = logits.softmax(1).max(1);
  const auto places = at::arange(first, first + labels.size(0), losses.options());
  const auto rows = at::stack(
      {losses, places, labels.to(at::kDouble), answer.to(at::kDouble), probability.to(at::kDouble)}, 1);
  KeepWorst(rows);
  KeepChosen(rows, samples);
  samples_.insert(samples_.end(), samples.begin(), samples.end());
}

void Tally::KeepWorst(const at::Tensor& rows) {
  worst_ = at::cat({worst_, rows});
  if (worst_.size(0) <= kMostWorst) return;
  worst_ = worst_.index_select(0, std::get<1>(worst_.select(1, 0).topk(kMostWorst)));
}

void Tally::KeepChosen(const at::Tensor& rows, const std::vector<uint32_t>& samples) {
  for (size_t i = 0; i < samples.size(); ++i) {
    if (choice_.contains(samples[i]))
      chosen_ = at::cat({chosen_, rows.narrow(0, static_cast<int64_t>(i), 1)});
  }
}

ValidationResult Tally::Total(Gang& gang, uint64_t step) const {
  auto sums = sums_.to(at::kCPU, at::kDouble, /*non_blocking=*/false, /*copy=*/true);
  gang.AllReduceSum(sums);
  const auto* s = sums.const_data_ptr<double>();
  const double images = std::max(s[3], 1.0);
  return {step, static_cast<uint64_t>(s[3]), s[0] / images, s[1] / images, s[2] / images};
}

std::vector<report::WorstImage> Tally::ImagesOf(Gang& gang, const at::Tensor& rows,
                                                const data::Dataset& set) const {
  auto own = rows.to(at::kCPU, at::kDouble, /*non_blocking=*/false, /*copy=*/true);
  for (int64_t i = 0; i < own.size(0); ++i) {
    auto* row = own.mutable_data_ptr<double>() + i * kColumns;
    row[1] = samples_[static_cast<size_t>(row[1])] + 1.0;  // 0 is none
  }
  const auto all = RowsOfAll(gang, own);
  std::vector<report::WorstImage> out;
  for (int64_t i = 0; i < all.size(0); ++i) {
    const auto* row = all.const_data_ptr<double>() + i * kColumns;
    if (row[1] == 0) continue;
    const auto sample = static_cast<uint32_t>(row[1] - 1);
    out.push_back({.name = set.name(sample),
                   .label = static_cast<uint32_t>(row[2]),
                   .answer = static_cast<uint32_t>(row[3]),
                   .probability = row[4],
                   .loss = row[0],
                   .sample = sample});
  }
  return out;
}

report::ClassFigures Tally::OfClasses(Gang& gang, const data::Dataset& set) const {
  report::ClassFigures out{.names = set.classes()};
  auto counts = counts_.to(at::kCPU, at::kLong, /*non_blocking=*/false, /*copy=*/true);
  gang.AllReduceSum(counts);
  for (int64_t label = 0; label < classes_; ++label) {
    const auto* count = counts.const_data_ptr<int64_t>() + label;
    out.counts.push_back({static_cast<uint64_t>(count[0]), static_cast<uint64_t>(count[classes_]),
                          static_cast<uint64_t>(count[2 * classes_])});
  }
  if (confusion_.defined()) {
    auto confusion = confusion_.to(at::kCPU, at::kLong, /*non_blocking=*/false, /*copy=*/true);
    gang.AllReduceSum(confusion);
    const auto* numbers = confusion.const_data_ptr<int64_t>();
    std::transform(numbers, numbers + confusion.numel(), std::back_inserter(out.confusion),
                   [](int64_t images) { return static_cast<uint32_t>(images); });
  }
  out.worst = ImagesOf(gang, worst_, set);
  out.chosen = ImagesOf(gang, chosen_, set);
  std::ranges::sort(out.chosen, {}, &report::WorstImage::sample);
  // What is no number is worst of all.
  const auto badness = [](const report::WorstImage& image) {
    return std::isnan(image.loss) ? std::numeric_limits<double>::infinity() : image.loss;
  };
  std::ranges::sort(out.worst, [&](const auto& a, const auto& b) {
    return badness(a) != badness(b) ? badness(a) > badness(b) : a.name < b.name;
  });
  if (out.worst.size() > report::ClassFigures::kMostWorst) out.worst.resize(report::ClassFigures::kMostWorst);
  return out;
}

}  // namespace imgd::trainer
