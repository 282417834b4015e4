#include "trainer/data/loader.h"

#include <gmock/gmock.h>

#include <mutex>
#include <numeric>
#include <thread>

#include "trainer/data/image_folder.h"
#include "trainer/data/order.h"
#include "trainer/data/sample.h"
#include "trainer/data/test_dataset.h"
#include "trainer/data/test_images.h"

namespace imgd::data {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

constexpr int kImages = 23;

// 23 images of several sizes in three classes.
class LoaderTest : public testing::Test {
 protected:
  void SetUp() override {
    for (int i = 0; i < kImages; ++i) {
      folder_.Write(fmt::format("c{}/{:02}.jpg", i % 3, i), WavesJpeg(60 + i * 3, 90 - i * 2, {}, i));
    }
  }

  void Spoil(int image) { folder_.Write(fmt::format("c{}/{:02}.jpg", image % 3, image), "spoilt"); }

  ImageFolder Open() const { return ImageFolder::Open(folder_.path()).value(); }

  static LoaderOptions Training() {
    return {.crop_size = 24, .seed = 5, .global_batch = 8, .end_step = 6, .workers = 2, .prefetch = 2};
  }
  static LoaderOptions Validation() {
    return {.training = false, .crop_size = 24, .resize = 28, .global_batch = 8, .workers = 2};
  }

  static std::vector<Batch> Drain(Loader& loader) {
    std::vector<Batch> batches;
    for (;;) {
      auto batch = loader.Next();
      EXPECT_TRUE(batch.has_value()) << (batch ? "" : batch.error().message);
      if (!batch || !*batch) return batches;
      batches.push_back(std::move(**batch));
    }
  }

  static std::vector<Batch> Drain(const ImageFolder& set, const LoaderOptions& options) {
    Loader loader(set, options);
    return Drain(loader);
  }

  TempFolder folder_;
};

bool operator==(const Batch& a, const Batch& b) {
  return std::tie(a.step, a.global_count, a.pixels, a.labels, a.samples) ==
         std::tie(b.step, b.global_count, b.pixels, b.labels, b.samples);
}

TEST_F(LoaderTest, GivesTheStepsOfTheOrderWithTheirLabels) {
  const auto set = Open();
  const auto batches = Drain(set, Training());
  ASSERT_THAT(batches, SizeIs(6));
  for (uint32_t i = 0; i < 6; ++i) {
    const auto order = EpochOrder::Create({5, i / 3, kImages, 8, 1}).value();
    EXPECT_EQ(batches[i].step, i);
    EXPECT_EQ(batches[i].samples, order.StepSamples(i % 3));
    EXPECT_EQ(batches[i].global_count, i % 3 == 2 ? 7 : 8);
    EXPECT_EQ(batches[i].pixels.size(), batches[i].samples.size() * 24 * 24 * 3);
    for (size_t k = 0; k < batches[i].samples.size(); ++k) {
      EXPECT_EQ(batches[i].labels[k], set.label(batches[i].samples[k]));
    }
  }
}

TEST_F(LoaderTest, WorkersAndPrefetchDoNotChangeAByte) {
  const auto set = Open();
  const auto expected = Drain(set, Training());
  for (const int workers : {1, 2, 5}) {
    for (const int prefetch : {1, 3, 20}) {
      auto options = Training();
      options.workers = workers;
      options.prefetch = prefetch;
      EXPECT_TRUE(std::ranges::equal(Drain(set, options), expected,
                                     [](const Batch& a, const Batch& b) { return a == b; }))
          << workers << " workers, " << prefetch << " ahead";
    }
  }
}

TEST_F(LoaderTest, RanksTogetherHaveTheSamePixelsAsOneRank) {
  const auto set = Open();
  for (const bool training : {true, false}) {
    auto options = training ? Training() : Validation();
    const auto whole = Drain(set, options);
    options.world_size = 3;
    std::vector<std::vector<uint8_t>> joined(whole.size());
    for (options.rank = 0; options.rank < 3; ++options.rank) {
      const auto part = Drain(set, options);
      ASSERT_EQ(part.size(), whole.size());
      for (size_t i = 0; i < part.size(); ++i) {
        EXPECT_EQ(part[i].global_count, whole[i].global_count);
        joined[i].insert(joined[i].end(), part[i].pixels.begin(), part[i].pixels.end());
      }
    }
    for (size_t i = 0; i < whole.size(); ++i) EXPECT_EQ(joined[i], whole[i].pixels);
  }
}

TEST_F(LoaderTest, ResumesAtAnyStep) {
  const auto set = Open();
  const auto whole = Drain(set, Training());
  auto options = Training();
  options.start_step = 4;
  const auto tail = Drain(set, options);
  ASSERT_THAT(tail, SizeIs(2));
  EXPECT_TRUE(tail[0] == whole[4]);
  EXPECT_TRUE(tail[1] == whole[5]);
}

TEST_F(LoaderTest, AnImageIsCutDifferentlyInEachEpoch) {
  auto options = Training();
  options.global_batch = 23;
  options.end_step = 2;
  const auto batches = Drain(Open(), options);
  const auto image = [&](size_t epoch, uint32_t sample) {
    const auto& batch = batches[epoch];
    const auto at = std::ranges::find(batch.samples, sample) - batch.samples.begin();
    return std::vector<uint8_t>(batch.pixels.begin() + at * 1728, batch.pixels.begin() + (at + 1) * 1728);
  };
  EXPECT_NE(image(0, 7), image(1, 7));
}

TEST_F(LoaderTest, ValidationHasEachImageOnceInOrderAndUncropped) {
  const auto set = Open();
  const auto batches = Drain(set, Validation());
  ASSERT_THAT(batches, SizeIs(3));
  std::vector<uint32_t> seen;
  for (const auto& batch : batches) seen.insert(seen.end(), batch.samples.begin(), batch.samples.end());
  std::vector<uint32_t> expected(kImages);
  std::iota(expected.begin(), expected.end(), 0U);
  EXPECT_EQ(seen, expected);
  EXPECT_EQ(batches[2].global_count, 7);
}

TEST_F(LoaderTest, LeavesBadImagesOutAndNamesEachOnce) {
  Spoil(4);
  Spoil(9);
  std::mutex mutex;
  std::vector<std::string> names;
  std::vector<uint64_t> counts;
  auto options = Training();
  options.end_step = 9;  // three epochs
  options.on_bad_image = [&](const std::string& name, const std::string& error, uint64_t count) {
    const std::lock_guard lock(mutex);
    names.push_back(name);
    counts.push_back(count);
    EXPECT_THAT(error, HasSubstr("not a JPEG file"));
  };
  const auto batches = Drain(Open(), options);
  size_t images = 0;
  size_t planned = 0;
  for (const auto& batch : batches) {
    images += batch.samples.size();
    planned += static_cast<size_t>(batch.global_count);
    EXPECT_EQ(batch.pixels.size(), batch.samples.size() * 1728);
    EXPECT_EQ(batch.labels.size(), batch.samples.size());
  }
  EXPECT_EQ(planned, 3 * 23U);
  EXPECT_EQ(images, 3 * 21U);
  std::ranges::sort(names);
  EXPECT_THAT(names, ElementsAre("c0/09.jpg", "c1/04.jpg"));
  EXPECT_THAT(counts, ElementsAre(1, 2));
}

TEST_F(LoaderTest, GoodImagesKeepTheirPixelsBesideBadOnes) {
  const auto clean = Drain(Open(), Validation());
  Spoil(0);
  const auto spoilt = Drain(Open(), Validation());
  EXPECT_EQ(spoilt[0].samples, std::vector<uint32_t>(clean[0].samples.begin() + 1, clean[0].samples.end()));
  EXPECT_EQ(spoilt[0].pixels, std::vector<uint8_t>(clean[0].pixels.begin() + 1728, clean[0].pixels.end()));
}

TEST_F(LoaderTest, EndsAtTheSameBatchWhenTooManyAreBad) {
  for (const int image : {1, 2, 3}) Spoil(image);
  const auto set = Open();
  std::vector<size_t> good_batches;
  for (const int workers : {1, 5}) {
    auto options = Training();
    options.workers = workers;
    options.max_bad_images = 2;
    Loader loader(set, options);
    size_t good = 0;
    Result<std::optional<Batch>> batch;
    while ((batch = loader.Next()) && *batch) ++good;
    ASSERT_FALSE(batch.has_value());
    EXPECT_EQ(batch.error().code, ErrorCode::kDataLoss);
    EXPECT_THAT(batch.error().message, HasSubstr("3 images could not be decoded, at most 2 are allowed"));
    EXPECT_FALSE(loader.Next().has_value()) << "it stays an error";
    good_batches.push_back(good);
  }
  EXPECT_EQ(good_batches[0], good_batches[1]);
}

TEST_F(LoaderTest, AFileThatVanishesIsABadImage) {
  const auto set = Open();
  std::filesystem::remove(set.path(0));
  auto options = Validation();
  std::string error;
  options.on_bad_image = [&](const std::string&, const std::string& e, uint64_t) { error = e; };
  EXPECT_THAT(Drain(set, options)[0].samples, SizeIs(7));
  EXPECT_THAT(error, HasSubstr("No such file or directory"));
}

TEST_F(LoaderTest, ARankWithoutSamplesGetsEmptyBatches) {
  auto options = Training();
  options.global_batch = 2;
  options.world_size = 5;
  options.end_step = 2;
  const auto batches = Drain(Open(), options);
  ASSERT_THAT(batches, SizeIs(2));
  EXPECT_THAT(batches[0].samples, IsEmpty());
  EXPECT_EQ(batches[0].global_count, 2);
}

TEST_F(LoaderTest, CanBeDestroyedAtAnyMoment) {
  const auto set = Open();
  auto options = Training();
  options.end_step = 1'000'000;
  options.workers = 5;
  for (int taken = 0; taken < 4; ++taken) {
    Loader loader(set, options);
    for (int i = 0; i < taken; ++i) ASSERT_TRUE(loader.Next()->has_value());
  }
}

TEST_F(LoaderTest, AWaitOfItsWorkersCountsWhileItLasts) {
  const auto set = Open();
  Loader loader(set, Training());
  const auto becomes = [](const auto& what) {
    for (int i = 0; i < 1000 && !what(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    return what();
  };
  ASSERT_TRUE(becomes([&] { return loader.figures().images == 16; })) << "two batches of eight lie ready";
  const double before = loader.figures().idle_seconds;
  EXPECT_TRUE(becomes([&] { return loader.figures().idle_seconds > before + 0.02; }));
}

TEST_F(LoaderTest, RecycledMemoryDoesNotShow) {
  const auto set = Open();
  const auto expected = Drain(set, Training());
  Loader loader(set, Training());
  for (const auto& batch : expected) {
    auto next = loader.Next().value().value();
    EXPECT_TRUE(next == batch);
    loader.Recycle(std::move(next));
  }
}

TEST_F(LoaderTest, SaysWhichOptionMakesNoSense) {
  const auto set = Open();
  const auto error = [&](auto change) {
    auto options = Training();
    change(options);
    Loader loader(set, options);
    auto batch = loader.Next();
    return batch ? std::string() : batch.error().message;
  };
  EXPECT_EQ(error([](auto& o) { o.rank = 1; }), "rank is 1, which must be from 0 to 0");
  EXPECT_EQ(error([](auto& o) { o.workers = 0; }), "workers is 0, which must be at least 1");
  EXPECT_THAT(error([](auto& o) { o.segments = 3; }), HasSubstr("no positive multiple of segments, 3"));
}

TEST(Loader, AServerThatIsAwayEndsTheRunRatherThanLeavingImagesOut) {
  CountingDataset set(64);
  std::atomic<int> bad = 0;
  Loader loader(set, {.crop_size = 16,
                      .global_batch = 8,
                      .end_step = 8,
                      .prefetch = 1,
                      .on_bad_image = [&](const std::string&, const std::string&, uint64_t) { ++bad; }});
  ASSERT_TRUE(loader.Next().has_value());
  set.GoAway();
  auto next = loader.Next();
  for (int i = 0; next && i < 2; ++i) next = loader.Next();
  ASSERT_FALSE(next.has_value());
  EXPECT_EQ(next.error().code, ErrorCode::kInternal);
  EXPECT_THAT(next.error().message, HasSubstr("no server answers"));
  EXPECT_EQ(bad, 0);
}

TEST(StepsPerEpoch, CountsTheSmallerLastStep) {
  EXPECT_EQ(StepsPerEpoch(1281167, 256), 5005U);
  EXPECT_EQ(StepsPerEpoch(512, 256), 2U);
  EXPECT_EQ(StepsPerEpoch(1, 256), 1U);
  EXPECT_EQ(StepsPerEpoch(0, 256), 0U);
}

TEST(SampleReader, AColourOfTheMiddleSurvivesTheWholeWay) {
  // Left half red, right half blue.
  std::vector<uint8_t> pixels;
  for (int i = 0; i < 200 * 100; ++i) {
    const bool left = i % 200 < 100;
    pixels.insert(pixels.end(),
                  {static_cast<uint8_t>(left ? 250 : 5), 10, static_cast<uint8_t>(left ? 5 : 250)});
  }
  const std::string file = EncodeJpeg(pixels, 200, 100, {.quality = 95}).value();
  std::vector<uint8_t> out(32 * 32 * 3);
  ASSERT_TRUE(SampleReader().ReadForValidation(AsBytes(file), {36, 32, 32}, out.data()).has_value());
  const auto* row = &out[16 * 32 * 3];
  EXPECT_GT(row[0], 230);
  EXPECT_LT(row[2], 25);
  EXPECT_LT(row[31 * 3], 25);
  EXPECT_GT(row[31 * 3 + 2], 230);
  EXPECT_NEAR(row[15 * 3], 250, 60) << "the edge is in the middle";
  EXPECT_NEAR(row[16 * 3], 5, 60);
}

}  // namespace
}  // namespace imgd::data
