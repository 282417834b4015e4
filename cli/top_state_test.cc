#include "cli/top_state.h"

#include <gmock/gmock.h>

#include "cli/testing/fake_daemon.h"

namespace imgd::cli {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using Kind = Key::Kind;

std::vector<Key> Typed(std::string_view text) { return KeyReader().Take(text); }

TEST(Keys, AreReadFromWhatTerminalsSend) {
  const struct {
    std::string_view bytes;
    Kind kind;
  } kTable[] = {
      {"\x1b[A", Kind::kUp},        {"\x1bOB", Kind::kDown}, {"\x1b[5~", Kind::kPageUp},
      {"\x1b[6~", Kind::kPageDown}, {"\x1b[H", Kind::kHome}, {"\x1b[1~", Kind::kHome},
      {"\x1bOF", Kind::kEnd},       {"\r", Kind::kEnter},    {"\n", Kind::kEnter},
      {"\t", Kind::kTab},           {"\x7f", Kind::kErase},  {"\b", Kind::kErase},
  };
  for (const auto& row : kTable)
    EXPECT_THAT(Typed(row.bytes), ElementsAre(Key{.kind = row.kind})) << row.bytes;
  EXPECT_THAT(Typed("jé"), ElementsAre(Key{.text = "j"}, Key{.text = "é"}));
  EXPECT_THAT(Typed("\x1b[15~\x1b[?1;2c\x01"), IsEmpty()) << "keys that have no use here";
}

TEST(Keys, MayComeInPieces) {
  KeyReader reader;
  EXPECT_THAT(reader.Take("\x1b"), IsEmpty());
  EXPECT_TRUE(reader.Pending());
  EXPECT_THAT(reader.Take("[A\x1b"), ElementsAre(Key{.kind = Kind::kUp}));
  EXPECT_THAT(reader.Settle(), ElementsAre(Key{.kind = Kind::kEscape})) << "nothing came after it";
  EXPECT_THAT(reader.Take("\xc3"), IsEmpty());
  EXPECT_THAT(reader.Take("\xa9"), ElementsAre(Key{.text = "é"}));
}

TopData Jobs() {
  TopData data;
  data.jobs = {MakeJob(12, "rn50", v1::JOB_STATE_RUNNING), MakeJob(13, "big", v1::JOB_STATE_QUEUED),
               MakeJob(7, "old", v1::JOB_STATE_FAILED)};
  return data;
}

/// What the keys left, and the last thing that one asked for.
struct Pressed {
  TopState state;
  TopAct act;
};
Pressed Press(std::string_view keys, TopState state = {}, const TopData& data = Jobs()) {
  Pressed pressed{.state = std::move(state)};
  KeyReader reader;
  auto all = reader.Take(keys);
  for (const auto& key : reader.Settle()) all.push_back(key);
  for (const auto& key : all) pressed.act = OnKey(pressed.state, data, key, /*page=*/2);
  return pressed;
}

TEST(TopState, ArrowsAndLettersMoveAmongTheJobs) {
  const struct {
    std::string_view keys;
    uint64_t chosen;
  } kTable[] = {
      {"j", 13}, {"jj", 7},  {"jjj", 7},     {"jk", 12},     {"k", 12},
      {"G", 7},  {"Gg", 12}, {"\x1b[B", 13}, {"\x1b[6~", 7}, {"\x1b[6~\x1b[5~", 12},
  };
  for (const auto& row : kTable) EXPECT_EQ(Press(row.keys).state.chosen_job, row.chosen) << row.keys;
}

TEST(TopState, EnterOrANumberOpensAJobAndQGoesBack) {
  EXPECT_EQ(Press("j\r").state.open_job, 13u);
  EXPECT_EQ(Press("j\r").state.view, TopState::View::kJob);
  EXPECT_EQ(Press("412\r").state.open_job, 412u) << "also one that is not in the table";
  EXPECT_EQ(Press("419\x7f\x7f"
                  "2\r")
                .state.open_job,
            42u);
  EXPECT_EQ(Press("j\rq").state.view, TopState::View::kCluster);
  EXPECT_EQ(Press("j\rq").state.chosen_job, 13u);
  EXPECT_EQ(Press("41\x1b").state.view, TopState::View::kCluster);
  EXPECT_EQ(Press("q").act.kind, TopAct::Kind::kQuit);
  EXPECT_EQ(Press("\x1b").act.kind, TopAct::Kind::kQuit);
  EXPECT_EQ(Press("\rq").act.kind, TopAct::Kind::kNone);
}

TEST(TopState, ASlashFiltersJobsWhileItIsTyped) {
  const auto shown = [](const TopState& state) {
    std::vector<uint64_t> ids;
    const auto data = Jobs();
    for (const auto* job : ShownJobs(state, data)) ids.push_back(job->id());
    return ids;
  };
  EXPECT_THAT(shown(Press("/RN").state), ElementsAre(12));
  EXPECT_THAT(shown(Press("/queued\r").state), ElementsAre(13)) << "by state";
  EXPECT_THAT(shown(Press("/q").state), ElementsAre(13)) << "a letter, not a command";
  EXPECT_THAT(shown(Press("/rn\x1b").state), ElementsAre(12, 13, 7));
  EXPECT_THAT(Press("/rn\r\x1b").act.kind, TopAct::Kind::kNone) << "Esc first undoes the filter";
  EXPECT_EQ(Press("/big\r\r").state.open_job, 13u);
}

TEST(TopState, CancellingIsAskedAndMeansTheJobThatWasAskedAbout) {
  EXPECT_EQ(Press("c").act.kind, TopAct::Kind::kNone);
  const auto yes = Press("jcy").act;
  EXPECT_EQ(yes.kind, TopAct::Kind::kCancel);
  EXPECT_EQ(yes.job, 13u);
  EXPECT_FALSE(yes.checkpoint);
  EXPECT_TRUE(Press("jcs").act.checkpoint);
  for (const std::string_view no : {"cn", "c\r", "c\x1b", "cq", "cj"}) {
    EXPECT_EQ(Press(no).act.kind, TopAct::Kind::kNone) << no;
    EXPECT_EQ(Press(no).state.prompt, TopState::Prompt::kNone) << no;
  }
  EXPECT_EQ(Press("jjcy").act.kind, TopAct::Kind::kNone) << "it has ended";
  // The table is another one when the answer comes.
  const auto asked = Press("c");
  TopData later;
  later.jobs = {MakeJob(99, "other", v1::JOB_STATE_RUNNING)};
  EXPECT_EQ(Press("y", asked.state, later).act.job, 12u);
}

TEST(TopState, AnyKeyLeavesTheHelp) {
  EXPECT_TRUE(Press("?").state.help);
  EXPECT_FALSE(Press("?q").state.help);
  EXPECT_EQ(Press("?q").act.kind, TopAct::Kind::kNone);
}

TEST(TopData, JobsThatHoldNodesComeFirstThenTheQueueThenWhatHasEnded) {
  std::vector<v1::Job> jobs;
  const struct {
    uint64_t id;
    v1::JobState state;
    uint32_t position;
  } kTable[] = {{1, v1::JOB_STATE_COMPLETED, 0}, {2, v1::JOB_STATE_FAILED, 0},  {3, v1::JOB_STATE_QUEUED, 2},
                {4, v1::JOB_STATE_PAUSED, 0},    {5, v1::JOB_STATE_QUEUED, 0},  {6, v1::JOB_STATE_QUEUED, 1},
                {7, v1::JOB_STATE_RUNNING, 0},   {8, v1::JOB_STATE_STARTING, 0}};
  for (const auto& row : kTable) {
    jobs.push_back(MakeJob(row.id, "x", row.state));
    jobs.back().set_queue_position(row.position);
  }
  SortForTop(jobs);
  std::vector<uint64_t> ids;
  for (const auto& job : jobs) ids.push_back(job.id());
  EXPECT_THAT(ids, ElementsAre(7, 8, 6, 3, 5, 4, 2, 1));
}

}  // namespace
}  // namespace imgd::cli
