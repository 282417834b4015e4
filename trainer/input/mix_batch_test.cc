#include "trainer/torch.h"
//
#include <gtest/gtest.h>

#include "trainer/input/mix_batch.h"

namespace imgd::trainer {
namespace {

constexpr int kSize = 12;

/// Images [first, last) of a step of six, image i all of value i, as a loader gives them.
data::Batch BatchOf(uint32_t first, uint32_t last, data::Slice own) {
  data::Batch batch{.step = 7, .global_count = 6, .width = kSize, .height = kSize, .own = own};
  for (uint32_t p = first; p < last; ++p) {
    batch.positions.push_back(p);
    batch.samples.push_back(10 + p);
    batch.labels.push_back(static_cast<int32_t>(p));
  }
  return batch;
}

DeviceBatch Mixed(const data::Batch& batch, const data::MixOptions& mix) {
  DeviceBatch out;
  std::vector<at::Tensor> images;
  std::vector<int64_t> labels;
  for (const uint32_t p : batch.positions) {
    images.push_back(at::full({3, kSize, kSize}, static_cast<float>(p), at::kFloat));
    labels.push_back(p);
  }
  out.images = at::stack(images).contiguous(at::MemoryFormat::ChannelsLast);
  out.labels = at::tensor(labels, at::kLong);
  EraseAndMix(batch, mix, 3, out);
  return out;
}

TEST(EraseAndMix, AnImageBecomesWhatItsPairSaysAndItsLabelsToo) {
  const auto out = Mixed(BatchOf(0, 6, {0, 6}), {.mixup = 1});
  for (int64_t p = 0; p < 6; ++p) {
    const data::Mix mix = data::MixOf({.mixup = 1}, 3, 7, static_cast<uint32_t>(p), kSize, kSize);
    const double expected = mix.own * static_cast<double>(p) + (1 - mix.own) * static_cast<double>(p ^ 1);
    EXPECT_TRUE(at::allclose(out.images[p], at::full({3, kSize, kSize}, expected, at::kFloat)));
    EXPECT_EQ(out.labels[p].item<int64_t>(), p);
    EXPECT_EQ(out.partner_labels[p].item<int64_t>(), p ^ 1);
    EXPECT_NEAR(out.own_weights[p].item<float>(), mix.own, 1e-6);
  }
  EXPECT_TRUE(out.images.is_contiguous(at::MemoryFormat::ChannelsLast));
}

TEST(EraseAndMix, CutmixWeighsALabelByItsPixels) {
  const auto out = Mixed(BatchOf(0, 6, {0, 6}), {.cutmix = 1});
  for (int64_t p = 0; p < 6; ++p) {
    const auto share = out.images[p].eq(static_cast<float>(p)).to(at::kFloat).mean();
    EXPECT_NEAR(share.item<float>(), out.own_weights[p].item<float>(), 1e-6);
  }
}

TEST(EraseAndMix, DoesNotDependOnHowTheStepIsCutIntoRanks) {
  const data::MixOptions both{.mixup = 0.4, .cutmix = 1};
  const auto whole = Mixed(BatchOf(0, 6, {0, 6}), both);
  // The middle one of ranks with 1, 2 and 3 images: positions 1 and 2, with partners 0 and 3.
  const auto part = Mixed(BatchOf(0, 4, {1, 3}), both);
  ASSERT_EQ(part.images.size(0), 2);
  EXPECT_TRUE(at::allclose(part.images, whole.images.narrow(0, 1, 2)));
  EXPECT_TRUE(at::equal(part.labels, whole.labels.narrow(0, 1, 2)));
  EXPECT_TRUE(at::equal(part.partner_labels, whole.partner_labels.narrow(0, 1, 2)));
  EXPECT_TRUE(at::equal(part.own_weights, whole.own_weights.narrow(0, 1, 2)));
}

TEST(EraseAndMix, WithoutItsPartnerAnImageStaysAsItIs) {
  const auto out = Mixed(BatchOf(1, 4, {0, 3}), {.mixup = 1});
  EXPECT_EQ(out.own_weights[0].item<float>(), 1);
  EXPECT_EQ(out.partner_labels[0].item<int64_t>(), 1);
  EXPECT_TRUE(out.images[0].eq(1).all().item<bool>());
}

TEST(EraseAndMix, ErasesToTheMeanColour) {
  auto batch = BatchOf(1, 3, {0, 2});
  batch.erased = {{.left = 2, .top = 3, .width = 4, .height = 5}, {}};
  const auto out = Mixed(batch, {});
  EXPECT_EQ(out.images[0].eq(0).sum().item<int64_t>(), 3 * 4 * 5);
  EXPECT_TRUE(out.images[0].slice(1, 3, 8).slice(2, 2, 6).eq(0).all().item<bool>());
  EXPECT_TRUE(out.images[1].eq(2).all().item<bool>());
  EXPECT_FALSE(out.own_weights.defined());
}

}  // namespace
}  // namespace imgd::trainer
