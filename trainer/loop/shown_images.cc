#include "trainer/loop/shown_images.h"

#include <algorithm>
#include <vector>

#include "trainer/data/thumbnail.h"

namespace imgd::trainer {
namespace {

constexpr size_t kMostOfAKind = 8;

}  // namespace

report::ShownImages ShownImagesOf(const report::ClassFigures& figures, const data::Dataset& set) {
  report::ShownImages out{.step = figures.step, .epoch = figures.epoch};
  std::vector<uint32_t> samples;
  for (const auto* kind : {&figures.chosen, &figures.worst}) {
    for (size_t i = 0; i < std::min(kind->size(), kMostOfAKind); ++i) {
      const report::WorstImage& image = (*kind)[i];
      samples.push_back(image.sample);
      out.images.push_back({.image = image,
                            .class_name = figures.names.at(image.label),
                            .answer = figures.names.at(image.answer),
                            .worst = kind == &figures.worst});
    }
  }
  set.WillRead(samples);
  data::Thumbnails thumbnails;
  for (auto& shown : out.images) shown.picture = thumbnails.Make(set, shown.image.sample).value_or("");
  return out;
}

}  // namespace imgd::trainer
