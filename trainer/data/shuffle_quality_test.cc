#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include "trainer/data/order.h"

namespace imgd::data {
namespace {

constexpr uint32_t kShuffledImages = 60'000;
constexpr int kBatch = 250;
constexpr uint32_t kClasses = 100;

using Samples = std::vector<uint32_t>;

Samples Ours(uint32_t epoch, std::span<const uint32_t> shards, int segments = 1) {
  const auto order =
      EpochOrder::Create({3, epoch, kShuffledImages, kBatch, segments, shards, EpochMode::kExact, 0}).value();
  Samples out;
  for (uint64_t step = 0; step < order.steps(); ++step) {
    const auto samples = order.StepSamples(step);
    out.insert(out.end(), samples.begin(), samples.end());
  }
  return out;
}

Samples True(uint32_t epoch) {
  Samples out(kShuffledImages);
  std::iota(out.begin(), out.end(), 0U);
  std::mt19937_64 engine(epoch + 77);
  std::ranges::shuffle(out, engine);
  return out;
}

/// Between a sample's number and its position.
double RankCorrelation(const Samples& order) {
  const double mean = (kShuffledImages - 1) / 2.0;
  double products = 0;
  double squares = 0;
  for (uint32_t i = 0; i < kShuffledImages; ++i) {
    products += (i - mean) * (order[i] - mean);
    squares += (i - mean) * (i - mean);
  }
  return products / squares;
}

/// Mean over batches of the chi-square statistic of their classes, by its expectation, for classes that lie
/// one after the other: 1 for a true permutation, more where a batch has too much of one class.
double ClassClumping(const Samples& order, const std::vector<uint32_t>& class_of) {
  double sum = 0;
  for (uint32_t first = 0; first < kShuffledImages; first += kBatch) {
    std::vector<double> count(kClasses);
    for (uint32_t i = first; i < first + kBatch; ++i) ++count[class_of[order[i]]];
    const double expected = static_cast<double>(kBatch) / kClasses;
    for (const double n : count) sum += (n - expected) * (n - expected) / expected;
  }
  return sum / (kShuffledImages / kBatch) / (kClasses - 1);
}

/// How many times as often as by chance two neighbours of one epoch meet in a batch of the next.
double Reunions(const Samples& first, const Samples& second) {
  std::vector<uint32_t> batch_of(kShuffledImages);
  for (uint32_t i = 0; i < kShuffledImages; ++i) batch_of[second[i]] = i / kBatch;
  double met = 0;
  for (uint32_t i = 0; i + 1 < kShuffledImages; ++i) met += batch_of[first[i]] == batch_of[first[i + 1]];
  return met / (kShuffledImages - 1) / (static_cast<double>(kBatch) / kShuffledImages);
}

std::vector<uint32_t> SortedClasses() {
  std::vector<uint32_t> out(kShuffledImages);
  for (uint32_t i = 0; i < kShuffledImages; ++i) out[i] = i / (kShuffledImages / kClasses);
  return out;
}

struct Quality {
  double correlation, clumping, reunions;
};

Quality Measure(const Samples& a, const Samples& b, const std::vector<uint32_t>& class_of) {
  return {RankCorrelation(a), ClassClumping(a, class_of), Reunions(a, b)};
}

void Print(const char* name, const Quality& q) {
  std::printf("%s: rank correlation %+.4f, class clumping %.3f, reunions %.2f\n", name, q.correlation,
              q.clumping, q.reunions);
}

// Three standard deviations of what chance gives: 1/sqrt(N) for the correlation, and so on.
TEST(ShuffleQuality, FoldersAreShuffledAsByATruePermutation) {
  const auto classes = SortedClasses();
  const auto theirs = Measure(True(0), True(1), classes);
  const auto ours = Measure(Ours(0, {}), Ours(1, {}), classes);
  Print("std::shuffle", theirs);
  Print("folders", ours);
  EXPECT_NEAR(ours.correlation, 0, 3 / std::sqrt(kShuffledImages));
  EXPECT_NEAR(ours.clumping, theirs.clumping, 0.03);
  EXPECT_NEAR(ours.reunions, 1, 0.25);
}

// In shards as `dataset convert` writes them, each is a sample of the whole: the class of an image says
// nothing of its number.
TEST(ShuffleQuality, ShuffledShardsMixClassesAsATruePermutationDoes) {
  const std::vector<uint32_t> shards(60, kShuffledImages / 60);
  auto classes = SortedClasses();
  std::mt19937_64 engine(1);
  std::ranges::shuffle(classes, engine);
  const auto theirs = Measure(True(0), True(1), classes);
  for (const int segments : {1, 10}) {
    const auto ours = Measure(Ours(0, shards, segments), Ours(1, shards, segments), classes);
    Print(segments == 1 ? "60 shards" : "60 shards, 10 segments", ours);
    EXPECT_NEAR(ours.clumping, theirs.clumping, 0.03);
    EXPECT_NEAR(ours.reunions, 1, 0.4);
    // A shard is moved as a whole, so chance deals with so many things.
    EXPECT_NEAR(ours.correlation, 0, 3 / std::sqrt(shards.size()));
  }
}

}  // namespace
}  // namespace imgd::data
