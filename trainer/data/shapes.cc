#include "trainer/data/shapes.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <numeric>
#include <thread>

#include "trainer/data/jpeg.h"

namespace imgd::data {
namespace {

constexpr int kGrain = 8;  // pixels

/// width / height; 1 where it can't be told.
double RatioOf(const Dataset& dataset, size_t i, JpegDecoder& decoder, FileBuffer& file) {
  try {
    if (const auto [width, height] = dataset.KnownSize(i); width > 0 && height > 0) {
      return static_cast<double>(width) / height;
    }
    if (!dataset.Read(i, file)) return 1;
    const auto size = decoder.Open(file.bytes());
    if (!size || size->width < 1 || size->height < 1) return 1;
    return static_cast<double>(size->width) / size->height;
  } catch (const std::exception&) {  // out of memory for a huge file, which is left out later, too
    return 1;
  }
}

std::vector<double> Ratios(const Dataset& dataset, int workers) {
  std::vector<double> ratios(dataset.size());
  std::atomic<size_t> next = 0;
  const auto work = [&] {
    JpegDecoder decoder;
    FileBuffer file;
    for (size_t i = next++; i < ratios.size(); i = next++) ratios[i] = RatioOf(dataset, i, decoder, file);
  };
  std::vector<std::jthread> threads;
  for (int i = 1; i < workers; ++i) threads.emplace_back(work);
  work();
  threads.clear();  // joins
  return ratios;
}

/// The crop of a batch whose images' ratios lie between these two.
Shapes::Size CropOf(double lowest, double highest, int crop_size) {
  const double elongation = lowest > 1 ? lowest : highest < 1 ? 1 / highest : 1;
  const double beyond = (std::min<double>(elongation, kMaxElongation) - 1) * crop_size;
  const int long_side = crop_size + static_cast<int>(beyond) / kGrain * kGrain;
  return lowest > 1 ? Shapes::Size{long_side, crop_size} : Shapes::Size{crop_size, long_side};
}

}  // namespace

Shapes PlanShapes(const Dataset& dataset, int global_batch, int crop_size, int workers) {
  const auto ratios = Ratios(dataset, workers);
  Shapes shapes;
  shapes.order.resize(ratios.size());
  std::iota(shapes.order.begin(), shapes.order.end(), 0U);
  std::ranges::stable_sort(shapes.order, {}, [&](uint32_t i) { return ratios[i]; });
  const auto batch = static_cast<size_t>(std::max(global_batch, 1));
  for (size_t first = 0; first < ratios.size(); first += batch) {
    const size_t last = std::min(first + batch, ratios.size()) - 1;
    shapes.batches.push_back(CropOf(ratios[shapes.order[first]], ratios[shapes.order[last]], crop_size));
  }
  return shapes;
}

}  // namespace imgd::data
