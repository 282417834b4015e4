#include "common/checkpoint/retention.h"

#include <algorithm>
#include <thread>

#include "common/files.h"
#include "imgd/v1/admin.grpc.pb.h"
#include "imgd/v1/event.grpc.pb.h"
#include "server/retention/checkpoint_keeper.h"
#include "server/rpc/testing/rpc_fixture.h"

namespace imgd {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;

/// Jobs that have ended, and what they left in folders that imgd sees.
struct CheckpointRetention : RpcTest {
  /// A job that was cancelled, with complete checkpoints of 100 bytes each.
  uint64_t Ended(const std::vector<int>& steps) {
    const uint64_t id = Live(steps);
    EXPECT_TRUE(Cancel(id).ok());
    return id;
  }
  uint64_t Live(const std::vector<int>& steps) {
    const uint64_t id = Submit(kJob);
    for (const int step : steps) Write(Folder(id, step));
    return id;
  }
  void Write(const fs::path& at) {
    EXPECT_TRUE(MakeFolders(at));
    EXPECT_TRUE(WriteFileAtomically(at / "manifest.json", R"({"files": [{"name": "model", "size": 100}]})"));
  }
  fs::path Folder(uint64_t id, int step) {
    return fs::path(Get(id).job().checkpoint_dir()) / "g1" / fmt::format("step{}", step);
  }
  fs::path Elsewhere() { return folder / "elsewhere"; }
  /// A job that was cancelled and whose folder is a link to others' checkpoints. Returns the folder.
  fs::path EndedAsLink() {
    Write(Elsewhere() / "g1/step5");
    const uint64_t id = Submit(kJob);
    const fs::path root = Get(id).job().checkpoint_dir();
    EXPECT_TRUE(MakeFolders(root.parent_path()));
    fs::create_directory_symlink(Elsewhere(), root);
    EXPECT_TRUE(Cancel(id).ok());
    return root;
  }
  bool IsThere(uint64_t id, int step) { return IsCheckpoint(Folder(id, step)); }

  /// Starts again with these limits, of which imgd takes the checkpoints' at once, and waits for what it
  /// says.
  std::string RestartAndAwait(int64_t kept_for_ms, int64_t total_bytes, const char* words = "were removed") {
    daemon.reset();
    config.checkpoints_kept_for_ms = kept_for_ms;
    config.checkpoints_total_bytes = total_bytes;
    StartDaemon();
    for (int i = 0; i < 600; ++i) {
      v1::ListEventsResponse response;
      Context context;
      EXPECT_TRUE(v1::EventService::NewStub(channel)->ListEvents(&context, {}, &response).ok());
      for (const auto& event : response.events()) {
        if (event.text().find(words) != std::string::npos) return event.text();
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
    return "no event";
  }
  v1::RetainedKind Shown() {
    v1::ShowRetentionResponse response;
    Context context;
    EXPECT_TRUE(v1::AdminService::NewStub(channel)->ShowRetention(&context, {}, &response).ok());
    return response.kinds(2);
  }
};

TEST_F(CheckpointRetention, WhatIsTooMuchGoesFromTheJobsThatEndedFirst) {
  const uint64_t live = Live({1});
  const uint64_t first = Ended({10, 20});
  const uint64_t second = Ended({10});
  EXPECT_EQ(Shown().bytes(), 400u);
  const std::string said = RestartAndAwait(0, 250);
  EXPECT_FALSE(IsThere(first, 10));
  EXPECT_FALSE(IsThere(first, 20));
  EXPECT_TRUE(IsThere(second, 10));
  EXPECT_TRUE(IsThere(live, 1));
  EXPECT_THAT(
      said,
      HasSubstr("2 checkpoints (0.000 GB) of 1 job that had ended were removed: 0 by checkpoints_kept_for, "
                "2 by checkpoints_total_bytes: "));
  EXPECT_THAT(said, HasSubstr("g1/step10"));
  EXPECT_EQ(Shown().going_jobs(), 0u);
}

TEST_F(CheckpointRetention, NothingOfAJobThatHasNotEndedGoesNorWhatIsPinned) {
  const uint64_t live = Live({1, 2});
  const uint64_t ended = Ended({10, 20});
  ASSERT_TRUE(PinCheckpoint(Folder(ended, 10), "the one in the paper"));
  const std::string said = RestartAndAwait(1, 1);
  EXPECT_THAT(
      said,
      HasSubstr("1 checkpoint (0.000 GB) of 1 job that had ended were removed: 1 by checkpoints_kept_for"));
  EXPECT_TRUE(IsThere(ended, 10));
  EXPECT_FALSE(IsThere(ended, 20));
  EXPECT_TRUE(IsThere(live, 1));
  EXPECT_TRUE(IsThere(live, 2));
}

TEST_F(CheckpointRetention, WhatAJobIsToBeginWithStays) {
  const uint64_t wanted = Ended({10});
  const uint64_t other = Ended({10});
  Submit(fmt::format("name: next\nmodel: {{init_from: {}/model.safetensors}}\ndata: {{train: /data/train}}\n",
                     Folder(wanted, 10).native()));
  RestartAndAwait(1, 0);
  EXPECT_TRUE(IsThere(wanted, 10));
  EXPECT_FALSE(IsThere(other, 10));
}

TEST_F(CheckpointRetention, ALinkIsNotFollowedToOthersCheckpoints) {
  EndedAsLink();
  const uint64_t honest = Ended({10});
  EXPECT_THAT(RestartAndAwait(1, 0), HasSubstr("; 1 could not be: "));
  EXPECT_TRUE(IsCheckpoint(Elsewhere() / "g1/step5"));
  EXPECT_FALSE(IsThere(honest, 10));
}

TEST_F(CheckpointRetention, WhereNothingCanBeRemovedAnEventSaysWhyOnce) {
  const fs::path root = EndedAsLink();
  EXPECT_EQ(RestartAndAwait(1, 0, "could not be removed"),
            fmt::format("1 checkpoint of jobs that had ended could not be removed: {} is a "
                        "link, which imgd does not follow",
                        root.native()));
}

TEST(CheckpointKeeper, WhatFailsAgainIsToldOnceAndWhatElseFailsIsToldToo) {
  const PruneFailures one{.count = 1, .first = "Read-only file system"};
  EXPECT_TRUE(IsNews({}, one, {}));
  EXPECT_FALSE(IsNews({}, one, one));
  EXPECT_TRUE(IsNews({}, {.count = 2, .first = one.first}, one));
  EXPECT_TRUE(IsNews({PrunedCheckpoint{}}, {}, one));
  EXPECT_FALSE(IsNews({}, {}, one)) << "there is nothing to remove any more";
}

TEST_F(CheckpointRetention, WhatWouldGoIsShownAndIsThereAllTheSame) {
  const uint64_t id = Ended({10, 20});
  auto reader = Reader::Open(folder);
  ASSERT_TRUE(reader.has_value());
  v1::ShowRetentionResponse shown;
  ASSERT_TRUE(FillRetention({.checkpoints = {.kept_for = std::chrono::microseconds(1)}},
                            {clock.Wall().micros + 1'000'000}, *reader, shown));
  EXPECT_THAT(shown.kinds(2).folders(), ElementsAre(Folder(id, 10).native(), Folder(id, 20).native()));
  EXPECT_EQ(shown.kinds(2).going_bytes(), 200u);
  EXPECT_TRUE(IsThere(id, 10));
}

TEST(TextOfPruned, NamesTheFirstOfMany) {
  std::vector<PrunedCheckpoint> removed;
  for (uint64_t step = 1; step <= 8; ++step) {
    removed.push_back(
        {.job = JobId(1),
         .checkpoint = {.ref = {.path = fmt::format("/c/g1/step{}", step), .generation = 1, .step = step},
                        .size_bytes = 1'000'000'000},
         .is_old = step < 3});
  }
  EXPECT_EQ(
      TextOfPruned(removed, {}),
      "8 checkpoints (8.000 GB) of 1 job that had ended were removed: 2 by checkpoints_kept_for, 6 by "
      "checkpoints_total_bytes: /c/g1/step1, /c/g1/step2, /c/g1/step3, /c/g1/step4, /c/g1/step5, 3 more");
}

}  // namespace
}  // namespace imgd
