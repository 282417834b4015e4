#include "trainer/data/synth.h"

#include <gmock/gmock.h>

#include <map>
#include <set>

#include "common/files.h"
#include "trainer/data/image_folder.h"
#include "trainer/data/synth_paint.h"
#include "trainer/data/test_images.h"

namespace imgd::data {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

constexpr SynthOptions kSmall = {
    .classes = 12, .per_class = 3, .val_per_class = 2, .width = 48, .height = 40, .seed = 9};

std::map<std::string, std::string> Contents(const std::filesystem::path& root) {
  std::map<std::string, std::string> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(root)) {
    if (entry.is_regular_file()) {
      files[entry.path().lexically_relative(root).string()] = ReadFile(entry.path()).value();
    }
  }
  return files;
}

TEST(Synth, WritesAnImageFolder) {
  const TempFolder folder;
  const auto out = folder.path() / "a/set";
  ASSERT_TRUE(WriteSynthDataset(kSmall, out).has_value());
  const auto train = ImageFolder::Open(out / "train").value();
  const auto val = ImageFolder::Open(out / "val").value();
  EXPECT_EQ(train.size(), 36U);
  EXPECT_EQ(val.size(), 24U);
  EXPECT_EQ(train.classes(), val.classes());
  EXPECT_EQ(train.classes()[3], "c03-star-dots");
  EXPECT_EQ(train.name(0), "c00-circle-plain/000000.jpg");
  EXPECT_THAT(ReadFile(out / "dataset.json").value(), HasSubstr("\"seed\": 9"));
  EXPECT_THAT(Contents(folder.path()), SizeIs(61)) << "nothing else is left";
}

TEST(Synth, TheSameOptionsGiveTheSameBytesWhateverTheJobs) {
  const TempFolder folder;
  auto options = kSmall;
  ASSERT_TRUE(WriteSynthDataset(options, folder.path() / "one").has_value());
  options.jobs = 4;
  ASSERT_TRUE(WriteSynthDataset(options, folder.path() / "four/").has_value());
  EXPECT_EQ(Contents(folder.path() / "one"), Contents(folder.path() / "four"));
  options.seed = 10;
  ASSERT_TRUE(WriteSynthDataset(options, folder.path() / "other").has_value());
  EXPECT_NE(Contents(folder.path() / "one"), Contents(folder.path() / "other"));
}

TEST(Synth, NoTwoPicturesAreTheSame) {
  const TempFolder folder;
  ASSERT_TRUE(WriteSynthDataset(kSmall, folder.path() / "set").has_value());
  std::set<std::string> pictures;
  for (const auto& [name, content] : Contents(folder.path() / "set")) pictures.insert(content);
  EXPECT_THAT(pictures, SizeIs(61));
}

TEST(Synth, WithoutValidationImagesThereIsNoValFolder) {
  const TempFolder folder;
  auto options = kSmall;
  options.val_per_class = 0;
  ASSERT_TRUE(WriteSynthDataset(options, folder.path() / "set").has_value());
  EXPECT_FALSE(std::filesystem::exists(folder.path() / "set/val"));
}

TEST(Synth, RefusesAFolderThatIsNotEmptyAndTakesAnEmptyOne) {
  const TempFolder folder;
  const auto file = folder.Write("full/x", "");
  const auto refused = WriteSynthDataset(kSmall, folder.path() / "full");
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(ExitCodeOf(refused.error().code), 5);
  EXPECT_THAT(refused.error().message, HasSubstr("full is not empty"));
  EXPECT_THAT(WriteSynthDataset(kSmall, file).error().message, HasSubstr("exists and is not a folder"));
  std::filesystem::create_directory(folder.path() / "empty");
  EXPECT_TRUE(WriteSynthDataset(kSmall, folder.path() / "empty").has_value());
}

TEST(Synth, BrokenOffLeavesNothing) {
  const TempFolder folder;
  uint64_t seen = 0;
  const auto status = WriteSynthDataset(kSmall, folder.path() / "set", [&](uint64_t done, uint64_t) {
    seen = done;
    return done < 3;
  });
  ASSERT_FALSE(status.has_value());
  EXPECT_EQ(status.error().code, ErrorCode::kCancelled);
  EXPECT_EQ(seen, 3U);
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(Synth, NamesTheOptionThatIsOutOfRange) {
  const TempFolder folder;
  auto options = kSmall;
  options.classes = 1001;
  EXPECT_EQ(WriteSynthDataset(options, folder.path() / "set").error().message,
            "the number of classes is 1001, which must be from 1 to 1000");
  options = kSmall;
  options.width = 8;
  EXPECT_THAT(WriteSynthDataset(options, folder.path() / "set").error().message, HasSubstr("the width is 8"));
  EXPECT_THAT(Contents(folder.path()), IsEmpty());
}

TEST(SynthClasses, AreAllDifferentAndSortByIndex) {
  std::set<std::tuple<int, int, int>> kinds;
  std::string last;
  for (int i = 0; i < kMaxSynthClasses; ++i) {
    const auto c = SynthClassOf(i);
    kinds.insert({c.shape, c.fill, c.border});
    const auto name = SynthClassName(i, kMaxSynthClasses);
    EXPECT_LT(last, name);
    last = name;
  }
  EXPECT_THAT(kinds, SizeIs(kMaxSynthClasses));
}

TEST(SynthShapes, HaveAnInsideOfFairSizeWithinTheFrame) {
  for (int shape = 0; shape < kSynthShapes; ++shape) {
    int inside = 0;
    for (int y = -60; y <= 60; ++y) {
      for (int x = -60; x <= 60; ++x) {
        const float fx = static_cast<float>(x) / 50;
        const float fy = static_cast<float>(y) / 50;
        if (ShapeDistance(shape, fx, fy) >= 0) continue;
        ++inside;
        EXPECT_LT(fx * fx + fy * fy, kShapeExtent * kShapeExtent) << shape;
      }
    }
    EXPECT_GT(inside, 2500 * 0.8) << shape;  // of about 7850 in the unit circle
    EXPECT_LT(inside, 2500 * 3.0) << shape;
  }
}

}  // namespace
}  // namespace imgd::data
