#include "trainer/data/permutation.h"

#include <gmock/gmock.h>

#include <set>
#include <vector>

namespace imgd::data {
namespace {

std::vector<uint32_t> All(const Permutation& permutation) {
  std::vector<uint32_t> values;
  for (uint32_t i = 0; i < permutation.size(); ++i) values.push_back(permutation(i));
  return values;
}

TEST(Permutation, HitsEachValueOnce) {
  for (const uint32_t n :
       {1U, 2U, 3U, 4U, 5U, 7U, 16U, 17U, 99U, 100U, 101U, 1000U, 65536U, 65537U, 100003U}) {
    std::vector<bool> seen(n);
    for (const uint32_t value : All(Permutation(n, 5, 1))) {
      ASSERT_LT(value, n);
      ASSERT_FALSE(seen[value]) << value << " twice of " << n;
      seen[value] = true;
    }
  }
}

TEST(Permutation, WorksAtTheLargestSize) {
  const Permutation permutation(~0U, 5, 1);
  std::set<uint32_t> values;
  for (uint32_t i = 0; i < 1000; ++i) values.insert(permutation(~0U - 1 - i));
  EXPECT_EQ(values.size(), 1000U);
}

TEST(Permutation, IsFixedByItsSeedAndEpoch) {
  EXPECT_EQ(All(Permutation(1000, 5, 1)), All(Permutation(1000, 5, 1)));
  EXPECT_NE(All(Permutation(1000, 5, 1)), All(Permutation(1000, 5, 2)));
  EXPECT_NE(All(Permutation(1000, 5, 1)), All(Permutation(1000, 6, 1)));
  EXPECT_NE(All(Permutation(1000, 5, 1)), All(Permutation(1000, 5 + (uint64_t{1} << 40), 1)));
}

// A changed order would silently break the resumption of runs that are under way.
TEST(Permutation, StaysAsItIs) {
  EXPECT_THAT(All(Permutation(10, 42, 3)), testing::ElementsAre(7, 8, 4, 9, 1, 3, 2, 6, 5, 0));
}

TEST(Permutation, PutsEachValueAtEachPlaceEquallyOften) {
  constexpr uint32_t kSize = 10;
  constexpr uint32_t kEpochs = 20000;
  std::vector<int> counts(kSize * kSize);
  std::vector<int> followers(kSize * kSize);
  for (uint32_t epoch = 0; epoch < kEpochs; ++epoch) {
    const auto values = All(Permutation(kSize, 9, epoch));
    for (uint32_t i = 0; i < kSize; ++i) ++counts[i * kSize + values[i]];
    for (uint32_t i = 1; i < kSize; ++i) ++followers[values[i - 1] * kSize + values[i]];
  }
  for (const int count : counts) EXPECT_NEAR(count, 2000, 250);
  for (uint32_t i = 0; i < kSize * kSize; ++i) {
    EXPECT_NEAR(followers[i], i % (kSize + 1) == 0 ? 0 : 2000, 250);
  }
}

}  // namespace
}  // namespace imgd::data
