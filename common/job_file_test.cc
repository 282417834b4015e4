#include "common/job_file.h"

#include <gmock/gmock.h>

#include "common/yaml.h"

namespace imgd {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

constexpr const char* kGood = R"(name: rn50
data: {train: /data/train, val: /data/val}
resources: {nodes: 2}
train:
  global_batch: 512
)";

std::vector<std::string> ErrorsOf(std::string_view text) {
  std::vector<std::string> out;
  const auto spec = ParseJobFile(text, "job.yaml");
  if (spec) return out;
  for (const auto& error : spec.error()) out.push_back(error.ToString());
  return out;
}

TEST(JobFile, FillsInDefaults) {
  const auto spec = ParseJobFile(kGood, "job.yaml");
  ASSERT_TRUE(spec.has_value());
  EXPECT_EQ(spec->WorldSize(), 2);
  EXPECT_EQ(spec->train.global_batch, 512);
  EXPECT_EQ(spec->data.val_size, 224);
  EXPECT_EQ(spec->data.val_resize, 256);
  EXPECT_EQ(spec->model.name, "resnet50");
}

TEST(JobFile, SaysWhereFiguresAreWritten) {
  const std::string job = "name: a\ndata: {train: /x}\n";
  const auto usual = ParseJobFile(job, "job.yaml");
  ASSERT_TRUE(usual.has_value());
  EXPECT_TRUE(usual->report.tensorboard);
  EXPECT_FALSE(usual->report.json_lines);
  EXPECT_EQ(usual->report.dir, "");
  const auto other =
      ParseJobFile(job + "report: {tensorboard: false, json_lines: true, dir: /l}\n", "job.yaml");
  ASSERT_TRUE(other.has_value());
  EXPECT_FALSE(other->report.tensorboard);
  EXPECT_TRUE(other->report.json_lines);
  EXPECT_EQ(other->report.dir, "/l");
  EXPECT_THAT(ErrorsOf(job + "report: {dir: logs}\n"),
              ElementsAre(HasSubstr("report.dir: 'logs' is relative")));
}

TEST(JobFile, CheckpointsMayGoToABucketAndFiguresNot) {
  const std::string job = "name: a\ndata: {train: /x}\n";
  const auto spec = ParseJobFile(job + "checkpoint: {dir: 's3://bucket/a b'}\n", "job.yaml");
  ASSERT_TRUE(spec.has_value());
  EXPECT_EQ(spec->checkpoint.dir, "s3://bucket/a b");
  EXPECT_THAT(ErrorsOf(job + "checkpoint: {dir: 'https://host/x'}\n"),
              ElementsAre(AllOf(HasSubstr("checkpoint.dir: nothing can be written to 'https://host/x'"),
                                HasSubstr("s3://bucket/prefix"))));
  EXPECT_THAT(ErrorsOf(job + "checkpoint: {dir: 's3://'}\n"),
              ElementsAre(HasSubstr("checkpoint.dir: no URL")));
  EXPECT_THAT(ErrorsOf(job + "checkpoint: {dir: s3}\n"), ElementsAre(HasSubstr("is relative")));
  EXPECT_THAT(ErrorsOf(job + "report: {dir: 's3://bucket/x'}\n"), ElementsAre(HasSubstr("is relative")));
}

TEST(JobFile, NamesPlaceFieldAndNearestKeyOfAMisspeltOne) {
  EXPECT_THAT(ErrorsOf("name: a\ndata:\n  train: /x\n  imge_size: 64\n"),
              ElementsAre("job.yaml:4:3: data.imge_size: unknown key (did you mean 'image_size'?)"));
}

TEST(JobFile, SaysWhatIsAllowed) {
  EXPECT_THAT(ErrorsOf("name: a\ndata: {train: /x}\nmodel: {name: resnet81}\n"),
              ElementsAre(AllOf(
                  HasSubstr("job.yaml:3:15: model.name: found 'resnet81'; allowed: resnet18, resnet34, "),
                  HasSubstr("vit_small_patch16 (did you mean 'resnet18'?)"))));
  EXPECT_THAT(
      ErrorsOf("name: a\ndata: {train: /x}\ntrain: {epochs: 0}\n"),
      ElementsAre(HasSubstr("job.yaml:3:17: train.epochs: found '0' where a whole number from 1 to")));
}

TEST(JobFile, ReportsEveryErrorInTheFilesOrder) {
  const auto errors = ErrorsOf("name: 'a b'\ndata: {train: /x, flip: maybe}\nresources: 3\n");
  ASSERT_THAT(errors, SizeIs(3));
  EXPECT_THAT(errors[0], HasSubstr("job.yaml:1:7: name: found 'a b'"));
  EXPECT_THAT(errors[1], HasSubstr("job.yaml:2:25: data.flip: found 'maybe' where true or false"));
  EXPECT_THAT(errors[2], HasSubstr("job.yaml:3:12: resources: found '3' where a mapping"));
}

TEST(JobFile, RefusesWhatDoesNotFitTogether) {
  EXPECT_THAT(ErrorsOf("name: a\ndata: {train: /x}\nresources: {nodes: 3}\ntrain: {global_batch: 256}\n"),
              ElementsAre(HasSubstr("256 images can't be divided among 3 ranks")));
  EXPECT_THAT(ErrorsOf("name: a\ndata: {train: /x}\ncheckpoint: {dir: ckpt}\n"),
              ElementsAre(HasSubstr("absolute")));
}

TEST(JobFile, ATimeLimitIsADuration) {
  EXPECT_EQ(ParseJobFile("name: a\ndata: {train: /x}\n", "f")->time_limit_ms, 0);
  EXPECT_EQ(ParseJobFile("name: a\ndata: {train: /x}\ntime_limit: 36h\n", "f")->time_limit_ms,
            36 * 3'600'000);
  EXPECT_THAT(ErrorsOf("name: a\ndata: {train: /x}\ntime_limit: 0\n"),
              ElementsAre(HasSubstr("time_limit: must be at least 1s")));
}

TEST(JobFile, ADurationThatIsNoneHasOneError) {
  const auto errors = [](const std::string& line) {
    const auto spec = ParseJobFile("name: a\ndata: {train: /x}\n" + line + "\n", "job.yaml");
    std::string out;
    if (spec) return out;
    for (const auto& error : spec.error()) out += error.ToString() + "\n";
    return out;
  };
  EXPECT_EQ(errors("time_limit: 1y"),
            "job.yaml:3:13: time_limit: found '1y' where a duration like 500ms, 90s, 15m, 2h or 1d is "
            "expected\n");
  EXPECT_EQ(errors("time_limit: 99999999999999999d"),
            "job.yaml:3:13: time_limit: found '99999999999999999d'; at most 3650d is allowed\n");
  EXPECT_THAT(errors("time_limit: 0"), HasSubstr("must be at least 1s"));
  EXPECT_EQ(
      errors("resources: {nodes: {min: 1, max: 2}, resize_interval: 1y}"),
      "job.yaml:3:55: resources.resize_interval: found '1y' where a duration like 500ms, 90s, 15m, 2h or "
      "1d is expected\n");
}

TEST(JobFile, LabelsThatNoNodeCouldSatisfyAreRefused) {
  const auto errors = [](const std::string& resources) {
    const auto spec =
        ParseJobFile("name: a\ndata: {train: /x}\nresources: {" + resources + "}\n", "job.yaml");
    return spec ? "" : spec.error().front().ToString();
  };
  EXPECT_EQ(
      errors("labels: {zone: a}, not_labels: {zone: a}"),
      "job.yaml:3:51: resources.not_labels.zone: refuses zone=a, which resources.labels asks for: no node "
      "could do both");
  EXPECT_THAT(errors("labels: {zone: a|b}, not_labels: {zone: b|a|c}"), HasSubstr("refuses zone=a|b"));
  EXPECT_EQ(errors("labels: {zone: a|b}, not_labels: {zone: a}"), "");
  EXPECT_EQ(errors("labels: {zone: a}, not_labels: {rack: a}"), "");
}

TEST(JobFile, SecretsAreNamesEachOnce) {
  const auto job = ParseJobFile("name: a\ncommand: {run: [x]}\nsecrets: [s3-team, wandb]\n", "job.yaml");
  ASSERT_TRUE(job.has_value());
  EXPECT_THAT(job->secrets, ElementsAre("s3-team", "wandb"));
  EXPECT_THAT(ErrorsOf("name: a\ndata: {train: /x}\nsecrets: [../x]\n"),
              ElementsAre(HasSubstr("job.yaml:3:10: secrets: found '../x'")));
  EXPECT_THAT(ErrorsOf("name: a\ndata: {train: /x}\nsecrets: [x, x]\n"),
              Contains(HasSubstr("'x' is named twice")));
}

TEST(JobFile, WhatAGangAsksOfItsNodes) {
  const auto with = [](const std::string& resources) {
    return "name: a\ndata: {train: /x}\nresources: {" + resources + "}\n";
  };
  const auto plain = ParseJobFile(with("nodes: 2"), "f");
  ASSERT_TRUE(plain.has_value());
  EXPECT_FALSE(plain->resources.gpu);
  const auto spec =
      ParseJobFile(with("nodes: 2, gpu: {count: 8, model: H100|A100, memory_gib: 40}, whole_nodes: "
                        "true, labels: {zone: a|b}, not_labels: {capacity: spot}"),
                   "f");
  ASSERT_TRUE(spec.has_value()) << spec.error().front().ToString();
  const auto& wanted = spec->resources;
  EXPECT_EQ(wanted.ranks_per_node, 8);
  EXPECT_TRUE(wanted.gpu && wanted.whole_nodes);
  EXPECT_THAT(wanted.gpu_models, ElementsAre("H100", "A100"));
  EXPECT_EQ(wanted.gpu_memory_gib, 40);
  EXPECT_THAT(wanted.labels.at("zone"), ElementsAre("a", "b"));
  EXPECT_THAT(wanted.not_labels.at("capacity"), ElementsAre("spot"));
  EXPECT_TRUE(ParseJobFile(with("gpu: none"), "f")->resources.cpu);
  EXPECT_FALSE(ParseJobFile(with("gpu: none"), "f")->resources.gpu);
  EXPECT_THAT(ErrorsOf(with("gpu: 8")), ElementsAre(HasSubstr("resources.gpu: found '8'; allowed: none")));
  EXPECT_THAT(ErrorsOf(with("gpu: none") + "train: {device: cuda}\n"),
              ElementsAre(HasSubstr("train.device: is cuda where resources.gpu is none")));
  EXPECT_THAT(ParseJobFile(with("capacity: spot"), "f")->resources.labels.at("capacity"),
              ElementsAre("spot"));
  EXPECT_THAT(ParseJobFile(with("capacity: on_demand"), "f")->resources.not_labels.at("capacity"),
              ElementsAre("spot"));
  EXPECT_THAT(ParseJobFile(with("capacity: any"), "f")->resources.labels, testing::IsEmpty());
  EXPECT_THAT(ErrorsOf(with("capacity: spot, labels: {capacity: spot}")),
              ElementsAre(HasSubstr("resources.capacity: is about the label")));
  EXPECT_THAT(ParseJobFile(with("gpu: {model: any}"), "f")->resources.gpu_models, testing::IsEmpty());

  EXPECT_THAT(ErrorsOf(with("ranks_per_node: 2, gpu: {count: 2}")),
              ElementsAre(HasSubstr("resources.gpu.count: is ranks_per_node by another name")));
  EXPECT_THAT(ErrorsOf(with("gpu: {model: '|H100'}")), ElementsAre(HasSubstr("words of the GPU's name")));
  EXPECT_THAT(ErrorsOf(with("labels: {zone: 'a b'}")),
              ElementsAre(HasSubstr("job.yaml:3:28: resources.labels.zone: 'a b' is no value")));
  EXPECT_THAT(ErrorsOf(with("labels: {'z!': a}")), ElementsAre(HasSubstr("'z!' is no name")));
  EXPECT_THAT(ErrorsOf(with("gpu: {}") + "train: {device: cpu}\n"),
              ElementsAre(HasSubstr("train.device: is cpu where resources.gpu asks for GPUs")));
}

TEST(JobFile, TheElasticRuleIsForTheRanksOfTheFile) {
  const auto with = [](const std::string& rest) {
    return "name: a\ndata: {train: /x, segments: 4}\nresources: {nodes: 3, ranks_per_node: 2}\n" + rest;
  };
  EXPECT_EQ(ParseJobFile(with("train: {global_batch: 24}\n"), "f")->elastic.rule, "");
  const auto spec = ParseJobFile(with("train: {global_batch: 24}\nelastic: {rule: linear_scaling}\n"), "f");
  ASSERT_TRUE(spec.has_value()) << spec.error().front().ToString();
  EXPECT_EQ(spec->elastic.ranks, 6);
  EXPECT_THAT(ErrorsOf(with("train: {global_batch: 24}\nelastic: {ranks: 8}\n")),
              ElementsAre(HasSubstr("elastic.rule: missing; keep_global_batch or linear_scaling")));
  EXPECT_THAT(ErrorsOf(with("train: {global_batch: 24}\nelastic: {rule: linear_scaling, ranks: 5}\n")),
              ElementsAre(HasSubstr("train.global_batch: 24 images can't be divided among 5 ranks")));
  EXPECT_THAT(
      ErrorsOf(with("train: {global_batch: 24}\nelastic: {rule: linear_scaling, ranks: 12}\n")),
      ElementsAre(HasSubstr("2 images for each of 12 ranks (elastic) are no multiple of data.segments, 4")));
}

TEST(JobFile, AGangMayHaveFewerOrMoreNodes) {
  const auto with = [](const std::string& resources, const std::string& rest = "") {
    return "name: a\ndata: {train: /x}\nresources: {" + resources + "}\n" + rest;
  };
  const auto fixed = ParseJobFile(with("nodes: 4"), "f");
  ASSERT_TRUE(fixed.has_value());
  EXPECT_FALSE(fixed->IsElastic());
  EXPECT_EQ(fixed->resources.max_nodes, 4);
  EXPECT_EQ(ParseJobFile("name: a\ndata: {train: /x}\n", "f")->WorldSize(), 1);

  const auto spec =
      ParseJobFile(with("nodes: {min: 2, max: 8}, ranks_per_node: 4, resize_interval: 15m"), "f");
  ASSERT_TRUE(spec.has_value()) << spec.error().front().ToString();
  EXPECT_TRUE(spec->IsElastic());
  EXPECT_EQ(spec->resources.nodes, 2);
  EXPECT_EQ(spec->resources.max_nodes, 8);
  EXPECT_EQ(spec->resources.resize_interval_ms, 900'000);
  EXPECT_EQ(spec->elastic.rule, "keep_global_batch") << "what is learnt does not hang on what is free";
  EXPECT_EQ(spec->elastic.ranks, 32) << "a rank's part is no larger on fewer nodes";
  EXPECT_EQ(ParseJobFile(with("nodes: {min: 1, max: 2}"), "f")->resources.resize_interval_ms, 600'000);

  EXPECT_THAT(ErrorsOf(with("nodes: {min: 3, max: 2}")),
              ElementsAre(HasSubstr("resources.nodes.max: 2 is less than min, 3")));
  EXPECT_THAT(ErrorsOf(with("nodes: {min: 0, max: 2}")),
              ElementsAre(HasSubstr("resources.nodes.min: found '0' where a whole number from 1 to 100000")));
  EXPECT_THAT(ErrorsOf(with("nodes: {min: 2, max: 4294967295}")),
              ElementsAre(HasSubstr("resources.nodes.max: found '4294967295' where a whole number from 1")));
  EXPECT_THAT(ErrorsOf(with("nodes: {max: 2}")), ElementsAre(HasSubstr("resources.nodes.min: missing")));
  EXPECT_THAT(ErrorsOf(with("nodes: {min: 1, maximum: 2}")),
              ElementsAre(HasSubstr("resources.nodes.max: missing"),
                          HasSubstr("resources.nodes.maximum: unknown key")));
  EXPECT_THAT(ErrorsOf(with("nodes: 2, resize_interval: 5m")),
              ElementsAre(HasSubstr("resources.resize_interval: is for a gang that may grow and shrink")));
  EXPECT_THAT(ErrorsOf(with("nodes: {min: 1, max: 2}, resize_interval: 0")),
              ElementsAre(HasSubstr("resources.resize_interval: must be at least 1s")));
  EXPECT_THAT(
      ErrorsOf(with("nodes: {min: 2, max: 6}")),
      ElementsAre(HasSubstr("256 images can't be divided among 6 ranks, the most that resources.nodes")));
  EXPECT_THAT(ErrorsOf(with("nodes: {min: 2, max: 6}", "elastic: {rule: linear_scaling}\n")),
              Contains(HasSubstr("elastic.ranks: missing; how many ranks train.global_batch")));
  EXPECT_TRUE(
      ParseJobFile(with("nodes: {min: 2, max: 6}", "elastic: {rule: linear_scaling, ranks: 4}\n"), "f"));
}

std::string WithPhases(const char* phases, const char* train = "{}") {
  return fmt::format("name: a\ndata: {{train: /x, min_scale: 0.25}}\ntrain: {}\nphases: {}\n", train, phases);
}

TEST(JobFile, TheDecoderIsOneOfTwoAndNvjpegNeedsAGpu) {
  EXPECT_EQ(ParseJobFile(kGood, "job.yaml")->data.decoder, "cpu");
  EXPECT_EQ(ParseJobFile("name: a\ndata: {train: /x, decoder: nvjpeg}\n", "job.yaml")->data.decoder,
            "nvjpeg");
  EXPECT_THAT(
      ErrorsOf("name: a\ndata: {train: /x, decoder: nvjpg}\n"),
      ElementsAre(
          "job.yaml:2:28: data.decoder: found 'nvjpg'; allowed: cpu, nvjpeg (did you mean 'nvjpeg'?)"));
  EXPECT_THAT(ErrorsOf("name: a\ndata: {train: /x, decoder: nvjpeg}\ntrain: {device: cpu}\n"),
              ElementsAre("job.yaml:3:17: train.device: is cpu, but data.decoder: nvjpeg needs a GPU (set "
                          "data.decoder: cpu)"));
}

TEST(JobFile, ImagesAreNormalisedByThreeNumbersEach) {
  EXPECT_EQ(ParseJobFile(kGood, "job.yaml")->data.normalisation, JobSpec::Normalisation());
  const auto spec = ParseJobFile("name: a\ndata: {train: /x, mean: [0.5, 0, 1], std: [0.5, 0.25, 1]}\n", "f");
  ASSERT_TRUE(spec.has_value());
  EXPECT_EQ(spec->data.normalisation, (JobSpec::Normalisation{{0.5, 0, 1}, {0.5, 0.25, 1}}));
  EXPECT_THAT(ErrorsOf("name: a\ndata: {train: /x, mean: [0.5, 0.5], std: [0, 1, 1]}\n"),
              ElementsAre(HasSubstr("data.mean: has 2 numbers where 3 are expected, for red, green and blue"),
                          HasSubstr("data.std: found '0' in the list where a number from 0.001 to 1")));
  EXPECT_THAT(ErrorsOf("name: a\ndata: {train: /x, mean: [123.7, 116.3, 103.5]}\n"),
              ElementsAre(HasSubstr("data.mean: found '123.7' in the list where a number from 0 to 1")));
}

TEST(JobFile, PhasesTakeWhatTheyDoNotSayFromTheRest) {
  const auto spec = ParseJobFile(
      WithPhases(
          "[{epochs: 3, image_size: 128, global_batch: 512}, {until: 5, min_scale: 0.5}, {epochs: 1}]"),
      "f");
  ASSERT_TRUE(spec.has_value());
  EXPECT_EQ(spec->train.epochs, 6);
  ASSERT_THAT(spec->phases, SizeIs(3));
  EXPECT_EQ(spec->phases[0].until, 3);
  EXPECT_EQ(spec->phases[0].global_batch, 512);
  EXPECT_EQ(spec->phases[0].min_scale, 0.25);
  EXPECT_EQ(spec->phases[1].until, 5);
  EXPECT_EQ(spec->phases[1].image_size, 224);
  EXPECT_EQ(spec->phases[2].until, 6);
  EXPECT_EQ(ParseJobFile(WithPhases("[{epochs: 3}, {image_size: 96}]", "{epochs: 7}"), "f")->phases[1].until,
            7);
}

TEST(JobFile, PhasesThatDoNotFitTogetherAreRefusedAtTheirPlace) {
  EXPECT_THAT(ErrorsOf(WithPhases("[{epochs: 3}, {until: 3}]")),
              ElementsAre("job.yaml:4:31: phases[1].until: 3 is no later than the phase's start, 3"));
  EXPECT_THAT(ErrorsOf(WithPhases("[{epochs: 3}]", "{epochs: 7}")),
              ElementsAre(HasSubstr("they end after epoch 3, but train.epochs is 7")));
  EXPECT_THAT(ErrorsOf(WithPhases("[{image_size: 32}, {epochs: 3}]")), ElementsAre(HasSubstr("missing")));
  EXPECT_THAT(ErrorsOf(WithPhases("[{epochs: 1, size: 3}]")),
              ElementsAre(HasSubstr("phases[0].size: unknown key")));
  EXPECT_THAT(ErrorsOf(WithPhases("3")), ElementsAre(HasSubstr("found '3' where a list is expected")));
  EXPECT_THAT(ErrorsOf(WithPhases("[3]")), ElementsAre(HasSubstr("found '3' in the list where a mapping")));
}

TEST(JobFile, RandAugmentsSettingsNeedRandAugment) {
  EXPECT_THAT(ErrorsOf("name: a\ndata: {train: /x}\naugment: {policy: trivialaugment, ops: 3}\n"),
              ElementsAre(HasSubstr("augment.ops: is a setting of randaugment alone")));
}

TEST(JobFile, MissingNameAndData) {
  EXPECT_THAT(ErrorsOf(""), ElementsAre(HasSubstr("name: missing"), HasSubstr("data.train: missing")));
}

TEST(JobFile, BrokenYamlHasAPlace) {
  EXPECT_THAT(ErrorsOf("name: [a\n"), ElementsAre(HasSubstr("job.yaml:2:1: not valid YAML")));
  EXPECT_THAT(ErrorsOf("- a\n"), ElementsAre(HasSubstr("found a list where a mapping")));
  EXPECT_THAT(ErrorsOf("name: a\nname: b\ndata: {train: /x}\n"),
              ElementsAre(HasSubstr("job.yaml:2:1: 'name' is set twice")));
}

TEST(JobFile, AKeySetTwiceIsNamedHoweverDeepItIs) {
  EXPECT_THAT(ErrorsOf("name: a\ndata: {train: /x}\ntrain: {epochs: 1, epochs: 2}\n"),
              ElementsAre(HasSubstr("job.yaml:3:20: 'train.epochs' is set twice")));
  EXPECT_THAT(
      ErrorsOf("name: a\ndata: {train: /x}\nphases:\n  - epochs: 2\n    image_size: 64\n    epochs: 3\n"),
      Contains(HasSubstr("job.yaml:6:5: 'phases[0].epochs' is set twice")));
}

TEST(JobFile, OfManyErrorsAHundredAreToldAndHowManyMoreThereAre) {
  std::string text = "name: a\ndata: {train: /x}\ncommand:\n  run: [x]\n  env: {";
  for (int i = 0; i < 20'000; ++i) text += fmt::format("A{}: 1, []: 2, ", i);
  const auto errors = ErrorsOf(text + "}\n");
  ASSERT_THAT(errors, SizeIs(101));
  EXPECT_THAT(errors.back(), HasSubstr("more errors"));
  EXPECT_THAT(ErrorsOf("name: a\ndata: {train: /x}\nsecrets: [s" + std::string(300'000, ',') + "]\n"),
              Not(IsEmpty()));
}

TEST(JobFile, AQuoteThatIsNeverClosedIsShown) {
  for (const char* quote : {"\"", "'"}) {
    EXPECT_THAT(ErrorsOf(fmt::format("name: a\ndata:\n  train: {}/x\n", quote)),
                ElementsAre(HasSubstr("job.yaml:3:10: not valid YAML: the quote")));
    EXPECT_THAT(ErrorsOf(fmt::format("name: a\ndata: {{train: {0}/x{0}}}\nproject: {0}p{0}\n", quote)),
                IsEmpty());
  }
  EXPECT_THAT(ErrorsOf("name: a\ndata: {train: /x}\nproject: 'it''s\n"),
              ElementsAre(HasSubstr("3:10: not valid YAML")));
  EXPECT_THAT(ErrorsOf("name: a\ndata:\n  train: \"/\xC3\xA4\\\"\"\n"), IsEmpty());
}

TEST(JobFile, ATabAndTooDeepNestingAreCalledSo) {
  EXPECT_THAT(ErrorsOf("name: a\ntrain:\n\tepochs: 3\n"),
              ElementsAre(HasSubstr("job.yaml:3:1: not valid YAML: a tab indents this line")));
  EXPECT_THAT(ErrorsOf("name: " + std::string(20'000, '[')), ElementsAre(HasSubstr("nested too deeply")));
}

TEST(JobFile, ASecondDocumentIsRefusedAtItsLine) {
  EXPECT_THAT(ErrorsOf("name: a\ndata: {train: /x}\n---\nname: b\n"),
              ElementsAre(HasSubstr("job.yaml:3:1: a second document begins here")));
  EXPECT_THAT(ErrorsOf("{name: a, data: {train: /x}}\nmodel: {}\n"),
              ElementsAre(HasSubstr("job.yaml:2:1: a second document begins here")))
      << "also where nothing marks it";
  EXPECT_THAT(ErrorsOf("---\nname: a\ndata: {train: /x}\n...\n"), SizeIs(0)) << "one document, well marked";
}

TEST(JobFile, BytesThatAreNoUtf8HaveAPlace) {
  EXPECT_THAT(ErrorsOf("name: a\ndata: {train: \"/\xC3\xA9\xFF/y\"}\n"),
              ElementsAre(HasSubstr("job.yaml:2:18: found the byte 0xFF, which is no UTF-8")));
}

TEST(YamlSet, SetsAndMakesFields) {
  const auto text = YamlSet("name: a\ntrain: {epochs: 3}\n", "train.epochs=5");
  ASSERT_TRUE(text.has_value());
  EXPECT_THAT(*text, HasSubstr("epochs: 5"));
  EXPECT_THAT(*YamlSet("name: a\n", "data.train=/x"), HasSubstr("train: /x"));
  EXPECT_FALSE(YamlSet("name: a\n", "data.train").has_value());
  EXPECT_FALSE(YamlSet("name: a\n", "name.x=1").has_value());
}

TEST(NearestWord, OnlyWhenNear) {
  EXPECT_EQ(NearestWord("epoch", {"epochs", "seed"}), "epochs");
  EXPECT_EQ(NearestWord("zzzzzz", {"epochs", "seed"}), std::nullopt);
  EXPECT_EQ(NearestWord("nope", {"top1"}), std::nullopt) << "half of its letters are others";
  EXPECT_EQ(NearestWord("nmae", {"ema", "name"}), "name") << "two letters swapped are one mistake";
  EXPECT_EQ(NearestWord("sede", {"side", "seed"}), "side") << "the first of those that are as near";
}

TEST(JobFile, SettingsOfAnotherKindAreErrors) {
  const auto with = [](const char* text) {
    return ErrorsOf(fmt::format("name: a\ndata: {{train: /x}}\n{}\n", text));
  };
  EXPECT_THAT(with("optimizer: {kind: adamw, momentum: 0.5}"),
              ElementsAre(HasSubstr("optimizer.momentum: is no setting of adamw, but of sgd, lars")));
  EXPECT_THAT(with("schedule: {power: 2}"),
              ElementsAre(HasSubstr("no setting of cosine, but of polynomial")));
  EXPECT_THAT(with("model: {name: convnext_tiny, blurpool: true}"),
              ElementsAre(HasSubstr("model.blurpool: is no setting of ConvNeXt, but of ResNet")));
  EXPECT_THAT(with("model: {name: vit_small_patch16}\ntrain: {sync_batch_norm: true}"),
              ElementsAre(HasSubstr("train.sync_batch_norm: is no setting of ViT, but of ResNet")));
  EXPECT_THAT(with("train: {sync_batch_norm: true, freeze_batch_norm: true}"),
              ElementsAre(HasSubstr("train.sync_batch_norm: is of no use with freeze_batch_norm")));
  EXPECT_THAT(with("schedule: {kind: step}"), ElementsAre(HasSubstr("schedule.milestones: missing")));
  EXPECT_THAT(with("schedule: {kind: step, milestones: [60, 30]}"), ElementsAre(HasSubstr("must rise")));
  EXPECT_THAT(with("schedule: {kind: step, milestones: [30, x]}"),
              ElementsAre(HasSubstr("found 'x' in the list where a number")));
  EXPECT_THAT(with("ema: {every_steps: 2}"), ElementsAre(HasSubstr("needs ema.decay")));
  EXPECT_THAT(with("schedule: {warmup_epochs: 0, warmup_start: 0.1}"),
              ElementsAre(HasSubstr("schedule.warmup_start: there is no warm-up")));
  EXPECT_THAT(with("schedule: {kind: step, milestones: [30, 90]}"),
              ElementsAre(HasSubstr("schedule.milestones: 90 is not before the run's end, 90")));
  EXPECT_THAT(with("augment: {interpolation: bilinear}"),
              ElementsAre(HasSubstr("augment.interpolation: needs a policy")));
}

TEST(JobFile, GuardsThatCanNotWorkAreErrors) {
  const auto with = [](const char* text) {
    return ErrorsOf(fmt::format("name: a\ndata: {{train: /x}}\n{}\n", text));
  };
  EXPECT_THAT(with("guard: {action: rollback, loss_factor: 1.5, max_times: 3, every_steps: 10}"), IsEmpty());
  EXPECT_THAT(with("guard: {loss_factor: 0.5}"), ElementsAre(HasSubstr("0 or more than 1 is allowed")));
  EXPECT_THAT(with("guard: {action: skip, loss_factor: 2}"), ElementsAre(HasSubstr("set action: rollback")));
  EXPECT_THAT(with("guard: {max_times: 3}"),
              ElementsAre(HasSubstr("guard.max_times: is no setting of stop, but of skip, rollback")));
  EXPECT_THAT(with("guard: {action: rollback}\ncheckpoint: {keep: 1}"),
              ElementsAre(HasSubstr("checkpoint.keep: guard.action: rollback goes back")));
  EXPECT_THAT(with("guard: {every_steps: 3}"), ElementsAre(HasSubstr("guard.every_steps: needs action")));
  EXPECT_THAT(with("train: {precision: fp16}\nguard: {action: skip}"),
              ElementsAre(HasSubstr("fp16 leaves such steps out by itself")));
  EXPECT_THAT(with("early_stop: {metric: loss}"), ElementsAre(HasSubstr("early_stop.patience: missing")));
  EXPECT_THAT(with("early_stop: {patience: 3}"),
              ElementsAre(HasSubstr("early_stop.patience: needs data.val")));
}

TEST(JobFile, AViTsImagesAreWholePatches) {
  EXPECT_THAT(
      ErrorsOf(
          "name: a\ndata: {train: /x, image_size: 100, val_size: 120}\nmodel: {name: vit_small_patch16}\n"),
      ElementsAre(HasSubstr("data.image_size: 100 is no multiple of 16"),
                  HasSubstr("data.val_size: 120 is no multiple of 16")));
  EXPECT_THAT(
      ErrorsOf("name: a\ndata: {train: /x, val_shape: rectangular}\nmodel: {name: vit_small_patch16}\n"),
      ElementsAre(HasSubstr("data.val_shape")));
}

TEST(JobFile, PhasesHaveAllARateOrNone) {
  EXPECT_THAT(ErrorsOf(WithPhases("[{epochs: 2, lr: 1, lr_end: 2}, {epochs: 2}]")),
              ElementsAre(HasSubstr("phases[1].lr: either all phases have a learning rate or none has")));
  EXPECT_THAT(ErrorsOf(WithPhases("[{epochs: 2, lr_end: 2}]")),
              ElementsAre(HasSubstr("phases[0].lr_end: needs lr")));
  EXPECT_THAT(
      ErrorsOf(WithPhases("[{epochs: 2, lr: 2}]") + "optimizer: {lr: 1}\nschedule: {warmup_epochs: 0}\n"),
      ElementsAre(HasSubstr("optimizer.lr: the phases have their own"),
                  HasSubstr("schedule: the phases have their own")));
  const auto spec = ParseJobFile(WithPhases("[{epochs: 2, lr: 1, lr_end: 2}]"), "job.yaml");
  ASSERT_TRUE(spec.has_value());
  EXPECT_EQ(spec->phases[0].lr_end, 2);
}

TEST(JobFile, OnlyNcclsOwnVariablesAreSetForIt) {
  const std::string head = "name: a\ndata: {train: /x}\n";
  const auto spec = ParseJobFile(
      head +
          "dist: {nccl: {NCCL_IB_HCA: mlx5, NCCL_ALGO: Ring}, gradient_compression: bf16, bucket_mb: 50}\n",
      "job.yaml");
  ASSERT_TRUE(spec.has_value());
  EXPECT_EQ(spec->dist.nccl.at("NCCL_IB_HCA"), "mlx5");
  EXPECT_EQ(spec->dist.nccl.at("NCCL_ALGO"), "Ring");
  EXPECT_EQ(spec->dist.gradient_compression, "bf16");
  EXPECT_EQ(spec->dist.bucket_mb, 50);
  EXPECT_FALSE(spec->dist.allow_tcp);
  EXPECT_THAT(ErrorsOf(head + "dist: {nccl: {LD_PRELOAD: /x.so}}\n"),
              ElementsAre(HasSubstr("dist.nccl.LD_PRELOAD: is no variable of NCCL's")));
  EXPECT_THAT(ErrorsOf(head + "dist: {gradient_compression: fp8}\n"),
              ElementsAre(HasSubstr("dist.gradient_compression")));
}

TEST(JobFile, LimitsAreDurationsThatAreNotTooShort) {
  const std::string head = "name: a\ndata: {train: /x}\n";
  const auto spec =
      ParseJobFile(head + "limits: {silence: 20s, validation: 1h, checkpoint: 0}\n", "job.yaml");
  ASSERT_TRUE(spec.has_value());
  EXPECT_EQ(spec->limits.silence_ms, 20'000);
  EXPECT_EQ(spec->limits.step_ms, 15'000);
  EXPECT_EQ(spec->limits.validation_ms, 3'600'000);
  EXPECT_EQ(spec->limits.checkpoint_ms, 0);
  EXPECT_THAT(ErrorsOf(head + "limits: {step: 1s}\n"),
              ElementsAre(HasSubstr("limits.step: must be at least 2s, or 0 for no limit")));
}

TEST(JobFile, OneCycleHasTheDefaultsOfItsKind) {
  const auto spec = ParseJobFile(
      "name: a\ndata: {train: /x}\ntrain: {epochs: 10}\noptimizer: {lr: 0.5}\nschedule: {kind: one_cycle}\n",
      "job.yaml");
  ASSERT_TRUE(spec.has_value());
  EXPECT_DOUBLE_EQ(spec->schedule.warmup_epochs, 3);
  EXPECT_DOUBLE_EQ(*spec->schedule.warmup_start, 0.04);
  EXPECT_DOUBLE_EQ(spec->schedule.end_lr, 2e-6);
}

TEST(JobFile, CheckpointsThatAreKeptMustBeWritten) {
  const std::string head = "name: x\ndata: {train: /t}\ncheckpoint: ";
  const auto kept = ParseJobFile(
      head + "{keep: 2, keep_best: 3, keep_every_epochs: 10, every_steps: 50, keep_every_steps: 100}", "x");
  ASSERT_TRUE(kept.has_value());
  EXPECT_EQ(kept->checkpoint.keep_best, 3);
  EXPECT_EQ(kept->checkpoint.keep_every_epochs, 10);
  EXPECT_EQ(kept->checkpoint.keep_every_steps, 100);
  EXPECT_EQ(kept->text.substr(0, head.size()), head);
  for (const char* text :
       {"{every_epochs: 4, keep_every_epochs: 10}", "{every_epochs: 0, keep_every_epochs: 10}",
        "{keep_every_steps: 100}", "{every_steps: 30, keep_every_steps: 100}"}) {
    const auto refused = ParseJobFile(head + text, "x");
    ASSERT_FALSE(refused.has_value()) << text;
    EXPECT_THAT(refused.error().front().message, HasSubstr("is no multiple of checkpoint.every_")) << text;
  }
}

}  // namespace
}  // namespace imgd
