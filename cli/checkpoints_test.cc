#include <gmock/gmock.h>
#include <stdlib.h>

#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "cli/testing/fake_daemon.h"
#include "cli/testing/run_cli.h"
#include "common/checkpoint/checkpoint.h"
#include "common/checkpoint/lineage.h"
#include "common/files.h"
#include "common/remote/testing/fake_s3.h"

namespace imgd::cli {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::ContainsRegex;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::SizeIs;

std::string FloatBytes(std::vector<float> values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)};
}

class Checkpoints : public testing::Test {
 protected:
  Checkpoints() {
    std::string pattern = (fs::temp_directory_path() / "checkpoints-XXXXXX").string();
    folder_ = ::mkdtemp(pattern.data());
    root_ = folder_ / "rn18-ab-12";
  }
  ~Checkpoints() override { fs::remove_all(folder_); }

  /// Of a tensor of two elements, the average being `average` where that is given.
  fs::path Write(uint64_t generation, uint64_t step, std::vector<float> weights,
                 std::vector<float> average = {}) {
    auto writer = CheckpointWriter::Begin(root_, generation, step);
    EXPECT_TRUE(writer.has_value());
    Lineage lineage{.job_id = 12, .job = "rn18", .generation = generation, .step = step};
    lineage.model = "resnet18";
    lineage.blurpool = true;
    lineage.configuration =
        fmt::format("name: rn18\noptimizer: {{lr: {}}}\n", 0.1 * static_cast<double>(step));
    const auto metadata = ModelMetadata(lineage);
    const std::string bytes = FloatBytes(std::move(weights));
    EXPECT_TRUE(writer->AddTensors("model.safetensors", {{"w", "F32", {2}, bytes}}, metadata));
    const std::string averaged = FloatBytes(std::move(average));
    if (!averaged.empty()) {
      EXPECT_TRUE(writer->AddTensors("ema.safetensors", {{"w", "F32", {2}, averaged}}, metadata));
    }
    EXPECT_TRUE(writer->Add("lineage.json", {ToJson(lineage)}));
    const nlohmann::json state = {{"epoch", static_cast<double>(step) / 10}, {"model", "resnet18"}};
    EXPECT_TRUE(writer->Add("state.json", {state.dump()}));
    return writer->Commit()->ref.path;
  }

  void Validate(const fs::path& path, uint64_t step, double top1) {
    const nlohmann::json result = {
        {"step", step}, {"top1", top1}, {"top5", 1.0}, {"loss", 0.5}, {"images", 100}};
    EXPECT_TRUE(WriteFileAtomically(path / "validation.json", result.dump()));
  }

  CliResult RunIt(std::vector<std::string> arguments, std::map<std::string, std::string> env = {}) {
    auto call = CallTo(daemon_.address(), std::move(arguments));
    call.env.merge(env);
    return RunCli(call);
  }

  v1::Job Job(v1::JobState state) {
    auto job = MakeJob(12, "rn18", state);
    job.set_checkpoint_dir(root_);
    return job;
  }

  /// Two checkpoints. Returns their folder's address.
  std::string PutInBucket(FakeS3& s3) {
    for (const uint64_t step : {10, 20}) {
      for (const auto& file : fs::directory_iterator(Write(1, step, {1, 2}))) {
        const std::string key = fmt::format("ckpt/rn18-ab-12/g1/step{}/", step);
        s3.Set(key + file.path().filename().native(), *ReadFile(file.path()));
      }
    }
    return "s3://b/ckpt/rn18-ab-12";
  }

  FakeDaemon daemon_;
  fs::path folder_;
  fs::path root_;
};

TEST_F(Checkpoints, AreListedWithWhatIsKnownOfThem) {
  Validate(Write(1, 10, {1, 2}), 10, 0.75);
  Write(2, 20, {1, 2}, {3, 4});
  const auto listed = RunIt({"checkpoints", root_});
  EXPECT_EQ(listed.exit_code, 0) << listed.err;
  const auto lines = Lines(listed.out);
  ASSERT_THAT(lines, SizeIs(3));
  EXPECT_THAT(lines[1], ContainsRegex("^ +2 +20 +2.00 +- "));
  EXPECT_THAT(lines[2], ContainsRegex("^ +1 +10 +1.00 +75.0 % +.* best$"));
  const auto wide = RunIt({"checkpoints", root_, "-o", "wide"});
  EXPECT_THAT(wide.out, AllOf(HasSubstr("resnet18"), HasSubstr("g2/step20")));
  const auto json = nlohmann::json::parse(RunIt({"checkpoints", root_, "-o", "json"}).out);
  ASSERT_EQ(json.size(), 2U);
  EXPECT_EQ(json[0]["step"], 20);
  EXPECT_EQ(json[0]["validation"], nullptr);
  EXPECT_TRUE(json[0]["has_average"]);
  EXPECT_EQ(json[1]["validation"]["top1"], 0.75);
  EXPECT_TRUE(json[1]["best"]);
}

TEST_F(Checkpoints, OfAJobSayWhyTheyStayInImgdsWords) {
  Validate(Write(1, 10, {1, 2}), 10, 0.75);
  Write(1, 20, {1, 2});
  daemon_.PutJob(Job(v1::JOB_STATE_RUNNING));
  v1::ListCheckpointsResponse told;
  for (const uint64_t step : {20, 10}) {
    auto& one = *told.add_checkpoints();
    one.mutable_checkpoint()->set_path(root_ / fmt::format("g1/step{}", step));
    one.add_kept_as(step == 20 ? "last" : "newest 2");
    one.add_kept_as(fmt::format("every {} steps", 10));
  }
  daemon_.PutCheckpoints(told);
  const auto lines = Lines(RunIt({"checkpoints", "rn18"}).out);
  ASSERT_THAT(lines, SizeIs(3));
  EXPECT_THAT(lines[1], ContainsRegex("last, every 10 steps$"));
  EXPECT_THAT(lines[2], ContainsRegex("newest 2, every 10 steps, best$"));
  const auto json = nlohmann::json::parse(RunIt({"checkpoints", "12", "-o", "json"}).out);
  EXPECT_EQ(json[0]["kept_as"], nlohmann::json::parse(R"(["last", "every 10 steps"])"));
  const auto of_folder = nlohmann::json::parse(RunIt({"checkpoints", root_, "-o", "json"}).out);
  EXPECT_EQ(of_folder[1]["kept_as"], nlohmann::json::parse(R"(["best"])"));
}

TEST_F(Checkpoints, InABucketAreFoundByAddressAndThroughTheDaemon) {
  FakeS3 s3;
  const std::string root = PutInBucket(s3);
  EXPECT_THAT(Lines(RunIt({"checkpoints", root + "/"}, s3.Variables()).out), SizeIs(3));
  EXPECT_THAT(Lines(RunIt({"checkpoints", root + "/g1/step10"}, s3.Variables()).out), SizeIs(2));
  auto job = Job(v1::JOB_STATE_RUNNING);
  job.set_checkpoint_dir(root);
  daemon_.PutJob(job);
  const auto pinned = RunIt({"checkpoints", "pin", "rn18:10", "--note", "x"}, s3.Variables());
  EXPECT_EQ(pinned.out, root + "/g1/step10 is pinned\n") << pinned.err;
  EXPECT_EQ(s3.Objects().at("ckpt/rn18-ab-12/g1/step10/pinned"), "pinned by lena: x\n");
  const auto file = folder_ / "out.safetensors";
  const auto exported = RunIt({"export", root + ":10", "--to", "safetensors", "-o", file}, s3.Variables());
  EXPECT_EQ(exported.exit_code, 0) << exported.err;
  EXPECT_TRUE(fs::exists(file));
  EXPECT_THAT(RunIt({"checkpoints", "delete", root, "--yes", "--force"}, s3.Variables()).out,
              HasSubstr("/g1/step20 is deleted"));
  EXPECT_THAT(Lines(RunIt({"checkpoints", root}, s3.Variables()).out), SizeIs(2));
  EXPECT_THAT(RunIt({"checkpoints", "s3://none/x"}, s3.Variables()).err,
              HasSubstr("there is no such bucket"));
}

TEST_F(Checkpoints, AJobsAreFoundThroughTheDaemon) {
  Write(1, 10, {1, 2});
  daemon_.PutJob(Job(v1::JOB_STATE_RUNNING));
  EXPECT_THAT(Lines(RunIt({"checkpoints", "rn18"}).out), SizeIs(2));
  EXPECT_THAT(Lines(RunIt({"checkpoints", "12"}).out), SizeIs(2));
  EXPECT_EQ(RunIt({"checkpoints", "13"}).exit_code, 3);
}

TEST_F(Checkpoints, AFolderThatOnlyOtherMachinesHaveIsNamedWithThem) {
  auto job = Job(v1::JOB_STATE_RUNNING);
  job.set_generation(1);
  job.set_checkpoint_dir("/nowhere/rn18-ab-12");
  daemon_.PutJob(job);
  const auto refused = RunIt({"checkpoints", "rn18"});
  EXPECT_EQ(refused.exit_code, 5);
  EXPECT_THAT(refused.err, HasSubstr("the checkpoints of job 12 (rn18) are in /nowhere/rn18-ab-12 on "));
  EXPECT_THAT(refused.err, HasSubstr(", and there is no such folder on "));
}

TEST_F(Checkpoints, WhatIsNotThereIsSaid) {
  EXPECT_THAT(RunIt({"checkpoints", "/nowhere/x"}).err, HasSubstr("there is no folder /nowhere/x"));
  EXPECT_EQ(RunIt({"checkpoints"}).exit_code, 2);
  Write(1, 10, {1, 2});
  EXPECT_THAT(RunIt({"checkpoints", "pin", root_.native() + ":11"}).err,
              AllOf(HasSubstr("no checkpoint of step 11"), HasSubstr("there are: g1/step10")));
  EXPECT_THAT(RunIt({"checkpoints", "pin", root_.native() + ":best"}).err, HasSubstr("was validated"));
  EXPECT_THAT(RunIt({"checkpoints", "pin", folder_}).err, HasSubstr("did you mean " + root_.native()));
}

TEST_F(Checkpoints, OneThatIsNamedTwiceIsDeletedOnce) {
  const auto path = Write(1, 10, {1, 2});
  Write(1, 20, {1, 2});
  Write(1, 30, {1, 2});
  fs::create_directory_symlink(root_, folder_ / "link");
  const auto deleted = RunIt({"checkpoints", "delete", path, root_.native() + ":10",
                              (folder_ / "link").native() + ":10", root_.native() + ":20", "--yes"});
  EXPECT_EQ(deleted.exit_code, 0) << deleted.err;
  EXPECT_THAT(Lines(deleted.out), SizeIs(2));
  EXPECT_THAT(Lines(RunIt({"checkpoints", root_}).out), SizeIs(2)) << "the title, and that of step 30";
}

TEST_F(Checkpoints, APinnedOneIsShownSoAndNotDeletedBeforeItIsUnpinned) {
  const auto path = Write(1, 10, {1, 2});
  Write(1, 20, {1, 2});
  EXPECT_THAT(RunIt({"checkpoints", "pin", root_.native() + ":10", "--note", "the paper's"}).out,
              HasSubstr("g1/step10 is pinned"));
  EXPECT_EQ(*ReadFile(path / "pinned"), "pinned by lena: the paper's\n");
  EXPECT_THAT(RunIt({"checkpoints", root_}).out, HasSubstr("pinned"));
  const auto refused = RunIt({"checkpoints", "delete", path, "--yes", "--force"});
  EXPECT_EQ(refused.exit_code, 5);
  EXPECT_THAT(refused.err, HasSubstr("is pinned"));
  EXPECT_EQ(RunIt({"checkpoints", "unpin", path}).exit_code, 0);
  EXPECT_EQ(RunIt({"checkpoints", "delete", path, "--yes"}).exit_code, 0);
  EXPECT_FALSE(fs::exists(path));
}

TEST_F(Checkpoints, TheOneThatARunWouldGoOnFromIsDeletedByForceOnly) {
  const auto old = Write(1, 10, {1, 2});
  const auto newest = Write(1, 20, {1, 2});
  daemon_.PutJob(Job(v1::JOB_STATE_RUNNING));
  for (const auto& reference : {newest.native(), std::string("rn18:latest"), std::string("12:20")}) {
    const auto refused = RunIt({"checkpoints", "delete", old, reference, "--yes"});
    EXPECT_EQ(refused.exit_code, 5);
    EXPECT_THAT(refused.err, HasSubstr("g1/step20 is the one that a run would go on from"));
  }
  EXPECT_TRUE(fs::exists(old)) << "all or nothing";
  daemon_.PutJob(Job(v1::JOB_STATE_COMPLETED));
  EXPECT_EQ(RunIt({"checkpoints", "delete", "12:20", "--yes"}).exit_code, 0);
  EXPECT_FALSE(fs::exists(newest));
  EXPECT_EQ(RunIt({"checkpoints", "delete", old, "--yes", "--force"}).exit_code, 0);
  EXPECT_FALSE(fs::exists(old));
}

TEST_F(Checkpoints, ADeletionIsAskedForOnATerminalAndNeedsAWordElsewhere) {
  const auto path = Write(1, 10, {1, 2});
  Write(1, 20, {1, 2});
  const auto refused = RunIt({"checkpoints", "delete", path});
  EXPECT_EQ(refused.exit_code, 5);
  EXPECT_THAT(refused.err, HasSubstr("add --yes"));
  const auto asked = [&](const std::string& answer) {
    auto call = CallTo(daemon_.address(), {"checkpoints", "delete", path});
    call.terminal.err_is_terminal = true;
    call.input = answer;
    return RunCli(call);
  };
  EXPECT_THAT(asked("\n").err,
              AllOf(HasSubstr("delete 1 checkpoint? [y/N]"), HasSubstr("nothing was deleted")));
  EXPECT_TRUE(fs::exists(path));
  EXPECT_EQ(asked("y\n").exit_code, 0);
  EXPECT_FALSE(fs::exists(path));
}

TEST_F(Checkpoints, AComparisonHasFiguresSettingsAndDistances) {
  Validate(Write(1, 10, {3, 4}), 10, 0.5);
  Write(1, 20, {3, 4.5});
  const auto done = RunIt({"checkpoints", "compare", root_.native() + ":10", root_.native() + ":20"});
  EXPECT_EQ(done.exit_code, 0) << done.err;
  EXPECT_THAT(done.out, ContainsRegex("checkpoint +g1/step10 +g1/step20"));
  EXPECT_THAT(done.out, ContainsRegex("top-1 +50.0 % +-"));
  EXPECT_THAT(done.out, ContainsRegex("optimizer.lr +1 +2"));
  EXPECT_THAT(done.out,
              HasSubstr("1 tensor in both, 0 of them equal; |B - A| / |A| is 0.1 over all weights"));
  EXPECT_THAT(done.out, ContainsRegex("w +0.1 +0.5"));
  const auto json = nlohmann::json::parse(
      RunIt({"checkpoints", "compare", root_.native() + ":10", root_.native() + ":10", "-o", "json"}).out);
  EXPECT_EQ(json["relative_difference"], 0.0);
  EXPECT_EQ(json["equal_tensors"], 1);
  EXPECT_THAT(json["settings"], IsEmpty());
}

TEST_F(Checkpoints, AnExportHasTheAverageWhereThereIsOneAndWhereItComesFrom) {
  const auto path = Write(1, 10, {1, 2}, {3, 4});
  const auto file = folder_ / "out.safetensors";
  const auto read = [&] { return *ReadFile(file); };
  const auto done = RunIt({"export", path, "--to", "safetensors", "-o", file});
  EXPECT_EQ(done.exit_code, 0) << done.err;
  EXPECT_THAT(done.out, HasSubstr("averaged weights, 1 tensor of " + path.native()));
  const std::string averaged = read();
  const auto content = ParseSafetensors(averaged);
  EXPECT_EQ(content->Find("w")->bytes, FloatBytes({3, 4}));
  EXPECT_EQ(content->metadata.at("model.blurpool"), "true");
  const auto lineage = LineageFromJson(content->metadata.at("lineage"));
  EXPECT_EQ(lineage->job, "rn18");
  EXPECT_TRUE(lineage->is_average);
  EXPECT_EQ(RunIt({"export", path, "--to", "safetensors", "-o", file, "--no-ema"}).exit_code, 0);
  const std::string plain = read();
  EXPECT_EQ(ParseSafetensors(plain)->Find("w")->bytes, FloatBytes({1, 2}));
}

TEST_F(Checkpoints, AnExportRefusesWhatIsNotThereOrDamaged) {
  const auto path = Write(1, 10, {1, 2});
  const auto file = (folder_ / "out.pth").native();
  EXPECT_EQ(RunIt({"export", path, "--to", "torch", "-o", file}).exit_code, 0);
  EXPECT_EQ(RunIt({"export", root_, "--checkpoint", "10", "--to", "torch", "-o", file}).exit_code, 0);
  EXPECT_THAT(RunIt({"export", path, "--to", "torch", "-o", file, "--ema"}).err,
              HasSubstr("has no averaged weights"));
  EXPECT_THAT(RunIt({"export", path, "--to", "onnx", "-o", file}).err,
              HasSubstr("allowed: safetensors, torch"));
  EXPECT_THAT(RunIt({"export", path, "--to", "torch", "-o", "/nowhere/x.pth"}).err,
              HasSubstr("cannot create /nowhere/x.pth"));
  ASSERT_TRUE(WriteFileAtomically(path / "model.safetensors", "x"));
  const auto damaged = RunIt({"export", path, "--to", "torch", "-o", file});
  EXPECT_EQ(damaged.exit_code, 2);
  EXPECT_THAT(damaged.err, HasSubstr("are not those that the manifest lists"));
}

TEST_F(Checkpoints, ACheckpointBecomesTheNextVersionOfAModel) {
  const auto path = Write(1, 10, {1, 2}, {3, 4});
  Validate(path, 10, 0.75);
  const std::map<std::string, std::string> env = {{"IMGD_MODELS", folder_ / "models"}};
  const auto first = RunIt({"model", "promote", path, "flowers", "--note", "first"}, env);
  EXPECT_EQ(first.exit_code, 0) << first.err;
  EXPECT_THAT(first.out, HasSubstr("flowers:v1 is the averaged weights of " + path.native()));
  EXPECT_THAT(RunIt({"model", "promote", path, "flowers", "--no-ema"}, env).out, HasSubstr("flowers:v2 is"));
  const auto lines = Lines(RunIt({"model", "list"}, env).out);
  ASSERT_THAT(lines, SizeIs(3));
  EXPECT_THAT(lines[1], ContainsRegex("^flowers +v2 +resnet18 +- ")) << "validation was of the average";
  EXPECT_THAT(lines[2], ContainsRegex("^flowers +v1 +resnet18 +75.0 % .*first$"));
  EXPECT_THAT(
      Lines(RunIt({"model", "list", "-o", "wide"}, env).out)[2],
      AllOf(HasSubstr("lena"), HasSubstr(path.native()), HasSubstr("models/flowers/v1"), HasSubstr("first")));
  const auto shown = nlohmann::json::parse(RunIt({"model", "show", "flowers:v1", "-o", "json"}, env).out);
  EXPECT_EQ(shown["lineage"]["job"]["name"], "rn18");
  EXPECT_EQ(shown["promoted_by"], "lena");
  const std::string weights = *ReadFile(folder_ / "models/flowers/v1/model.safetensors");
  EXPECT_EQ(ParseSafetensors(weights)->Find("w")->bytes, FloatBytes({3, 4}));
  EXPECT_EQ(shown["size_bytes"], weights.size());
  EXPECT_THAT(RunIt({"model", "show", "flowers"}, env).out, HasSubstr("version: 2"));
  for (const auto& entry : fs::directory_iterator(folder_ / "models/flowers"))
    EXPECT_THAT(entry.path().filename().native(), Not(testing::StartsWith(".")));
}

TEST_F(Checkpoints, APromotedOneIsPinned) {
  const auto path = Write(1, 10, {1, 2});
  const std::map<std::string, std::string> env = {{"IMGD_MODELS", folder_ / "models"}};
  EXPECT_EQ(RunIt({"model", "promote", path, "flowers"}, env).exit_code, 0);
  EXPECT_EQ(*ReadFile(path / "pinned"), "promoted as flowers:v1 by lena\n");
  EXPECT_EQ(RunIt({"model", "promote", path, "flowers"}, env).exit_code, 0);
  EXPECT_EQ(*ReadFile(path / "pinned"), "promoted as flowers:v1 by lena\n");
}

TEST_F(Checkpoints, OldOnesOfJobsThatHaveEndedArePruned) {
  const auto old = Write(1, 10, {1, 2});
  const auto best = Write(1, 20, {1, 2});
  Validate(best, 20, 0.75);
  auto job = Job(v1::JOB_STATE_COMPLETED);
  job.set_ended_us(1'000'000);
  daemon_.PutJob(job);
  EXPECT_THAT(RunIt({"checkpoints", "prune"}).err, HasSubstr("give --kept-for, --total-bytes or both"));
  const auto shown = RunIt({"checkpoints", "prune", "--kept-for", "30d", "--dry-run"});
  EXPECT_THAT(shown.out,
              AllOf(HasSubstr(old.native() + " ("), HasSubstr("old)"), Not(HasSubstr(best.native()))));
  EXPECT_TRUE(IsCheckpoint(old));
  EXPECT_THAT(RunIt({"checkpoints", "prune", "--kept-for", "30d"}).err, HasSubstr("add --yes"));
  EXPECT_EQ(RunIt({"checkpoints", "prune", "--kept-for", "30d", "--yes"}).exit_code, 0);
  EXPECT_FALSE(IsCheckpoint(old));
  EXPECT_TRUE(IsCheckpoint(best)) << "it is the best";
  EXPECT_EQ(RunIt({"checkpoints", "prune", "--total-bytes", "1", "--also-best", "--yes"}).exit_code, 0);
  EXPECT_FALSE(IsCheckpoint(best));
}

TEST_F(Checkpoints, OfAJobThatHasNotEndedOrThatOneBeginsWithNoneIsPruned) {
  const auto path = Write(1, 10, {1, 2});
  daemon_.PutJob(Job(v1::JOB_STATE_PAUSED));
  const std::vector<std::string> prune = {"checkpoints", "prune", "--total-bytes", "1", "--yes"};
  EXPECT_EQ(RunIt(prune).exit_code, 0);
  EXPECT_TRUE(IsCheckpoint(path));
  daemon_.PutJob(Job(v1::JOB_STATE_CANCELLED));
  auto next = MakeJob(13, "next", v1::JOB_STATE_QUEUED);
  next.set_job_yaml(fmt::format("model: {{init_from: {}/model.safetensors}}\n", path.native()));
  daemon_.PutJob(next);
  EXPECT_EQ(RunIt(prune).exit_code, 0);
  EXPECT_TRUE(IsCheckpoint(path));
  daemon_.PutJob(MakeJob(13, "next", v1::JOB_STATE_COMPLETED));
  EXPECT_EQ(RunIt(prune).exit_code, 0);
  EXPECT_FALSE(IsCheckpoint(path));
}

TEST_F(Checkpoints, InABucketArePrunedToo) {
  FakeS3 s3;
  const std::string root = PutInBucket(s3);
  auto job = Job(v1::JOB_STATE_FAILED);
  job.set_checkpoint_dir(root);
  daemon_.PutJob(job);
  EXPECT_THAT(Lines(RunIt({"checkpoints", root}, s3.Variables()).out), SizeIs(3));
  const auto pruned = RunIt({"checkpoints", "prune", "--total-bytes", "1", "--yes"}, s3.Variables());
  EXPECT_EQ(pruned.exit_code, 0) << pruned.err;
  EXPECT_THAT(RunIt({"checkpoints", root}, s3.Variables()).err, HasSubstr("no complete checkpoints"));
}

TEST_F(Checkpoints, TheRegistryIsWhereItIsSaidToBe) {
  const auto path = Write(1, 10, {1, 2});
  const auto unsaid = RunIt({"model", "list"});
  EXPECT_EQ(unsaid.exit_code, 2);
  EXPECT_THAT(unsaid.err, HasSubstr("nothing says which folder the registry is"));
  fs::create_directories(folder_ / "imgd");
  ASSERT_TRUE(WriteFileAtomically(folder_ / "imgd" / "config.yaml",
                                  fmt::format("models: {}\n", (folder_ / "configured").native())));
  const std::map<std::string, std::string> env = {{"XDG_CONFIG_HOME", folder_}};
  EXPECT_EQ(RunIt({"model", "promote", path, "a"}, env).exit_code, 0);
  EXPECT_TRUE(fs::exists(folder_ / "configured/a/v1/model.safetensors"));
  EXPECT_EQ(RunIt({"model", "promote", path, "a", "--registry", folder_ / "given"}, env).exit_code, 0);
  EXPECT_TRUE(fs::exists(folder_ / "given/a/v1/version.json"));
  EXPECT_THAT(RunIt({"model", "promote", path, "../a"}, env).err, HasSubstr("where a name is expected"));
  EXPECT_THAT(RunIt({"model", "show", "b"}, env).err, HasSubstr("there is no model 'b'"));
  EXPECT_THAT(RunIt({"model", "show", "a:v2"}, env).err, HasSubstr("a has no version 'v2'; it has v1"));
}

}  // namespace
}  // namespace imgd::cli
