#pragma once

#include <set>
#include <vector>

#include "trainer/torch.h"
//
#include "trainer/data/dataset.h"
#include "trainer/dist/gang.h"
#include "trainer/loop/run_state.h"
#include "trainer/report/class_figures.h"

namespace imgd::trainer {

/// Sums of a validation pass, on the device, so that nothing waits for it before the end.
class Tally {
 public:
  /// Of a set of so many classes and images.
  Tally(at::Device device, size_t classes, size_t images);

  /// `logits` is float [N, classes], `labels` int64 [N]; `samples` are the images' numbers in the set.
  void Add(const at::Tensor& logits, const at::Tensor& labels, const std::vector<uint32_t>& samples);

  /// Over all ranks, which call both together, in this order; they wait for the device and throw
  /// CollectiveError.
  ValidationResult Total(Gang& gang, uint64_t step) const;
  /// The counts are exact; of images with the same loss any may be among the worst.
  report::ClassFigures OfClasses(Gang& gang, const data::Dataset& set) const;

 private:
  void KeepWorst(const at::Tensor& rows);
  /// Those of the rows whose images are chosen; the first row is of samples[0].
  void KeepChosen(const at::Tensor& rows, const std::vector<uint32_t>& samples);
  /// The rows of all ranks, each with its image's number in the set, as people see them.
  std::vector<report::WorstImage> ImagesOf(Gang& gang, const at::Tensor& rows,
                                           const data::Dataset& set) const;

  const int64_t classes_;
  at::Tensor sums_;       ///< double: loss, top-1, top-5 and images
  at::Tensor counts_;     ///< int64 [3, classes]: images, top-1, top-5
  at::Tensor confusion_;  ///< int64 [classes * classes] by label and answer; undefined for too many classes
  at::Tensor worst_;   ///< double [up to kMostWorst, 5]: loss, place in samples_, label, answer, probability
  at::Tensor chosen_;  ///< the same of those images
  std::set<uint32_t> choice_;      ///< their numbers in the set
  std::vector<uint32_t> samples_;  ///< of all images so far
};

}  // namespace imgd::trainer
