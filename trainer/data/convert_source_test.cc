#include "trainer/data/convert_source.h"

#include <gmock/gmock.h>

#include "trainer/data/subset.h"
#include "trainer/data/test_images.h"

namespace imgd::data {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class ConvertSourceTest : public testing::Test {
 protected:
  std::string At(const std::string& name) const { return (folder_.path() / name).string(); }
  /// "form: part=where below the folder, ..." or the error.
  std::string Find(const std::string& name, std::optional<SourceForm> wanted = {}) const {
    const auto source = FindSource(At(name), wanted);
    if (!source) return source.error().message;
    std::string out(source->form ? NameOf(*source->form) : "?");
    for (const auto& part : source->parts) {
      out += fmt::format(" {}={}", part.name, part.where.substr(folder_.path().string().size() + 1));
    }
    return out;
  }
  TempFolder folder_;
};

TEST_F(ConvertSourceTest, SeesWhatIsThere) {
  folder_.Write("web/train-000000.tar", "");
  folder_.Write("rec/train.rec", "");
  folder_.Write("tf/train-00000-of-00002", "");
  folder_.Write("both/train-00000-of-00002", "");
  folder_.Write("both/validation-00000-of-00001", "");
  folder_.Write("folder/cat/x.jpg", "");
  folder_.Write("split/train/cat/x.jpg", "");
  folder_.Write("split/val/cat/x.jpg", "");
  folder_.Write("mixed/train/cat/x.jpg", "");
  folder_.Write("mixed/val/val-000000.tar", "");
  folder_.Write("ilsvrc/ILSVRC2012_img_train.tar", "");
  folder_.Write("ilsvrc/ILSVRC2012_img_val.tar", "");
  folder_.Write("none/readme.txt", "");
  EXPECT_EQ(Find("web"), "webdataset =web");
  EXPECT_EQ(Find("web/train-*.tar"), "webdataset =web/train-*.tar");
  EXPECT_EQ(Find("rec"), "recordio =rec");
  EXPECT_EQ(Find("tf"), "tfrecord =tf");
  EXPECT_EQ(Find("both"), "tfrecord train=both/train-*-of-* val=both/validation-*-of-*");
  EXPECT_EQ(Find("folder"), "imagefolder =folder");
  EXPECT_EQ(Find("split"), "imagefolder train=split/train val=split/val");
  EXPECT_THAT(Find("mixed"), HasSubstr("holds train/ as imagefolder and val/ as webdataset"));
  EXPECT_EQ(Find("ilsvrc"), "ilsvrc2012 train=ilsvrc val=ilsvrc");
  EXPECT_THAT(Find("none"), HasSubstr("holds no data set"));
  EXPECT_THAT(Find("absent"), HasSubstr("no folder or file"));
  EXPECT_THAT(Find("none/readme.txt"), HasSubstr("is a file, but no shard"));
  EXPECT_THAT(Find("tf", SourceForm::kRecordIo), HasSubstr("--from recordio: found tfrecord in"));
  EXPECT_EQ(Find("tf", SourceForm::kTfRecord), "tfrecord =tf");
}

TEST_F(ConvertSourceTest, ClassesAreChosenAndNumberedAnew) {
  for (const char* name : {"ant", "bee", "cat"}) folder_.Write(fmt::format("set/{}/x.jpg", name), "x");
  const SourcePart part{.where = At("set")};
  const auto set = OpenPart({}, part, {.classes = {"ant", "cat"}}).value();
  EXPECT_THAT(set->classes(), ElementsAre("ant", "cat"));
  ASSERT_EQ(set->size(), 2U);
  EXPECT_EQ(set->name(1), "cat/x.jpg");
  EXPECT_EQ(set->label(1), 1);
  EXPECT_THAT(OpenPart({}, part, {.classes = {"ant", "dog"}}).error().message,
              HasSubstr("has no class 'dog'; it has 3: ant, bee, cat"));
}

TEST_F(ConvertSourceTest, ValidationHasTheLabelsOfTraining) {
  for (const char* name : {"bee", "cat"}) folder_.Write(fmt::format("val/{}/x.jpg", name), "x");
  const SourcePart part{.name = "val", .where = At("val")};
  const std::vector<std::string> train = {"ant", "bee", "cat"};
  const auto set = OpenPart({}, part, {}, &train).value();
  EXPECT_EQ(set->classes(), train);
  EXPECT_EQ(set->label(0), 1);
  const std::vector<std::string> other = {"ant", "cat"};
  EXPECT_THAT(OpenPart({}, part, {}, &other).error().message, HasSubstr("has the class 'bee'"));
}

TEST_F(ConvertSourceTest, ListsOfClassesAreTextOrAFile) {
  const auto file = folder_.Write("classes.txt", "cat\r\n\n ant \ncat\n");
  EXPECT_THAT(ParseClasses("cat, ant").value(), ElementsAre("ant", "cat"));
  EXPECT_THAT(ParseClasses(file.string()).value(), ElementsAre("ant", "cat"));
  EXPECT_FALSE(ParseClasses(" , ").has_value());
}

}  // namespace
}  // namespace imgd::data
