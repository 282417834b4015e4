#include "common/yaml_text.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

namespace imgd {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

/// What is wrong with the text; empty where nothing is.
std::string WrongWith(const std::string& text) {
  const auto loaded = LoadYaml(text, "job.yaml");
  return loaded ? "" : loaded.error().ToString();
}

TEST(YamlText, AnAliasStandsForWhatItsAnchorHas) {
  const auto loaded = LoadYaml("a: &a {x: 1}\nb: *a\nc: '*d'\ne: &f 2\ng: *f\n", "job.yaml");
  ASSERT_TRUE(loaded.has_value());
  EXPECT_EQ((*loaded)["b"]["x"].as<int>(), 1);
  EXPECT_EQ((*loaded)["g"].as<int>(), 2);
}

TEST(YamlText, AnAliasOfWhatItIsInIsRefusedAtItsPlace) {
  const char* const kWhy = "this alias stands for something that it is a part of itself";
  EXPECT_EQ(WrongWith("name: x\na: &a\n  b: *a\n"), fmt::format("job.yaml:3:6: {}", kWhy));
  EXPECT_EQ(WrongWith("a: &a [*a]\n"), fmt::format("job.yaml:1:8: {}", kWhy));
  EXPECT_EQ(WrongWith("a: &a [&b {x: [*a, *b]}]\n"), fmt::format("job.yaml:1:16: {}", kWhy));
  EXPECT_EQ(WrongWith("a: 1\n---\nb: &a [*a]\n"), fmt::format("job.yaml:3:8: {}", kWhy));
}

TEST(YamlText, AliasesThatMakeTooManyValuesAreRefused) {
  std::string text = "b0: &b0 [1, 1]\n";
  for (int i = 1; i <= 200; ++i) text += fmt::format("b{0}: &b{0} [*b{1}, *b{1}]\n", i, i - 1);
  EXPECT_THAT(WrongWith(text), HasSubstr("the file has more than 300000 values until here"));
}

TEST(YamlText, AliasesThatNestTooDeeplyAreRefused) {
  const std::string begin(300, '[');
  const std::string end(300, ']');
  EXPECT_EQ(WrongWith("a: &a " + begin + end + "\nb: " + begin + "*a" + end + "\n"),
            "job.yaml:2:304: the file is nested more than 500 deep here");
}

TEST(YamlText, AliasesOfALongTextAreCountedByTheirBytes) {
  std::string text = "a: &a " + std::string(100'000, 'x') + "\nb: [";
  for (int i = 0; i < 100; ++i) text += "*a, ";
  EXPECT_THAT(WrongWith(text + "1]\n"), HasSubstr("the file has more than 8 MiB of text until here"));
}

TEST(YamlText, AVeryLongKeyIsRefused) {
  const std::string key(70'000, 'x');
  EXPECT_EQ(WrongWith("a: 1\n? " + key + "\n: 2\n"), "job.yaml:2:3: this key has more than 1024 bytes");
  EXPECT_EQ(WrongWith("a: " + key + "\nb: [" + key + "]\n"), "") << "a value may be as long";
}

TEST(YamlText, OneAnchorMayStandForSeveralThingsOneAfterTheOther) {
  EXPECT_EQ(WrongWith("a: &a 1\nb: &a [*a]\nc: *a\n"),
            fmt::format("job.yaml:2:8: {}", "this alias stands for something that it is a part of itself"));
  EXPECT_EQ(WrongWith("a: &a 1\nb: *a\nc: &a [2]\nd: *a\n"), "");
}

TEST(YamlText, KeysThatAreSetTwiceAreFoundWhereAliasesLead) {
  const auto loaded = LoadYaml("a: &a {x: 1, x: 2}\nb: [*a]\n", "job.yaml");
  ASSERT_TRUE(loaded.has_value());
  std::vector<std::string> found;
  for (const auto& error : FindKeysSetTwice(*loaded, "job.yaml")) found.push_back(error.message);
  EXPECT_THAT(found, ElementsAre("'a.x' is set twice", "'b[0].x' is set twice"));
}

}  // namespace
}  // namespace imgd
