#include "common/checkpoint/checkpoint.h"

#include <gmock/gmock.h>
#include <stdlib.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "common/checkpoint/store.h"
#include "common/files.h"
#include "common/sha256.h"

namespace imgd {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class Checkpoint : public testing::Test {
 protected:
  Checkpoint() {
    std::string pattern = (fs::temp_directory_path() / "checkpoint-XXXXXX").string();
    root_ = ::mkdtemp(pattern.data());
  }
  ~Checkpoint() override { fs::remove_all(root_); }

  /// A complete checkpoint with little in it.
  CommittedCheckpoint Write(uint64_t generation, uint64_t step) {
    auto writer = CheckpointWriter::Begin(root_, generation, step);
    EXPECT_TRUE(writer.has_value());
    EXPECT_TRUE(writer->AddTensors("model.safetensors", {{"w", "U8", {4}, "1234"}}, {}).has_value());
    EXPECT_TRUE(writer->AddTensors("optimizer.safetensors", {}, {}).has_value());
    EXPECT_TRUE(writer->Add("state.json", {"{\"step\":", std::to_string(step), "}"}).has_value());
    auto committed = writer->Commit();
    EXPECT_TRUE(committed.has_value());
    return *committed;
  }

  std::vector<std::string> Names(const Result<std::vector<CheckpointRef>>& refs) const {
    std::vector<std::string> out;
    for (const auto& ref : *refs) out.push_back(fs::relative(ref.path, root_));
    return out;
  }

  std::vector<std::string> All() const { return Names(ListCheckpoints(root_)); }

  fs::path ResumeFile(const std::string& json) {
    const fs::path path = root_ / "resume.json";
    EXPECT_TRUE(WriteFileAtomically(path, json).has_value());
    return path;
  }

  fs::path root_;
};

TEST_F(Checkpoint, ListsItsFilesInAManifestThatSaysWhatTheyAre) {
  const auto committed = Write(2, 30);
  EXPECT_EQ(committed.ref.path, root_ / "g2" / "step30");
  const std::string text = *ReadFile(committed.ref.path / "manifest.json");
  EXPECT_EQ(committed.manifest_sha256, Sha256Of(text));
  const auto manifest = nlohmann::json::parse(text);
  EXPECT_EQ(manifest["step"], 30);
  EXPECT_EQ(manifest["generation"], 2);
  uint64_t total = text.size();
  for (const auto& file : manifest["files"]) {
    const std::string content = *ReadFile(committed.ref.path / file["name"].get<std::string>());
    EXPECT_EQ(file["size"], content.size());
    EXPECT_EQ(file["sha256"], Sha256Of(content));
    total += content.size();
  }
  EXPECT_EQ(manifest["files"].size(), 3U);
  EXPECT_EQ(committed.size_bytes, total);
}

TEST_F(Checkpoint, IsReadBackAsItWasWritten) {
  const auto committed = Write(0, 7);
  const auto content = ReadCheckpoint(LocalCheckpoints(root_), committed.ref);
  ASSERT_TRUE(content.has_value()) << content.error().ToString();
  EXPECT_EQ(content->state, "{\"step\":7}");
  EXPECT_EQ(ParseSafetensors(content->model)->Find("w")->bytes, "1234");
}

TEST_F(Checkpoint, DoesNotExistBeforeItsManifestAndLeavesNothingWhenGivenUp) {
  {
    auto writer = CheckpointWriter::Begin(root_, 1, 5);
    ASSERT_TRUE(writer->Add("state.json", {"{}"}).has_value());
    EXPECT_THAT(All(), IsEmpty());
  }
  EXPECT_FALSE(fs::exists(root_ / "g1" / "step5"));
}

TEST_F(Checkpoint, StopsBeingCompleteWhileItIsWrittenAnew) {
  Write(0, 5);
  auto writer = CheckpointWriter::Begin(root_, 0, 5);
  ASSERT_TRUE(writer.has_value());
  EXPECT_THAT(All(), IsEmpty());
}

TEST_F(Checkpoint, AFileThatChangedIsFoundAndNamed) {
  const auto committed = Write(0, 5);
  std::ofstream(committed.ref.path / "model.safetensors", std::ios::app) << "x";
  const auto content = ReadCheckpoint(LocalCheckpoints(root_), committed.ref);
  ASSERT_FALSE(content.has_value());
  EXPECT_EQ(content.error().code, ErrorCode::kDataLoss);
  EXPECT_THAT(content.error().message, HasSubstr("model.safetensors"));
}

TEST_F(Checkpoint, AFileThatWasCutShortIsFoundAndNamed) {
  for (const char* name : {"model.safetensors", "optimizer.safetensors", "state.json"}) {
    const auto committed = Write(0, 5);
    const fs::path file = committed.ref.path / name;
    fs::resize_file(file, fs::file_size(file) - 1);
    const auto content = ReadCheckpoint(LocalCheckpoints(root_), committed.ref);
    ASSERT_FALSE(content.has_value()) << name;
    EXPECT_EQ(content.error().code, ErrorCode::kDataLoss);
    EXPECT_THAT(content.error().message, HasSubstr(name));
  }
}

TEST_F(Checkpoint, AFileOfTheRightLengthWithOtherBytesIsFoundToo) {
  const auto committed = Write(0, 5);
  std::ofstream(committed.ref.path / "state.json") << "{\"step\":6}";
  EXPECT_EQ(ReadCheckpoint(LocalCheckpoints(root_), committed.ref).error().code, ErrorCode::kDataLoss);
}

TEST_F(Checkpoint, ADamagedManifestIsNoManifest) {
  const auto committed = Write(0, 5);
  std::ofstream(committed.ref.path / "manifest.json") << "{\"format\": 1";
  EXPECT_EQ(ReadCheckpoint(LocalCheckpoints(root_), committed.ref).error().code, ErrorCode::kDataLoss);
}

TEST_F(Checkpoint, OneThatANewerProgramWroteSaysSo) {
  const auto committed = Write(0, 5);
  std::ofstream(committed.ref.path / "manifest.json") << R"({"format": 7, "files": []})";
  const auto content = ReadCheckpoint(LocalCheckpoints(root_), committed.ref);
  ASSERT_FALSE(content.has_value());
  EXPECT_EQ(content.error().code, ErrorCode::kDataLoss);
  EXPECT_THAT(content.error().message,
              HasSubstr("of format 7, which a newer imgtrain wrote; this one reads format 1"));
}

TEST_F(Checkpoint, NewestMeansLatestGenerationThenLatestStep) {
  Write(1, 100);
  Write(1, 20);
  Write(2, 30);
  fs::create_directories(root_ / "g2" / "step999");  // incomplete
  fs::create_directories(root_ / "other" / "step1");
  EXPECT_THAT(All(), ElementsAre("g2/step30", "g1/step100", "g1/step20"));
}

TEST_F(Checkpoint, AFolderThatIsNotThereHasNone) {
  EXPECT_THAT(*ListCheckpoints(root_ / "nothing"), IsEmpty());
  EXPECT_THAT(*ResumeCandidates(LocalCheckpoints(root_ / "nothing"), std::nullopt), IsEmpty());
}

TEST_F(Checkpoint, AResumeTakesOnlyAcceptedOnesAndThoseOfTheLastGeneration) {
  Write(1, 10);
  Write(1, 20);  // of a generation that was cut off: nobody accepted it
  Write(2, 15);
  const auto file = ResumeFile(nlohmann::json{
      {"accepted", {(root_ / "g1" / "step10").string(), (root_ / "g1" / "step5").string()}},
      {"last_generation", 2}}.dump());
  EXPECT_THAT(Names(ResumeCandidates(LocalCheckpoints(root_), file)), ElementsAre("g2/step15", "g1/step10"));
}

TEST_F(Checkpoint, AnAcceptedOneOfTheLastGenerationCountsOnce) {
  Write(1, 10);
  const auto file = ResumeFile(
      nlohmann::json{{"accepted", {(root_ / "g1" / "step10").string()}}, {"last_generation", 1}}.dump());
  EXPECT_THAT(Names(ResumeCandidates(LocalCheckpoints(root_), file)), ElementsAre("g1/step10"));
}

// A rank that was cut off from its daemon, and still writes when its job has long begun anew elsewhere.
TEST_F(Checkpoint, AnOlderGenerationThatComesLateTakesNothingFromANewerOne) {
  auto old = CheckpointWriter::Begin(root_, 1, 10);
  ASSERT_TRUE(old.has_value());
  ASSERT_TRUE(old->Add("model.safetensors", {"stale"}).has_value());
  const auto newer = Write(2, 10);
  ASSERT_TRUE(old->Add("state.json", {"{\"step\":10}"}).has_value());
  ASSERT_TRUE(old->Commit().has_value());
  EXPECT_THAT(All(), ElementsAre("g2/step10", "g1/step10")) << "each in a folder of its own";
  EXPECT_EQ(Sha256Of(*ReadFile(newer.ref.path / "manifest.json")), newer.manifest_sha256);
  const auto content = ReadCheckpoint(LocalCheckpoints(root_), newer.ref);
  ASSERT_TRUE(content.has_value()) << content.error().ToString();
  EXPECT_EQ(ParseSafetensors(content->model)->Find("w")->bytes, "1234");
  const auto file =
      ResumeFile(nlohmann::json{{"accepted", {newer.ref.path.string()}}, {"last_generation", 2}}.dump());
  EXPECT_THAT(Names(ResumeCandidates(LocalCheckpoints(root_), file)), ElementsAre("g2/step10"));
}

TEST_F(Checkpoint, ASeenResumeFileWithNothingInItMeansAFreshStart) {
  Write(1, 10);
  EXPECT_THAT(
      *ResumeCandidates(LocalCheckpoints(root_), ResumeFile(R"({"accepted": [], "last_generation": 0})")),
      IsEmpty());
}

TEST_F(Checkpoint, AMalformedResumeFileSaysWhatIsExpected) {
  EXPECT_THAT(ResumeCandidates(LocalCheckpoints(root_), ResumeFile("[]")).error().message,
              HasSubstr("a JSON object is expected"));
  EXPECT_THAT(
      ResumeCandidates(LocalCheckpoints(root_), ResumeFile(R"({"accepted": ["/x/latest"]})")).error().message,
      HasSubstr("'/x/latest' is no g<n>/step<n> folder"));
}

TEST_F(Checkpoint, AFullDiskIsNamedAndCostsNoOlderCheckpoint) {
  if (!fs::exists("/dev/full")) GTEST_SKIP() << "this machine has no /dev/full";
  Write(0, 5);
  auto writer = CheckpointWriter::Begin(root_, 0, 10);
  fs::create_symlink("/dev/full", root_ / "g0" / "step10" / "model.safetensors.tmp");
  const auto added = writer->Add("model.safetensors", {"1234"});
  ASSERT_FALSE(added.has_value());
  EXPECT_EQ(added.error().code, ErrorCode::kResourceExhausted);
  EXPECT_THAT(added.error().message, HasSubstr("g0/step10/model.safetensors"));
  EXPECT_THAT(All(), ElementsAre("g0/step5"));
}

}  // namespace
}  // namespace imgd
