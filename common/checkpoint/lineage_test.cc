#include "common/checkpoint/lineage.h"

#include <gmock/gmock.h>

namespace imgd {
namespace {

using testing::HasSubstr;

Lineage Example() {
  Lineage out{.job_id = 12, .job = "rn50", .generation = 3, .step = 500, .epoch = 2.5, .world_size = 8};
  out.model = "resnet50";
  out.classes = 1000;
  out.blurpool = true;
  out.train = {"/data/train", 1281167, 1000, "sha256:ab"};
  out.version = "0.1.0";
  out.commit = "0123456789ab";
  out.torch = "2.13.0";
  out.settings = "cd";
  out.resumed_from = "/ckpt/g2/step400";
  out.configuration = "name: rn50\n";
  out.written_us = 1'700'000'000'000'000;
  return out;
}

TEST(Lineage, IsReadBackAsItWasWritten) {
  auto lineage = Example();
  EXPECT_EQ(ToJson(*LineageFromJson(ToJson(lineage))), ToJson(lineage));
  EXPECT_FALSE(LineageFromJson(ToJson(lineage))->val.has_value());
  lineage.val = Lineage::Data{"/data/val", 50000, 1000, "sha256:ef"};
  lineage.is_average = true;
  const auto back = LineageFromJson(ToJson(lineage));
  ASSERT_TRUE(back.has_value()) << back.error().message;
  EXPECT_EQ(back->val->checksum, "sha256:ef");
  EXPECT_EQ(back->job_id, 12U);
  EXPECT_TRUE(back->blurpool);
  EXPECT_TRUE(back->is_average);
  EXPECT_EQ(back->configuration, "name: rn50\n");
}

TEST(Lineage, WhatIsNoneIsAnError) {
  for (const char* text : {"", "[]", "{}", R"({"format": 2})", R"({"format": 1})", R"({"format": "1"})"}) {
    const auto lineage = LineageFromJson(text);
    ASSERT_FALSE(lineage.has_value()) << text;
    EXPECT_EQ(lineage.error().code, ErrorCode::kDataLoss);
  }
}

TEST(Lineage, TheModelOfWeightsIsSaidInTheirMetadataAndMadeAJobOfAgain) {
  const auto metadata = ModelMetadata(Example());
  EXPECT_EQ(metadata.at("model"), "resnet50");
  EXPECT_EQ(metadata.at("model.blurpool"), "true");
  EXPECT_EQ(metadata.at("model.deep_stem"), "false");
  EXPECT_EQ(ModelYaml(metadata), "model: {name: resnet50, blurpool: true}\n");
  const auto spec = ParseJobFile("name: x\ndata: {train: /t}\n" + ModelYaml(metadata), "x");
  ASSERT_TRUE(spec.has_value()) << spec.error().front().message;
  EXPECT_TRUE(spec->model.blurpool);
  EXPECT_TRUE(CheckModel(metadata, spec->model).has_value());
}

TEST(Lineage, WhatImagesWereNormalisedByIsSaidToo) {
  Lineage lineage = Example();
  EXPECT_EQ(NormalisationIn(ModelMetadata(lineage)), JobSpec::Normalisation()) << "ImageNet's";
  lineage.normalisation = {.mean = {0.5, 0.25, 0.1}, .std = {0.5, 1, 0.3}};
  EXPECT_EQ(ModelMetadata(lineage).at("data.mean"), "[0.5, 0.25, 0.1]");
  EXPECT_EQ(NormalisationIn(ModelMetadata(lineage)), lineage.normalisation);
  EXPECT_EQ(LineageFromJson(ToJson(lineage))->normalisation, lineage.normalisation);
  EXPECT_EQ(NormalisationIn({}), std::nullopt);
  for (const char* text : {"", "0.5", "[1, 2]", "[1, 2, \"x\"]", "[0, 1, 1]"}) {
    EXPECT_EQ(NormalisationIn({{"data.mean", "[0, 0, 0]"}, {"data.std", text}}), std::nullopt) << text;
  }
}

TEST(Lineage, MetadataOfOthersMakeNoYamlOfTheirOwn) {
  EXPECT_EQ(ModelYaml({}), "");
  EXPECT_EQ(ModelYaml({{"model", "x}\nseed: 1\n"}}), "");
  EXPECT_EQ(ModelYaml({{"model", "resnet18"}, {"model.blurpool", "yes}"}}), "model: {name: resnet18}\n");
}

TEST(Lineage, WeightsOfAnotherModelAreToldApartThoughTheirTensorsAreTheSame) {
  JobSpec::Model model;
  model.name = "resnet50";
  EXPECT_TRUE(CheckModel({}, model).has_value()) << "a file that says nothing";
  EXPECT_TRUE(CheckModel({{"model", "resnet50"}}, model).has_value()) << "a file of an older version";
  const auto refused = CheckModel(ModelMetadata(Example()), model);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(refused.error().message,
              HasSubstr("it was trained with model.blurpool: true, and the model has false"));
  EXPECT_THAT(CheckModel({{"model", "resnet18"}}, model).error().message,
              HasSubstr("it is of resnet18, and the model is resnet50"));
}

}  // namespace
}  // namespace imgd
