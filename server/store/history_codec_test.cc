#include "server/store/history_codec.h"

#include <gmock/gmock.h>

#include <bit>
#include <cmath>
#include <limits>
#include <tuple>
#include <vector>

namespace imgd {
namespace {

TEST(HistoryCodec, AColumnComesBackToTheBit) {
  struct Case {
    const char* what;
    std::vector<double> values;
    size_t most_bytes;
  };
  constexpr double no_number = std::numeric_limits<double>::quiet_NaN();
  constexpr double infinite = std::numeric_limits<double>::infinity();
  std::vector<double> steps, losses, floats, noise;
  for (int i = 0; i < 512; ++i) {
    steps.push_back(1000 + 50.0 * i);
    losses.push_back(std::sin(i) / 3);
    floats.push_back(static_cast<float>(std::sin(i) / 3));
    noise.push_back(i % 2 == 0 ? 1e300 * i : -1.0 / (i + 1));
  }
  const std::vector<Case> cases = {
      {"nothing", {}, 0},
      {"all the same", std::vector<double>(512, 0.1), 9},
      {"steps", steps, 40},
      {"times", {1.7e15, 1.7e15 + 1'000'003, 1.7e15 + 1'999'998}, 60},
      {"negative whole numbers", {-1, 3, -9e15, 9e15, 0}, 60},
      {"floats", floats, 512 * 4 + 64},
      {"doubles", losses, 512 * 8 + 64},
      {"large and small", noise, 512 * 8 + 64},
      {"no numbers", {no_number, 1, infinite, -infinite, -0.0, 0.0}, 80},
      {"minus zero among whole numbers", {-0.0, 1, 2}, 60},
  };
  for (const auto& c : cases) {
    const std::string data = EncodeColumn(c.values);
    EXPECT_LE(data.size(), c.most_bytes) << c.what;
    const auto back = DecodeColumn(data, c.values.size());
    ASSERT_TRUE(back.has_value()) << c.what;
    ASSERT_THAT(*back, testing::SizeIs(c.values.size())) << c.what;
    for (size_t i = 0; i < back->size(); ++i) {
      EXPECT_EQ(std::bit_cast<uint64_t>((*back)[i]), std::bit_cast<uint64_t>(c.values[i]))
          << c.what << " " << i;
    }
  }
}

TEST(HistoryCodec, DamageIsNoticed) {
  const std::vector<double> values = {1, 2, 4, 8.5};
  const std::string data = EncodeColumn(values);
  for (const auto& [what, damaged, count] : std::vector<std::tuple<const char*, std::string, size_t>>{
           {"cut", data.substr(0, data.size() - 1), 4},
           {"another count", data, 5},
           {"empty", "", 4},
           {"another form", '\7' + data.substr(1), 4},
           {"whole numbers that are none", '\1' + data.substr(1), 4},
       }) {
    const auto back = DecodeColumn(damaged, count);
    ASSERT_FALSE(back.has_value()) << what;
    EXPECT_EQ(back.error().code, ErrorCode::kDataLoss) << what;
  }
}

}  // namespace
}  // namespace imgd
