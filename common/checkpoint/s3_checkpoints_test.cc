#include "common/checkpoint/s3_checkpoints.h"

#include <gmock/gmock.h>
#include <stdlib.h>

#include <atomic>
#include <nlohmann/json.hpp>

#include "common/checkpoint/retention.h"
#include "common/checkpoint/summary.h"
#include "common/files.h"
#include "common/remote/testing/fake_s3.h"

namespace imgd {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class InS3 : public testing::Test {
 protected:
  InS3() : store_(Folder(), Staging()) {}
  ~InS3() override { fs::remove_all(staging_.parent_path()); }

  S3Folder Folder() { return S3Folder::Open("s3://b/ckpt/rn 50", s3_.Environment(), HastyHttp()).value(); }
  fs::path Staging() {
    std::string pattern = (fs::temp_directory_path() / "s3-checkpoints-XXXXXX").string();
    staging_ = fs::path(::mkdtemp(pattern.data())) / "staging";
    return staging_;
  }

  Result<CommittedCheckpoint> TryToSave(uint64_t generation, uint64_t step) {
    IMGD_ASSIGN(auto writer, store_.Begin(generation, step));
    IMGD_TRY(writer.Add("model.safetensors", {"weights of ", std::to_string(step)}));
    IMGD_TRY(writer.Add("optimizer.safetensors", {"momentum"}));
    const nlohmann::json state = {{"epoch", static_cast<double>(step) / 10}, {"model", "resnet18"}};
    IMGD_TRY(writer.Add("state.json", {state.dump()}));
    return store_.Commit(std::move(writer));
  }

  CheckpointRef Save(uint64_t generation, uint64_t step) {
    const auto saved = TryToSave(generation, step);
    EXPECT_TRUE(saved) << saved.error().ToString();
    return saved->ref;
  }

  CheckpointRef Save(uint64_t generation, uint64_t step, double top1) {
    const auto ref = Save(generation, step);
    const nlohmann::json result = {{"step", step}, {"top1", top1}};
    EXPECT_TRUE(store_.Write(ref, "validation.json", result.dump()));
    return ref;
  }

  static std::vector<std::string> Names(const std::vector<CheckpointRef>& refs) {
    std::vector<std::string> out;
    for (const auto& ref : refs) out.push_back(fmt::format("g{}/step{}", ref.generation, ref.step));
    return out;
  }
  std::vector<std::string> All() const { return Names(store_.List()->complete); }
  std::vector<std::string> Unfinished() const { return Names(store_.List()->unfinished); }

  void Prune(const CheckpointRef& newest, const KeepRule& rule) {
    const auto removed = RemoveOldCheckpoints(store_, newest, rule);
    EXPECT_TRUE(removed) << removed.error().ToString();
  }

  std::string At(const std::string& name) { return "ckpt/rn 50/" + name; }

  FakeS3 s3_;
  fs::path staging_;
  S3Checkpoints store_;
};

TEST_F(InS3, AreWrittenListedAndReadAsInAFolder) {
  const auto saved = TryToSave(2, 30);
  ASSERT_TRUE(saved) << saved.error().ToString();
  EXPECT_EQ(saved->ref.path, "s3://b/ckpt/rn 50/g2/step30");
  EXPECT_FALSE(fs::exists(staging_)) << "what was staged goes";
  Save(1, 40);
  EXPECT_THAT(All(), ElementsAre("g2/step30", "g1/step40"));
  const auto content = ReadCheckpoint(store_, saved->ref);
  ASSERT_TRUE(content) << content.error().ToString();
  EXPECT_EQ(content->model, "weights of 30");
  const auto summary = SummarizeCheckpoint(store_, saved->ref);
  EXPECT_EQ(summary.epoch, 3.0);
  EXPECT_EQ(summary.model, "resnet18");
  EXPECT_EQ(summary.written_us, 1'769'860'800'000'000);
  EXPECT_FALSE(summary.pinned);
  const auto found = CheckpointAt(store_, "s3://b/ckpt/rn 50/g2/step30");
  EXPECT_TRUE(found);
  EXPECT_FALSE(CheckpointAt(store_, "s3://b/ckpt/rn 50/g2/step31"));
  EXPECT_FALSE(CheckpointAt(store_, "s3://b/elsewhere/g2/step30")) << "not of this job";
}

TEST_F(InS3, TheManifestComesLastAndOnItsOwnCondition) {
  Save(1, 10);
  std::vector<std::string> puts;
  for (const auto& line : s3_.log()) {
    if (line.starts_with("PUT ")) puts.push_back(line.substr(line.rfind('/') + 1));
  }
  ASSERT_EQ(puts.size(), 4U);
  EXPECT_THAT(puts.back(), HasSubstr("manifest.json"));
  std::atomic<bool> conditional = false;
  s3_.intercept = [&](const TestRequest& request) -> std::optional<TestReply> {
    if (request.target.ends_with("manifest.json") && request.method == "PUT")
      conditional = request.header("if-none-match") == "*";
    return std::nullopt;
  };
  Save(1, 20);
  EXPECT_TRUE(conditional);
}

TEST_F(InS3, AManifestOfAnotherProcessIsNeverOverwritten) {
  s3_.intercept = [&](const TestRequest& request) -> std::optional<TestReply> {
    if (request.target.ends_with("state.json") && request.method == "PUT")
      s3_.Set(At("g1/step10/manifest.json"), "theirs");
    return std::nullopt;
  };
  const auto saved = TryToSave(1, 10);
  ASSERT_FALSE(saved);
  EXPECT_EQ(saved.error().code, ErrorCode::kFailedPrecondition);
  EXPECT_THAT(saved.error().message, HasSubstr("another process has completed s3://b/ckpt/rn 50/g1/step10"));
  EXPECT_EQ(s3_.Objects().at(At("g1/step10/manifest.json")), "theirs");
}

TEST_F(InS3, OneThatIsCutShortIsNoneAndSaysWhatFailed) {
  s3_.intercept = [](const TestRequest& request) -> std::optional<TestReply> {
    if (request.method != "PUT" || !request.target.ends_with("optimizer.safetensors")) return std::nullopt;
    return TestReply{.status = 503, .body = "<Error><Code>SlowDown</Code></Error>"};
  };
  const auto saved = TryToSave(1, 10);
  ASSERT_FALSE(saved);
  EXPECT_EQ(saved.error().code, ErrorCode::kInternal) << "no broken collective";
  EXPECT_THAT(saved.error().message, AllOf(HasSubstr("cannot upload a checkpoint: cannot write "
                                                     "s3://b/ckpt/rn 50/g1/step10/optimizer.safetensors"),
                                           HasSubstr("503 SlowDown")));
  EXPECT_FALSE(fs::exists(staging_));
  s3_.intercept = {};
  EXPECT_THAT(All(), IsEmpty());
  EXPECT_THAT(Unfinished(), ElementsAre("g1/step10"));
  Prune(Save(2, 10), {});
  EXPECT_THAT(Unfinished(), IsEmpty());
}

TEST_F(InS3, SizesAreComparedBeforeTheManifest) {
  s3_.intercept = [&](const TestRequest& request) -> std::optional<TestReply> {
    if (request.target.find("list-type=2") == std::string::npos) return std::nullopt;
    if (s3_.Objects().contains(At("g1/step10/model.safetensors")))
      s3_.Set(At("g1/step10/model.safetensors"), "short");
    return std::nullopt;
  };
  const auto saved = TryToSave(1, 10);
  ASSERT_FALSE(saved);
  EXPECT_THAT(saved.error().message,
              HasSubstr("g1/step10/model.safetensors: 5 bytes are there where 13 were sent"));
  EXPECT_FALSE(s3_.Objects().contains(At("g1/step10/manifest.json")));
}

TEST_F(InS3, ADamagedOneIsSeenAndTheOneBeforeIsThere) {
  const auto older = Save(1, 10);
  const auto newer = Save(1, 20);
  s3_.Set(At("g1/step20/model.safetensors"), "weights of 2O");
  EXPECT_EQ(ReadCheckpoint(store_, newer).error().code, ErrorCode::kDataLoss);
  s3_.Set(At("g1/step20/model.safetensors"), "weig");
  EXPECT_EQ(ReadCheckpoint(store_, newer).error().code, ErrorCode::kDataLoss);
  s3_.Remove(At("g1/step20/model.safetensors"));
  const auto lacking = ReadCheckpoint(store_, newer);
  EXPECT_EQ(lacking.error().code, ErrorCode::kNotFound);
  EXPECT_THAT(lacking.error().message, HasSubstr("s3://b/ckpt/rn 50/g1/step20/model.safetensors"));
  const auto candidates = ResumeCandidates(store_, std::nullopt);
  EXPECT_THAT(Names(*candidates), ElementsAre("g1/step20", "g1/step10"));
  EXPECT_TRUE(ReadCheckpoint(store_, older));
}

TEST_F(InS3, AStartGoesOnFromAcceptedOnesAndTheLastGenerations) {
  Save(1, 10);
  const auto accepted = Save(1, 20);
  Save(2, 30);
  Save(3, 40);
  const fs::path file = staging_.parent_path() / "resume.json";
  const nlohmann::json json = {{"accepted", {accepted.path.native(), "s3://b/ckpt/rn 50/g1/step99"}},
                               {"last_generation", 2}};
  ASSERT_TRUE(WriteFileAtomically(file, json.dump()));
  const auto candidates = ResumeCandidates(store_, file);
  ASSERT_TRUE(candidates) << candidates.error().ToString();
  EXPECT_THAT(Names(*candidates), ElementsAre("g2/step30", "g1/step20"));
}

TEST_F(InS3, AnOlderGenerationThatComesLateTakesNothingFromANewerOne) {
  const S3Checkpoints of_old(Folder(), staging_.parent_path() / "old");
  auto old = of_old.Begin(1, 10);
  ASSERT_TRUE(old) << old.error().ToString();
  ASSERT_TRUE(old->Add("state.json", {"{\"step\":10}"}));
  const auto newer = Save(2, 10);
  const auto before = s3_.Objects();
  const auto committed = of_old.Commit(std::move(*old));
  ASSERT_TRUE(committed) << committed.error().ToString();
  EXPECT_THAT(All(), ElementsAre("g2/step10", "g1/step10"));
  for (const auto& [name, content] : before) EXPECT_EQ(s3_.Objects().at(name), content) << name;
  const fs::path file = staging_.parent_path() / "resume.json";
  const nlohmann::json json = {{"accepted", {newer.path.native()}}, {"last_generation", 2}};
  ASSERT_TRUE(WriteFileAtomically(file, json.dump()));
  const auto candidates = ResumeCandidates(store_, file);
  ASSERT_TRUE(candidates) << candidates.error().ToString();
  EXPECT_THAT(Names(*candidates), ElementsAre("g2/step10"));
}

TEST_F(InS3, TheRuleDecidesWhichStay) {
  Save(1, 10, 0.9);
  Save(1, 20, 0.1);
  const auto pinned = Save(1, 30, 0.2);
  Save(1, 40, 0.3);
  ASSERT_TRUE(store_.Pin(pinned, "the one in the paper"));
  Save(3, 5);
  Prune(Save(2, 50), {.newest = 2, .best = 1, .every_steps = 20});
  EXPECT_THAT(All(),
              ElementsAre("g3/step5", "g2/step50", "g1/step40", "g1/step30", "g1/step20", "g1/step10"));
  Prune(Save(2, 60), {.newest = 1, .best = 1});
  EXPECT_THAT(All(), ElementsAre("g3/step5", "g2/step60", "g1/step30", "g1/step10"));
  EXPECT_FALSE(store_.Remove(pinned).value());
  EXPECT_EQ(TryToSave(1, 30).error().code, ErrorCode::kAlreadyExists);
  ASSERT_TRUE(store_.Unpin(pinned));
  EXPECT_TRUE(store_.Remove(pinned).value());
  EXPECT_THAT(Unfinished(), IsEmpty()) << "nothing is left of it";
  EXPECT_EQ(store_.Pin(pinned, "too late").error().code, ErrorCode::kNotFound);
}

TEST_F(InS3, APinThatComesWhileItIsRemovedBringsItBack) {
  const auto ref = Save(1, 10);
  s3_.intercept = [&](const TestRequest& request) -> std::optional<TestReply> {
    if (request.method == "DELETE" && request.target.ends_with("manifest.json"))
      s3_.Set(At("g1/step10/pinned"), "just now");
    return std::nullopt;
  };
  EXPECT_FALSE(store_.Remove(ref).value());
  EXPECT_TRUE(ReadCheckpoint(store_, ref));
  EXPECT_FALSE(s3_.Objects().contains(At("g1/step10/removing.json")));
}

TEST_F(InS3, ARemovalThatWasBrokenOffEndsOrIsUndone) {
  Save(1, 10);
  Save(1, 20);
  for (const char* step : {"g1/step10/", "g1/step20/"}) {
    s3_.Set(At(step) + "removing.json", s3_.Objects().at(At(step) + "manifest.json"));
    s3_.Remove(At(step) + "manifest.json");
  }
  s3_.Set(At("g1/step20/pinned"), "in the meantime");
  ASSERT_TRUE(store_.RemoveUnfinished(1));
  EXPECT_THAT(All(), ElementsAre("g1/step20"));
  EXPECT_THAT(Unfinished(), IsEmpty());
}

TEST_F(InS3, ALaterGenerationsAreNotOursToRemove) {
  s3_.Set(At("g3/step20/model.safetensors"), "it is being written");
  s3_.Set(At("g1/step20/model.safetensors"), "left by a kill");
  s3_.Set(At("notes.txt"), "nobody's");
  Prune(Save(2, 20), {});
  EXPECT_THAT(Unfinished(), ElementsAre("g3/step20"));
  EXPECT_TRUE(s3_.Objects().contains(At("notes.txt")));
}

TEST_F(InS3, OneOfTheSameStepIsReplaced) {
  Save(0, 10, 0.5);
  s3_.Set(At("g0/step10/model.safetensors"), "damaged");
  const auto ref = Save(0, 10);
  EXPECT_TRUE(ReadCheckpoint(store_, ref));
  EXPECT_FALSE(s3_.Objects().contains(At("g0/step10/validation.json"))) << "that was of the other one";
}

TEST_F(InS3, WhatWouldKeepOneFromBeingWrittenIsFoundBefore) {
  EXPECT_TRUE(store_.TryToWrite());
  EXPECT_THAT(s3_.Objects(), IsEmpty());
  s3_.secret_key = "another";
  EXPECT_THAT(store_.TryToWrite().error().ToString(), HasSubstr("403 SignatureDoesNotMatch"));
  EXPECT_THAT(OpenCheckpoints("s3://", {}, s3_.Environment()).error().message, HasSubstr("no host"));
  const auto other = OpenCheckpoints("s3://none/x", {}, s3_.Environment());
  ASSERT_TRUE(other);
  s3_.secret_key = "SK";
  EXPECT_THAT((*other)->TryToWrite().error().ToString(), HasSubstr("404 NoSuchBucket"));
}

}  // namespace
}  // namespace imgd
