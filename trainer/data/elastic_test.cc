#include <gmock/gmock.h>

#include <random>

#include "common/files.h"
#include "trainer/data/loader.h"
#include "trainer/data/mix.h"
#include "trainer/data/shapes.h"
#include "trainer/data/test_dataset.h"
#include "trainer/data/trace.h"

namespace imgd::data {
namespace {

using testing::Each;
using testing::Le;

constexpr uint32_t kElasticImages = 250;
constexpr uint64_t kSteps = 50;

LoaderOptions Options(EpochMode mode) {
  return {
      .crop_size = 8, .seed = 11, .epoch_mode = mode, .global_batch = 30, .segments = 3, .end_step = kSteps};
}

/// What one world had in its steps: pixels by step, rank after rank; the samples go to the trace.
using PixelsById = std::map<uint64_t, std::vector<uint8_t>>;

void RunWorld(const Dataset& set, LoaderOptions options, int world_size, SampleTrace& trace,
              PixelsById& pixels) {
  options.world_size = world_size;
  for (options.rank = 0; options.rank < world_size; ++options.rank) {
    Loader loader(set, options);
    for (auto step = options.start_step; step < options.end_step; ++step) {
      const auto batch = loader.Next().value().value();
      ASSERT_EQ(batch.step, step);
      ASSERT_TRUE(trace.Write(batch.step, options.rank, batch.samples).has_value());
      auto& all = pixels[step];
      all.insert(all.end(), batch.pixels.begin(), batch.pixels.end());
    }
    EXPECT_FALSE(loader.Next().value().has_value());
  }
}

std::map<uint64_t, std::vector<uint32_t>> Steps(const std::filesystem::path& trace) {
  return StepsOfTrace(*ReadFile(trace)).value();
}

class Elastic : public testing::TestWithParam<std::tuple<EpochMode, bool>> {};

TEST_P(Elastic, ARunThatIsResizedTwentyTimesHasTheSameStepsAsOneThatIsNot) {
  const auto [mode, sharded] = GetParam();
  const CountingDataset set(kElasticImages,
                            sharded ? std::vector<uint32_t>{100, 30, 120} : std::vector<uint32_t>());
  const TempFolder folder;
  auto options = Options(mode);
  PixelsById whole;
  {
    auto trace = SampleTrace::Open(folder.path() / "whole").value();
    RunWorld(set, options, 1, trace, whole);
  }
  std::mt19937 engine(5);
  std::vector<uint64_t> changes(kSteps - 1);
  std::iota(changes.begin(), changes.end(), 1);
  std::ranges::shuffle(changes, engine);
  changes.resize(20);
  changes.push_back(kSteps);
  std::ranges::sort(changes);
  PixelsById resized;
  {
    auto trace = SampleTrace::Open(folder.path() / "resized").value();
    options.end_step = 0;
    for (size_t i = 0; i < changes.size(); ++i) {
      options.start_step = options.end_step;
      options.end_step = changes[i];
      RunWorld(set, options, std::array{2, 1, 3}[i % 3], trace, resized);
    }
  }
  const auto steps = Steps(folder.path() / "resized");
  EXPECT_EQ(steps, Steps(folder.path() / "whole"));
  EXPECT_EQ(resized, whole);
  ASSERT_EQ(steps.size(), kSteps);
  if (mode == EpochMode::kResampled) {
    for (const auto& [step, samples] : steps) EXPECT_EQ(samples.size(), 30U) << step;
    return;
  }
  for (uint64_t epoch = 0; epoch < 5; ++epoch) {  // of nine steps, the last with ten images
    std::vector<int> seen(kElasticImages);
    for (uint64_t s = epoch * 9; s < (epoch + 1) * 9; ++s) {
      for (const uint32_t sample : steps.at(s)) ++seen[sample];
    }
    EXPECT_THAT(seen, Each(1));
  }
}

INSTANTIATE_TEST_SUITE_P(Modes, Elastic,
                         testing::Combine(testing::Values(EpochMode::kExact, EpochMode::kResampled),
                                          testing::Bool()));

TEST(Elastic, UnevenTailsCountEachImageOnceOnAnyNumberOfRanks) {
  const CountingDataset set(23);
  for (const int world_size : {1, 4, 7, 31}) {
    LoaderOptions options{.crop_size = 8, .global_batch = 8, .world_size = world_size, .end_step = 3};
    int images = 0;
    for (options.rank = 0; options.rank < world_size; ++options.rank) {
      Loader loader(set, options);
      int batches = 0;
      while (const auto batch = loader.Next().value()) {
        images += batch->count();
        ++batches;
      }
      EXPECT_EQ(batches, 3) << "every rank takes part in every step";
    }
    EXPECT_EQ(images, 23);
  }
}

TEST(Resume, GivesTheSameBytesAndReadsNothingThatWasSeen) {
  for (const auto mode : {EpochMode::kExact, EpochMode::kResampled}) {
    CountingDataset set(kElasticImages);
    auto options = Options(mode);
    options.augment.policy.kind = Policy::kTrivialAugment;
    options.augment.erasing = 0.5;
    options.end_step = 12;
    std::vector<Batch> whole;
    {
      Loader loader(set, options);
      while (auto batch = loader.Next().value()) whole.push_back(std::move(*batch));
    }
    for (const uint64_t start : {1U, 5U, 8U, 9U, 11U}) {
      set.TakeReads();
      options.start_step = start;
      Loader loader(set, options);
      std::vector<int> expected(kElasticImages);
      for (uint64_t step = start; step < 12; ++step) {
        const auto batch = loader.Next().value().value();
        EXPECT_EQ(batch.samples, whole[step].samples);
        EXPECT_EQ(batch.pixels, whole[step].pixels);
        EXPECT_EQ(batch.erased, whole[step].erased);
        for (const uint32_t sample : batch.samples) ++expected[sample];
      }
      EXPECT_EQ(set.TakeReads(), expected);
    }
  }
}

TEST(Loader, PartnersAreTheNeighboursOfOddSlicesAndNobodysOwn) {
  CountingDataset set(20);
  set.Spoil(7);
  LoaderOptions options{.crop_size = 8, .partners = true, .global_batch = 9, .world_size = 3, .end_step = 2};
  for (uint64_t step = 0; step < 2; ++step) {
    std::vector<uint32_t> own;
    for (options.rank = 0; options.rank < 3; ++options.rank) {
      options.start_step = step;
      Loader loader(set, options);
      const auto batch = loader.Next().value().value();
      for (uint32_t i = batch.own.first; i < batch.own.last; ++i) {
        own.push_back(batch.samples[i]);
        const uint32_t partner = MixPartner(batch.positions[i]);
        if (partner > 8) continue;
        const bool there = std::ranges::count(batch.positions, partner) == 1;
        // Only the image that can't be decoded is missing.
        EXPECT_TRUE(there || std::ranges::count(own, 7) == 0) << step << ' ' << partner;
      }
      EXPECT_LE(batch.count() - batch.own_count(), 2);
    }
    const std::set<uint32_t> different(own.begin(), own.end());
    EXPECT_EQ(different.size(), own.size());
    EXPECT_GE(own.size(), 8U);
  }
}

TEST(Loader, HoldsNoMoreBatchesThanTheirMemoryAllows) {
  CountingDataset set(kElasticImages);
  auto options = Options(EpochMode::kExact);
  options.prefetch = 100;
  options.workers = 2;
  options.max_memory_bytes = uint64_t{2} * 30 * 8 * 8 * 3;
  Loader loader(set, options);
  ASSERT_TRUE(loader.Next().value().has_value());
  // Whatever the workers do meanwhile: one batch was taken, two more may be in the making.
  const auto reads = set.TakeReads();
  EXPECT_THAT(std::accumulate(reads.begin(), reads.end(), 0), Le(90));
  EXPECT_GE(loader.figures().images, 30U);
  EXPECT_GT(loader.figures().decode_seconds, 0);
}

TEST(Shapes, EachBatchHasTheLargestCropOfOneShapeThatFitsItsImages) {
  const TempFolder folder;
  const std::vector<std::pair<int, int>> sizes = {{60, 20}, {20, 60}, {40, 40}, {40, 41},
                                                  {41, 40}, {50, 40}, {21, 60}, {64, 20}};
  for (size_t i = 0; i < sizes.size(); ++i) {
    folder.Write(fmt::format("a/{}.jpg", i), WavesJpeg(sizes[i].first, sizes[i].second));
  }
  const auto set = OpenDataset(folder.path()).value();
  const auto shapes = std::make_shared<const Shapes>(PlanShapes(*set, 2, 32, 2));
  EXPECT_EQ(shapes->order, (std::vector<uint32_t>{1, 6, 3, 2, 4, 5, 0, 7}));
  const std::vector<Shapes::Size> crops = {{32, 64}, {32, 32}, {32, 32}, {64, 32}};
  EXPECT_EQ(shapes->batches, crops);
  for (const int world_size : {1, 3}) {
    LoaderOptions options{.training = false,
                          .crop_size = 32,
                          .resize = 36,
                          .shapes = shapes,
                          .global_batch = 2,
                          .world_size = world_size};
    int images = 0;
    for (options.rank = 0; options.rank < world_size; ++options.rank) {
      Loader loader(*set, options);
      while (const auto batch = loader.Next().value()) {
        EXPECT_EQ((Shapes::Size{batch->width, batch->height}), crops[batch->step]);
        EXPECT_EQ(batch->pixels.size(),
                  static_cast<size_t>(batch->width * batch->height * 3 * batch->count()));
        images += batch->count();
      }
    }
    EXPECT_EQ(images, 8);
  }
}

TEST(SampleTrace, ReadingRefusesWhatItDidNotWrite) {
  EXPECT_EQ(StepsOfTrace("0 1 7 8\n0 0 5\n").value().at(0), (std::vector<uint32_t>{5, 7, 8}));
  EXPECT_EQ(StepsOfTrace("0 0 5\n0 0 5\n").error().message, "line 2 has step 0 of rank 0 once more");
  EXPECT_FALSE(StepsOfTrace("0 0 5x\n").has_value());
  EXPECT_FALSE(StepsOfTrace("0\n").has_value());
}

}  // namespace
}  // namespace imgd::data
