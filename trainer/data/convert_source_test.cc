#include "trainer/data/convert_source.h"

#include <gmock/gmock.h>

#include "trainer/data/convert.h"
#include "trainer/data/subset.h"
#include "trainer/data/test_ilsvrc.h"
#include "trainer/data/test_images.h"
#include "trainer/data/test_tar.h"

namespace imgd::data {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

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
  folder_.Write("long/train/cat/x.jpg", "");
  folder_.Write("long/validation/cat/x.jpg", "");
  folder_.Write("alone/train/cat/x.jpg", "");
  folder_.Write("vehicles/train/x.jpg", "");
  folder_.Write("vehicles/bus/x.jpg", "");
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
  EXPECT_EQ(Find("long"), "imagefolder train=long/train val=long/validation");
  EXPECT_EQ(Find("alone"), "imagefolder train=alone/train");
  EXPECT_EQ(Find("vehicles"), "imagefolder =vehicles") << "a class that is called train";
  EXPECT_THAT(Find("mixed"), HasSubstr("holds train/ as imagefolder and val/ as webdataset"));
  EXPECT_EQ(Find("ilsvrc"), "ilsvrc2012 train=ilsvrc val=ilsvrc");
  EXPECT_THAT(Find("none"), HasSubstr("holds no data set"));
  EXPECT_THAT(Find("absent"), HasSubstr("no folder or file"));
  EXPECT_THAT(Find("none/readme.txt"), HasSubstr("is a file, but no shard"));
  EXPECT_THAT(Find("tf", SourceForm::kRecordIo), HasSubstr("--from recordio: found tfrecord in"));
  EXPECT_EQ(Find("tf", SourceForm::kTfRecord), "tfrecord =tf");
}

TEST_F(ConvertSourceTest, TheDevkitsWordsAreCarriedAlong) {
  WriteMiniIlsvrc(folder_);
  const auto source = FindSource(folder_.path(), std::nullopt).value();
  const auto train = OpenPart(source, source.parts.at(0), {}).value();
  const auto words = ElementsAre("tench, Tinca tinca", "sea lion", "crane");
  EXPECT_THAT(train->class_words(), words);
  EXPECT_THAT(OpenPart(source, source.parts.at(1), {}, &train->classes()).value()->class_words(), words);
  const SourceExtras some{.devkit = "", .classes = {"n01440764", "n03126707"}};
  EXPECT_THAT(OpenPart(source, source.parts.at(0), some).value()->class_words(),
              ElementsAre("tench, Tinca tinca", "crane"));
  // By shards.json, then by the records themselves.
  ASSERT_TRUE(WriteShards(*train, {.shards = 2}, At("web")));
  const auto web = OpenDataset(At("web")).value();
  EXPECT_THAT(web->class_words(), words);
  ASSERT_TRUE(WriteShards(*web, {.shards = 2, .form = OutputForm::kTfRecord}, At("tf")));
  std::filesystem::remove(At("tf/shards.json"));
  EXPECT_THAT(OpenDataset(At("tf")).value()->class_words(), words);
  // Neither a list of WNIDs nor a class folder has words.
  ASSERT_TRUE(WriteShards(*train, {.form = OutputForm::kImageFolder}, At("folder")));
  const auto folder = OpenDataset(At("folder")).value();
  EXPECT_THAT(folder->class_words(), IsEmpty());
  ASSERT_TRUE(WriteShards(*folder, {.shards = 1, .form = OutputForm::kTfRecord}, At("plain")));
  EXPECT_THAT(OpenDataset(At("plain")).value()->class_words(), IsEmpty());
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

TEST_F(ConvertSourceTest, OutMustNotLieInWhatIsRead) {
  folder_.Write("set/cat/x.jpg", "x");
  std::filesystem::create_directory_symlink(At("set"), At("link"));
  for (const char* out : {"set", "set/", "set/out", "set/cat/../out", "link/new/out"})
    EXPECT_THAT(CheckOutside(At("set"), At(out)).error().message, HasSubstr("which it is made from")) << out;
  for (const char* out : {"settled", "out", "set/../out"})
    EXPECT_TRUE(CheckOutside(At("set"), At(out)).has_value()) << out;
}

TEST_F(ConvertSourceTest, BoxesComeFromSeveralArchives) {
  const auto xml = [](int xmax) {
    return fmt::format(
        "<annotation><size><width>100</width><height>50</height></size><object><name>n1</name><bndbox>"
        "<xmin>0</xmin><ymin>0</ymin><xmax>{}</xmax><ymax>50</ymax></bndbox></object></annotation>",
        xmax);
  };
  const auto train = folder_.Write("train.tar", Tar({{"a.xml", xml(50)}, {"b.xml", xml(25)}})).string();
  const auto val = folder_.Write("val.tar", Tar({{"v.xml", xml(100)}})).string();
  const auto boxes = OpenBoxes({train, val}, {"n0", "n1"}).value();
  ASSERT_EQ(boxes.of("n1/b.JPEG").size(), 1U);
  EXPECT_EQ(boxes.of("n1/b.JPEG")[0], (ObjectBox{0, 0, 0.25F, 1, 1}));
  EXPECT_EQ(boxes.of("v.JPEG").size(), 1U);
  EXPECT_TRUE(boxes.of("w.JPEG").empty());
  EXPECT_THAT(boxes.id, testing::AllOf(HasSubstr("train.tar "), HasSubstr("val.tar ")));
  folder_.Write("val.tar", Tar({{"v.xml", xml(99)}}));
  EXPECT_NE(OpenBoxes({train, val}, {"n0", "n1"}).value().id, boxes.id);
}

TEST_F(ConvertSourceTest, ListsOfClassesAreTextOrAFile) {
  const auto file = folder_.Write("classes.txt", "cat\r\n\n ant \ncat\n");
  EXPECT_THAT(ParseClasses("cat, ant").value(), ElementsAre("ant", "cat"));
  EXPECT_THAT(ParseClasses(file.string()).value(), ElementsAre("ant", "cat"));
  EXPECT_FALSE(ParseClasses(" , ").has_value());
}

}  // namespace
}  // namespace imgd::data
