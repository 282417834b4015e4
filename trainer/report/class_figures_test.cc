#include "trainer/report/class_figures.h"

#include <gmock/gmock.h>

#include <cmath>
#include <nlohmann/json.hpp>

namespace imgd::report {
namespace {

using nlohmann::json;

/// Of four cats all are right, of three dogs one; there is no bird.
ClassFigures Pets() {
  return {.step = 500,
          .epoch = 2,
          .names = {"cat", "dog", "bird"},
          .counts = {{4, 4, 4}, {3, 1, 2}, {0, 0, 0}},
          .confusion = {4, 0, 0, 2, 1, 0, 0, 0, 0},
          .worst = {{"dog/7.jpg", 1, 0, 0.9, 3.5}}};
}

TEST(ClassFigures, TheJsonHasClassesMistakesTheMatrixAndTheWorstImages) {
  const auto out = json::parse(ToJson(Pets()));
  EXPECT_EQ(out["step"], 500);
  EXPECT_EQ(out["classes"].size(), 2U) << "a class without images has no accuracy";
  EXPECT_EQ(out["classes"][1], json({{"class", "dog"}, {"images", 3}, {"top1", 1.0 / 3}, {"top5", 2.0 / 3}}));
  EXPECT_EQ(out["mistakes"], json::array({{{"class", "dog"}, {"answer", "cat"}, {"images", 2}}}));
  EXPECT_EQ(out["confusion"], json({{4, 0, 0}, {2, 1, 0}, {0, 0, 0}}));
  EXPECT_EQ(out["worst_images"][0], json({{"image", "dog/7.jpg"},
                                          {"class", "dog"},
                                          {"answer", "cat"},
                                          {"probability", 0.9},
                                          {"loss", 3.5}}));
}

TEST(ClassFigures, TheJsonStaysSmallWithManyClasses) {
  ClassFigures many{.names = std::vector<std::string>(21841, "n01440764")};
  for (uint64_t i = 0; i < many.names.size(); ++i) many.counts.push_back({50, i % 50, 50});
  const auto text = ToJson(many);
  EXPECT_LT(text.size(), 1U << 20);
  const auto out = json::parse(text);
  EXPECT_EQ(out["classes"].size(), 5000U);
  for (const auto& entry : out["classes"]) EXPECT_LT(entry["top1"], 0.25) << "those with the least";
  EXPECT_FALSE(out.contains("confusion"));
}

TEST(ClassFigures, ALossThatIsNoNumberIsNull) {
  auto pets = Pets();
  pets.worst[0].loss = std::nan("");
  EXPECT_TRUE(json::parse(ToJson(pets))["worst_images"][0]["loss"].is_null());
}

TEST(ClassFigures, TheTableBeginsWithTheWorst) {
  EXPECT_EQ(ToTable(Pets()),
            "class   images     top-1     top-5\n"
            "dog          3   33.33 %   66.67 %\n"
            "cat          4  100.00 %  100.00 %\n");
}

TEST(ClassFigures, MistakesAreCountedByPairTheMostFrequentFirst) {
  ClassFigures figures{.names = {"a", "b", "c"}, .confusion = {9, 1, 0, 0, 9, 5, 3, 0, 9}};
  const auto mistakes = MostFrequentMistakes(figures, 2);
  ASSERT_EQ(mistakes.size(), 2U);
  EXPECT_EQ(mistakes[0].label, 1U);
  EXPECT_EQ(mistakes[0].answer, 2U);
  EXPECT_EQ(mistakes[0].images, 5U);
  EXPECT_EQ(mistakes[1].images, 3U);
}

}  // namespace
}  // namespace imgd::report
