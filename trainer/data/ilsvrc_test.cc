#include "trainer/data/ilsvrc.h"

#include <gmock/gmock.h>

#include "trainer/data/bounding_boxes.h"
#include "trainer/data/shard_set.h"
#include "trainer/data/test_ilsvrc.h"

namespace imgd::data {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

class Ilsvrc : public testing::Test {
 protected:
  void SetUp() override { WriteMiniIlsvrc(folder_); }

  std::string Path(const std::string& name) const { return (folder_.path() / name).string(); }
  Result<std::unique_ptr<Dataset>> Open(IlsvrcPart part, const std::string& devkit = "") const {
    return OpenIlsvrc2012(folder_.path(), part, devkit);
  }

  TempFolder folder_;
};

std::vector<std::string> NamesAndClasses(const Dataset& set) {
  std::vector<std::string> names;
  for (size_t i = 0; i < set.size(); ++i)
    names.push_back(set.name(i) + " " + set.classes()[static_cast<size_t>(set.label(i))]);
  return names;
}

TEST_F(Ilsvrc, ValidationImagesHaveTheLabelsOfTrainingAndTheirOwnBytes) {
  const auto val = Open(IlsvrcPart::kVal);
  ASSERT_TRUE(val.has_value()) << val.error().message;
  EXPECT_THAT((*val)->classes(), ElementsAre("n01440764", "n02077923", "n03126707"));
  EXPECT_EQ((*val)->classes(), Open(IlsvrcPart::kTrain).value()->classes());
  std::vector<std::string> wanted;
  for (size_t i = 0; i < kMiniValWnids.size(); ++i)
    wanted.push_back(fmt::format("ILSVRC2012_val_{:08}.JPEG {}", i + 1, kMiniValWnids[i]));
  EXPECT_EQ(NamesAndClasses(**val), wanted);
  FileBuffer file;
  ASSERT_TRUE((*val)->Read(2, file));
  const std::string third = WavesJpeg(50, 40, {.components = 3}, 103);
  EXPECT_EQ(std::string(file.bytes().begin(), file.bytes().end()), third);
  EXPECT_EQ((*val)->FileBytes(2).value(), third.size());
  EXPECT_THAT((*val)->place(2), AllOf(HasSubstr("val_00000003.JPEG at byte "), HasSubstr("img_val.tar")));
}

TEST_F(Ilsvrc, ADevkitMayBeUnpackedOrAListOfWnids) {
  const auto wanted = NamesAndClasses(*Open(IlsvrcPart::kVal).value());
  folder_.Write("kit/ILSVRC2012_devkit_t12/data/meta.mat", MiniMeta());
  folder_.Write("kit/ILSVRC2012_devkit_t12/data/ILSVRC2012_validation_ground_truth.txt",
                "1\r\n2\n300\n300\n1\n2");
  EXPECT_EQ(NamesAndClasses(*Open(IlsvrcPart::kVal, Path("kit")).value()), wanted);
  std::string lines;
  for (const auto& wnid : kMiniValWnids) lines += wnid + "\n";
  folder_.Write("labels.txt", lines);
  EXPECT_EQ(NamesAndClasses(*Open(IlsvrcPart::kVal, Path("labels.txt")).value()), wanted);
  EXPECT_EQ(ReadIlsvrcDevkit(Path("ILSVRC2012_devkit_t12.tar.gz")).value().synsets[0].words,
            "tench, Tinca tinca");
}

TEST_F(Ilsvrc, SaysWhereLabelsAreToBeHadAndWhichArchiveItWants) {
  std::filesystem::remove(Path("ILSVRC2012_devkit_t12.tar.gz"));
  EXPECT_TRUE(Open(IlsvrcPart::kTrain).has_value());
  const auto val = Open(IlsvrcPart::kVal);
  EXPECT_EQ(val.error().code, ErrorCode::kNotFound);
  EXPECT_THAT(val.error().ToString(),
              AllOf(HasSubstr("there is no ILSVRC2012_devkit_t12.tar.gz beside it"), HasSubstr("--devkit")));
  EXPECT_THAT(OpenIlsvrc2012(Path("ILSVRC2012_img_train.tar"), IlsvrcPart::kVal).error().message,
              HasSubstr("is a training archive, where that of the validation images is asked for"));
  std::filesystem::remove(Path("ILSVRC2012_img_val.tar"));
  EXPECT_THAT(Open(IlsvrcPart::kVal).error().ToString(),
              AllOf(HasSubstr("has no ILSVRC2012_img_val.tar"), HasSubstr("image-net.org")));
}

TEST_F(Ilsvrc, WhatDoesNotFitTogetherIsNamed) {
  folder_.Write("short.txt", "n03126707\nn01440764\n");
  EXPECT_THAT(Open(IlsvrcPart::kVal, Path("short.txt")).error().message,
              AllOf(HasSubstr("has 6 images"), HasSubstr("says what 2 images show")));
  EXPECT_THAT(Open(IlsvrcPart::kTrain, Path("short.txt")).error().message,
              AllOf(HasSubstr("has 3 classes"), HasSubstr("not in the devkit: n02077923")));
  folder_.Write("bad.txt", "n03126707\ntench\n");
  EXPECT_THAT(Open(IlsvrcPart::kVal, Path("bad.txt")).error().ToString(),
              HasSubstr("bad.txt:2: found 'tench' where the WNID"));
  folder_.Write("kit/data/meta.mat", MiniMeta());
  folder_.Write("kit/data/ILSVRC2012_validation_ground_truth.txt", "1\n4\n");
  EXPECT_THAT(Open(IlsvrcPart::kVal, Path("kit")).error().ToString(),
              HasSubstr("ground_truth.txt:2: found '4' where the ILSVRC2012_ID of one of the 3 classes"));
  folder_.Write("kit/data/meta.mat", MatFile(MatStructs("synsets", {"WNID"}, {MatText("n01440764")})));
  EXPECT_THAT(Open(IlsvrcPart::kVal, Path("kit")).error().message,
              HasSubstr("have no field 'ILSVRC2012_ID'"));
  EXPECT_THAT(ReadIlsvrcDevkit(Path("ILSVRC2012_img_val.tar")).error().message,
              HasSubstr("is no development kit of ILSVRC2012"));
}

TEST_F(Ilsvrc, BoundingBoxesAreFoundByTheImagesNames) {
  const auto read = BoundingBoxes::Read(Path("ILSVRC2012_bbox_train_v2.tar.gz"));
  ASSERT_TRUE(read.has_value()) << read.error().message;
  const auto& train = *read;
  EXPECT_EQ(train.images(), 6U);
  EXPECT_EQ(train.boxes(), 6U);
  const auto* found = train.Find("n01440764/n01440764_17.JPEG");
  ASSERT_NE(found, nullptr);
  EXPECT_EQ(*found, (ImageBoxes{50, 40, {{5, 6, 45, 36, "n01440764"}}}));
  EXPECT_EQ(train.Find("n01440764_24"), nullptr);
  const auto val = BoundingBoxes::Read(Path("ILSVRC2012_bbox_val_v3.tgz")).value();
  EXPECT_NE(val.Find("ILSVRC2012_val_00000006.JPEG"), nullptr);
  // Tars of classes within one, not packed, with a file that is none.
  const std::string inner = Tar({{"a_1.xml", MiniAnnotation("%s", "a")}, {"a_2.xml", "<annotation>"}});
  const auto nested = BoundingBoxes::Read(folder_.Write("n.tar", Tar({{"a.tar", inner}}))).value();
  EXPECT_NE(nested.Find("a_1"), nullptr);
  EXPECT_EQ(nested.bad_files(), 1U);
  EXPECT_THAT(nested.bad_examples(), ElementsAre("a_2.xml: no good XML: it ends within an element"));
  EXPECT_THAT(BoundingBoxes::Read(folder_.Write("e.tar", Tar({{"a.xml", "?"}}))).error().message,
              HasSubstr("has no annotation: 1 XML files, none of which can be read"));
}

TEST(Annotation, TurnsAndCutsBoxesAndRefusesWhatIsNone) {
  const auto with = [](const std::string& objects) {
    return ParseAnnotation(
        "<?xml version='1.0'?><!-- <size> --><annotation><size><width>100</width><height>50"
        "</height><depth/></size>" +
        objects + "</annotation>");
  };
  const auto box = [](const std::string& xmin, int ymin, int xmax, int ymax) {
    return fmt::format(
        "<object a='b'><name> n1 </name><bndbox><xmin>{}</xmin><ymin>{}</ymin><xmax>{}</xmax><ymax>"
        "{}</ymax></bndbox></object>",
        xmin, ymin, xmax, ymax);
  };
  EXPECT_THAT(with(box("90", 5, 10, 60) + box("200", 0, 210, 9) + box("1.6", 0, 9, 9)).value().boxes,
              ElementsAre(BoundingBox{10, 5, 90, 50, "n1"}, BoundingBox{2, 0, 9, 9, "n1"}));
  EXPECT_THAT(with("<object><name>n1</name></object>").value().boxes, IsEmpty());
  EXPECT_THAT(with(box("nan", 0, 1, 1)).error().message,
              HasSubstr("annotation/object/bndbox/xmin: found 'nan' where a number of pixels is expected"));
  EXPECT_THAT(with("</object>").error().message, HasSubstr("</object> where it was not opened"));
  EXPECT_THAT(with("<!-- ").error().message, HasSubstr("ends within a comment"));
  EXPECT_THAT(ParseAnnotation("<annotation></annotation>").error().message, HasSubstr("no annotation/size"));
  std::string deep;
  for (int i = 0; i < 100; ++i) deep += "<a>";
  EXPECT_THAT(ParseAnnotation(deep).error().message, HasSubstr("more than 16 deep"));
  std::string many;
  for (int i = 0; i < 10'001; ++i) many += "<object><bndbox></bndbox></object>";
  EXPECT_THAT(with(many).error().message, HasSubstr("more than 10000 objects"));
}

TEST(NamedClasses, AreRankedOverAllShards) {
  const TempFolder folder;
  folder.Write("s-0.tar", Tar({{"a.jpg", "x"},
                               {"a.cls", "n03126707\n"},
                               {"b.jpg", "x"},
                               {"b.json", R"({"synset": "n02077923"})"}}));
  folder.Write("s-1.tar", Tar({{"c.jpg", "x"}, {"c.json", R"({"label": "n01440764"})"}}));
  const auto set = ShardSet::Open(folder.path()).value();
  EXPECT_THAT(NamesAndClasses(*set), ElementsAre("a n03126707", "b n02077923", "c n01440764"));
  EXPECT_THAT(set->classes(), ElementsAre("n01440764", "n02077923", "n03126707"));
  folder.Write("s-2.tar", Tar({{"d.jpg", "x"}, {"d.cls", "1"}}));
  EXPECT_THAT(ShardSet::Open(folder.path()).error().message,
              HasSubstr("some of the shards number the classes"));
  const auto mixed =
      folder.Write("m.tar", Tar({{"a.jpg", "x"}, {"a.cls", "1"}, {"b.jpg", "x"}, {"b.cls", "n03126707"}}));
  EXPECT_THAT(ShardSet::Open(mixed).error().message,
              HasSubstr("'b.jpg' has its class by name, but the images before it by number"));
  const auto both =
      folder.Write("n.tar", Tar({{"a.jpg", "x"}, {"a.json", R"({"label": 1, "wnid": "n03126707"})"}}));
  EXPECT_THAT(ShardSet::Open(both).value()->classes(), ElementsAre("0", "n03126707"));
}

}  // namespace
}  // namespace imgd::data
