#include "agent/supervisor.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <spdlog/sinks/ostream_sink.h>
#include <spdlog/spdlog.h>
#include <sys/socket.h>

#include <sstream>

#include "agent/testing/node.h"
#include "common/pulse.h"
#include "common/version.h"

namespace imgd {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

/// Writes events 1 to 100 at the pace of its lines: sequence N is a body of the two bytes 08 N.
constexpr const char* kCounting = R"sh(
i=1
while [ $i -le 100 ]; do
  echo "line $i"
  printf "\\002\\000\\000\\000\\010\\$(printf %03o $i)" >> $IMGD_RUN_DIR/events.$LOCAL_RANK
  i=$((i+1))
  sleep 0.02
done
)sh";

TEST(Supervisor, StartsARankForEachDeviceAndReportsHowTheyEnded) {
  TestNode node(2);
  node.Trainer("echo hello from $RANK of $WORLD_SIZE\necho oh no >&2\nexit $((RANK + 2))\n");
  node.Begin();
  node.Start(7, 1, 2);
  ASSERT_TRUE(node.UntilGone(7, 1));
  const auto status = node.Status(7, 1);
  ASSERT_EQ(status.exits_size(), 2);
  EXPECT_EQ(status.start_error(), "");
  EXPECT_EQ(status.exits(0).rank(), 1);
  EXPECT_EQ(status.exits(0).exit_code(), 3);
  EXPECT_EQ(status.exits(0).signal(), 0);
  EXPECT_EQ(status.exits(0).last_error_line(), "oh no");
  EXPECT_EQ(status.exits(1).rank(), 2);
  EXPECT_EQ(status.exits(1).exit_code(), 4);
  ASSERT_TRUE(node.UntilLine(7, 1, 2, "hello from 2 of 3"));
  EXPECT_THAT(node.store().Rank(7, 1, 1).Text(), testing::UnorderedElementsAre("hello from 1 of 3", "oh no"));
}

TEST(Supervisor, ARankIsToldAllThatItMustKnow) {
  TestNode node(1);
  node.Trainer(
      "echo $1; pwd; env; /bin/ls -m /proc/self/fd; grep -E 'Sig(Blk|Ign)' /proc/self/status; "
      "cat $1 $IMGD_RESUME; exit 0");
  node.Begin();
  auto start = TestNode::StartCommand(7, 3, 1);
  start.add_resume_from("/ckpt/g2/step9");
  start.set_last_generation(2);
  node.Start(start);
  ASSERT_TRUE(node.UntilGone(7, 3));
  ASSERT_TRUE(node.UntilLine(7, 3, 1, "name: test"));
  const auto dir = node.RunPath(7, 3).native();
  const auto text = node.store().Rank(7, 3, 1).Text();
  for (const std::string& line :
       {dir + "/job.yaml", std::string("/"), std::string("RANK=1"), std::string("WORLD_SIZE=2"),
        std::string("LOCAL_RANK=0"), std::string("LOCAL_WORLD_SIZE=1"), std::string("MASTER_ADDR=127.0.0.1"),
        std::string("MASTER_PORT=29500"), "IMGD_RUN_DIR=" + dir, std::string("IMGD_JOB_ID=7"),
        std::string("IMGD_JOB_NAME=test"), std::string("IMGD_GENERATION=3"),
        std::string("IMGD_CHECKPOINT_DIR=/nowhere/checkpoints"), "IMGD_RESUME=" + dir + "/resume.json",
        std::string("CUDA_VISIBLE_DEVICES="), std::string("IMGD_HOST_ADDRESS=127.0.0.1"),
        std::string("NCCL_SOCKET_IFNAME==lo")}) {
    EXPECT_THAT(text, Contains(line));
  }
  EXPECT_THAT(text, Contains(HasSubstr("/ckpt/g2/step9")));
  // Nothing of the agent's and the shim's is handed down: 3 is the folder that ls reads.
  EXPECT_THAT(text, Contains("0, 1, 2, 3"));
  EXPECT_THAT(text, Contains("SigBlk:\t0000000000000000"));
  // But for signals 32 and 33, which are glibc's own.
  EXPECT_THAT(text, Contains(testing::MatchesRegex("SigIgn:\t0000000[01][08]0000000")));
  EXPECT_THAT(text, testing::Not(Contains(HasSubstr("IMGD_MASTER_FD"))));
}

TEST(Supervisor, HoldsTheRendezvousPortAndHandsItToRankZero) {
  TestNode node(2);
  node.Trainer("echo fd $IMGD_MASTER_FD; ls -l /proc/self/fd | grep -c socket; sleep 600");
  node.Begin();
  node.Prepare(7, 1);
  node.Prepare(7, 1);
  ASSERT_THAT(node.prepared(), SizeIs(2));
  const uint32_t port = node.prepared()[0].port();
  EXPECT_EQ(node.prepared()[0].error(), "");
  EXPECT_EQ(node.prepared()[0].address(), "127.0.0.1");
  EXPECT_EQ(node.prepared()[1].port(), port);
  auto start = TestNode::StartCommand(7, 1, 2);
  start.set_first_rank(0);
  start.set_world_size(2);
  start.set_master_port(port);
  node.Start(start);
  ASSERT_TRUE(node.UntilPhase(7, 1, v1::RUN_PHASE_RUNNING));
  ASSERT_TRUE(node.UntilLine(7, 1, 0, "1"));
  EXPECT_THAT(node.store().Rank(7, 1, 0).Text(), ElementsAre("fd 3", "1"));
  ASSERT_TRUE(node.UntilLine(7, 1, 1, "0"));
  EXPECT_THAT(node.store().Rank(7, 1, 1).Text(), ElementsAre("fd", "0"));
  // It is held all the time: what connects now reaches rank 0.
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const UniqueFd client(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  EXPECT_EQ(::connect(client.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  node.Stop(7, 1, 1000);
  ASSERT_TRUE(node.UntilGone(7, 1));
}

TEST(Supervisor, RankZeroIsNotStartedWithoutItsPort) {
  TestNode node(1);
  node.Trainer("exit 0");
  node.Begin();
  auto start = TestNode::StartCommand(7, 1, 1);
  start.set_first_rank(0);
  node.Start(start);
  EXPECT_EQ(node.Status(7, 1).phase(), v1::RUN_PHASE_GONE);
  EXPECT_THAT(node.Status(7, 1).start_error(), HasSubstr("is not held here"));
  EXPECT_FALSE(std::filesystem::exists(node.RunPath(7, 1)));
}

TEST(Supervisor, ATrainerThatIsNotThereIsSaidInWords) {
  TestNode node(1);
  node.options().trainer = "/nonexistent/imgtrain";
  node.Begin();
  node.Start(7, 1, 1);
  ASSERT_TRUE(node.UntilGone(7, 1));
  EXPECT_EQ(node.Status(7, 1).start_error(),
            "cannot run the trainer /nonexistent/imgtrain: No such file or directory");
}

TEST(Supervisor, SaysWhichSignalEndedARank) {
  TestNode node(1);
  node.Trainer("echo working; printf 'half a line' >&2; exec sleep 600");
  node.Begin();
  node.Start(7, 1, 1);
  ASSERT_TRUE(node.UntilPhase(7, 1, v1::RUN_PHASE_RUNNING));
  ASSERT_TRUE(node.UntilLine(7, 1, 1, "working"));
  ASSERT_EQ(node.Status(7, 1).ranks_size(), 1);
  ::kill(static_cast<pid_t>(node.Status(7, 1).ranks(0).pid()), SIGKILL);
  ASSERT_TRUE(node.UntilGone(7, 1));
  ASSERT_EQ(node.Status(7, 1).exits_size(), 1);
  EXPECT_EQ(node.Status(7, 1).exits(0).signal(), SIGKILL);
  EXPECT_EQ(node.Status(7, 1).exits(0).last_error_line(), "half a line");
}

TEST(Supervisor, RefusesGenerationsThatWereOvertaken) {
  TestNode node(2);
  node.Trainer("sleep 600");
  node.Begin();
  node.Start(7, 5, 1);
  ASSERT_TRUE(node.UntilPhase(7, 5, v1::RUN_PHASE_RUNNING));
  node.Start(7, 4, 1);
  EXPECT_EQ(node.Status(7, 4).phase(), v1::RUN_PHASE_GONE);
  EXPECT_THAT(node.Status(7, 4).start_error(), HasSubstr("older than generation 5"));
  node.Prepare(7, 4);
  EXPECT_THAT(node.prepared().back().error(), HasSubstr("older than generation 5"));
  // Also in the agent's next life.
  node.Begin();
  node.Prepare(7, 4);
  EXPECT_THAT(node.prepared().back().error(), HasSubstr("older than generation 5"));
  node.Stop(7, 5, 0);
  ASSERT_TRUE(node.UntilGone(7, 5));
}

TEST(Supervisor, RunsBelongToTheClusterThatStartedThem) {
  TestNode node(2);
  node.Trainer(kCounting);
  node.cluster = "old";
  node.Begin();
  node.Start(1, 1, 1);
  ASSERT_TRUE(node.UntilLine(1, 1, 1, "line 10"));
  const auto pid = node.Status(1, 1).ranks(0).pid();
  const auto old_path = node.RunPath(1, 1);

  // A restarted agent is pointed at another daemon, which has a job 1 of its own.
  const Store old_store = std::exchange(node.store(), {});
  node.cluster = "new";
  node.Begin();
  node.ForgetStatuses();
  node.Stop(1, 1, 0);
  EXPECT_EQ(node.Status(1, 1).phase(), v1::RUN_PHASE_GONE) << "the new daemon's job 1 never ran";
  node.Start(1, 2, 1);
  EXPECT_THAT(node.Status(1, 2).start_error(), HasSubstr("device 0 is still held by run 1-1"));
  auto start = TestNode::StartCommand(1, 2, 1);
  start.set_devices(0, 1);
  node.Start(start);
  ASSERT_TRUE(node.UntilLine(1, 2, 1, "line 100"));
  ASSERT_TRUE(node.UntilGone(1, 2));
  EXPECT_EQ(node.store().Rank(1, 1, 1).last_line(), 0) << "nothing of the old run reached the new daemon";
  EXPECT_EQ(node.store().Rank(1, 1, 1).last_event, 0);
  EXPECT_TRUE(std::filesystem::exists(old_path));

  // Back with the old daemon, all that the run said since comes.
  node.store() = old_store;
  node.cluster = "old";
  node.ForgetStatuses();
  node.Begin();
  EXPECT_EQ(node.Status(1, 2).phase(), v1::RUN_PHASE_UNSPECIFIED);
  ASSERT_TRUE(node.UntilLine(1, 1, 1, "line 100"));
  ASSERT_TRUE(node.UntilGone(1, 1));
  EXPECT_EQ(node.Status(1, 1).exits(0).pid(), pid);
  EXPECT_EQ(node.Status(1, 1).exits(0).signal(), 0) << "nobody stopped it";
  EXPECT_THAT(node.store().Rank(1, 1, 1).faults, IsEmpty());
}

TEST(Supervisor, GenerationsOfOneClusterDoNotHoldUpAnother) {
  TestNode node(1);
  node.Trainer("exit 0");
  node.cluster = "old";
  node.Begin();
  node.Start(1, 5, 1);
  ASSERT_TRUE(node.UntilGone(1, 5));
  node.cluster = "new";
  node.Begin();
  node.Start(1, 1, 1);
  ASSERT_TRUE(node.UntilGone(1, 1));
  EXPECT_EQ(node.Status(1, 1).start_error(), "");
}

TEST(Supervisor, AStopThatComesBeforeItsStartWins) {
  TestNode node(1);
  node.Trainer("sleep 600");
  node.Begin();
  node.Stop(7, 1, 100);
  EXPECT_EQ(node.Status(7, 1).phase(), v1::RUN_PHASE_GONE);
  EXPECT_EQ(node.Status(7, 1).start_error(), "");
  node.Start(7, 1, 1);
  EXPECT_THAT(node.Status(7, 1).start_error(), HasSubstr("older than generation 2"));
  node.Prepare(8, 1);
  node.Stop(8, 1, 100);
  node.Prepare(8, 1);
  EXPECT_EQ(node.prepared().back().error(), "run 8-1 has ended here already");
  node.Start(7, 2, 1);
  ASSERT_TRUE(node.UntilPhase(7, 2, v1::RUN_PHASE_RUNNING));
}

TEST(Supervisor, ADeviceIsFreeOnlyWhenItsProcessesAreGone) {
  TestNode node(1);
  node.Trainer("sleep 600");
  node.Begin();
  node.Start(7, 1, 1);
  node.Start(8, 1, 1);
  EXPECT_THAT(node.Status(8, 1).start_error(), HasSubstr("device 0 is still held by run 7-1"));
  node.Start(9, 1, 2);
  EXPECT_THAT(node.Status(9, 1).start_error(), HasSubstr("device 0 is still held"));
  node.Stop(7, 1, 0);
  ASSERT_TRUE(node.UntilGone(7, 1));
  node.Start(9, 2, 2);
  EXPECT_THAT(node.Status(9, 2).start_error(), HasSubstr("no device 1"));
}

/// Nobody can open the file while this lives, as on a file server that does not answer.
class Lease {
 public:
  explicit Lease(const std::filesystem::path& file) : fd_(::open(file.c_str(), O_RDONLY | O_CLOEXEC)) {
    ::signal(SIGIO, SIG_IGN);  // somebody wants to
    EXPECT_EQ(::fcntl(fd_.get(), F_SETLEASE, F_WRLCK), 0) << std::strerror(errno);
  }

 private:
  UniqueFd fd_;
};

TEST(Supervisor, AStartThatHangsCanBeStopped) {
  TestNode node(1);
  node.Trainer("sleep 600");
  const Lease lease(node.options().trainer);
  node.Begin();
  node.Start(7, 1, 1);
  EXPECT_EQ(node.Status(7, 1).start_error(), "");
  node.Stop(7, 1, 60'000, true);
  ASSERT_TRUE(node.UntilGone(7, 1)) << "a start has nothing to save: the job's own grace time is enough";
  EXPECT_EQ(node.Record(7, 1).ranks[0].pid, 0) << "it never ran";
}

TEST(Supervisor, StopsATrainerThatObeysAtOnce) {
  TestNode node(1);
  node.Trainer("trap 'echo bye; exit 143' TERM\necho ready\nwhile :; do sleep 0.05; done");
  node.Begin();
  node.Start(7, 1, 1);
  ASSERT_TRUE(node.UntilLine(7, 1, 1, "ready"));
  node.Stop(7, 1, 60'000);
  EXPECT_EQ(node.Status(7, 1).phase(), v1::RUN_PHASE_STOPPING);
  ASSERT_TRUE(node.UntilGone(7, 1));
  EXPECT_EQ(node.Status(7, 1).exits(0).exit_code(), 143);
  EXPECT_TRUE(node.UntilLine(7, 1, 1, "bye"));
}

/// Starts two stand-ins that take commands, asks them to save and stop, and waits for their end.
void StopAfterCheckpoint(TestNode& node, const std::string& word) {
  node.options().trainer = IMGD_FAKE_TRAINER;
  node.Begin();
  auto start = TestNode::StartCommand(7, 1, 2);
  start.set_job_yaml("name: " + word);
  start.set_grace_ms(200);
  node.Start(start);
  ASSERT_TRUE(node.UntilLine(7, 1, 1, "ready"));
  ASSERT_TRUE(node.UntilLine(7, 1, 2, "ready"));
  node.Stop(7, 1, 500, true);
  ASSERT_TRUE(node.UntilGone(7, 1));
  ASSERT_EQ(node.Status(7, 1).exits_size(), 2);
}

TEST(Supervisor, AStopWithACheckpointWaitsForIt) {
  TestNode node(2);
  StopAfterCheckpoint(node, "obeys");
  EXPECT_EQ(node.Status(7, 1).exits(0).exit_code(), 11);
  EXPECT_EQ(node.Status(7, 1).exits(1).exit_code(), 11);
  EXPECT_TRUE(node.UntilLine(7, 1, 1, "saved"));
}

TEST(Supervisor, ACheckpointThatDoesNotComeIsWaitedForOnlySoLong) {
  TestNode node(2);
  StopAfterCheckpoint(node, "ignores");
  EXPECT_EQ(node.Status(7, 1).exits(0).signal(), SIGTERM);
  EXPECT_TRUE(node.UntilLine(7, 1, 1, "going on"));
}

TEST(Supervisor, ARankThatRefusesACheckpointIsEnded) {
  TestNode node(2);
  StopAfterCheckpoint(node, "refuses");
  EXPECT_EQ(node.Status(7, 1).exits(0).signal(), SIGTERM);
  EXPECT_EQ(node.Status(7, 1).exits(1).signal(), SIGTERM);
}

constexpr char kNoCgroup[] = "no cgroup can be made here: without one is the other test";

class StubbornTrainer : public testing::TestWithParam<bool> {};

TEST_P(StubbornTrainer, IsKilledWithItsGrandchildrenAfterTheGraceTime) {
  TestNode node(1);
  node.options().use_cgroup = GetParam();
  node.Trainer(
      "trap '' TERM\nsetsid sh -c 'trap \"\" TERM; (sleep 601 &) ; sleep 602' &\n"
      "echo ready\nwhile :; do sleep 0.05; done");
  node.Begin();
  node.Start(7, 1, 1);
  ASSERT_TRUE(node.UntilLine(7, 1, 1, "ready"));
  ASSERT_TRUE(node.Until([&] { return node.Processes(7, 1).size() >= 4; }));
  const auto cgroup = node.Record(7, 1).cgroup;
  node.Stop(7, 1, 100);
  ASSERT_TRUE(node.UntilGone(7, 1));
  EXPECT_EQ(node.Status(7, 1).exits(0).signal(), SIGKILL);
  EXPECT_THAT(node.Processes(7, 1), IsEmpty());
  EXPECT_FALSE(!cgroup.empty() && std::filesystem::exists(cgroup));
  if (GetParam() && cgroup.empty()) GTEST_SKIP() << kNoCgroup;
}

TEST_P(StubbornTrainer, DiesWithItsShim) {
  TestNode node(1);
  node.options().use_cgroup = GetParam();
  node.Trainer("trap '' TERM\nsetsid sleep 603 &\necho ready\nwhile :; do sleep 0.05; done");
  node.Begin();
  node.Start(7, 1, 1);
  ASSERT_TRUE(node.UntilLine(7, 1, 1, "ready"));
  const auto record = node.Record(7, 1);
  ::kill(static_cast<pid_t>(record.shim_pid), SIGKILL);
  ASSERT_TRUE(node.UntilGone(7, 1));
  EXPECT_THAT(node.Processes(7, 1), IsEmpty());
  EXPECT_FALSE(!record.cgroup.empty() && std::filesystem::exists(record.cgroup));
  ASSERT_EQ(node.Status(7, 1).exits_size(), 1);
  EXPECT_EQ(node.Status(7, 1).exits(0).signal(), SIGKILL);
  EXPECT_THAT(node.Status(7, 1).exits(0).last_error_line(), HasSubstr("shim"));
  if (GetParam() && record.cgroup.empty()) GTEST_SKIP() << kNoCgroup;
}

INSTANTIATE_TEST_SUITE_P(WithAndWithoutCgroup, StubbornTrainer, testing::Bool());

TEST(Supervisor, ARunThatEndsTakesItsLeftoversWithIt) {
  TestNode node(1);
  node.Trainer("setsid sleep 604 &\nexit 0");
  node.Begin();
  node.Start(7, 1, 1);
  ASSERT_TRUE(node.UntilGone(7, 1));
  EXPECT_EQ(node.Status(7, 1).exits(0).exit_code(), 0);
  EXPECT_THAT(node.Processes(7, 1), IsEmpty());
}

TEST(Supervisor, ANewAgentTakesUpTheRunsOfTheOldOne) {
  TestNode node(2);
  node.Trainer(kCounting);
  node.Begin();
  node.Start(7, 1, 2);
  ASSERT_TRUE(node.UntilLine(7, 1, 1, "line 20"));
  const auto before = node.Status(7, 1);
  node.Begin();
  EXPECT_EQ(node.Status(7, 1).phase(), v1::RUN_PHASE_RUNNING);
  ASSERT_EQ(node.Status(7, 1).ranks_size(), 2);
  EXPECT_EQ(node.Status(7, 1).ranks(0).pid(), before.ranks(0).pid());
  ASSERT_TRUE(node.UntilLine(7, 1, 1, "line 40"));
  node.Begin();
  ASSERT_TRUE(node.UntilGone(7, 1));
  for (const uint32_t rank : {1U, 2U}) {
    ASSERT_TRUE(node.UntilLine(7, 1, rank, "line 100"));
    ASSERT_TRUE(node.Until([&] { return node.store().Rank(7, 1, rank).last_event == 100; }));
    EXPECT_EQ(node.store().Rank(7, 1, rank).lines.size(), 100);
    EXPECT_THAT(node.store().Rank(7, 1, rank).faults, IsEmpty());
  }
}

TEST(Supervisor, AShimOfAnotherReleaseIsNamedInTheLogAndItsRunGoesOn) {
  TestNode node(1);
  node.Trainer("sleep 600");
  node.Begin();
  node.Start(7, 1, 1);
  ASSERT_TRUE(node.UntilPhase(7, 1, v1::RUN_PHASE_RUNNING));
  RunRecord record = node.Record(7, 1);
  EXPECT_EQ(record.version, kVersion);
  const auto begin_by = [&](const std::string& version) {
    record.version = version;
    EXPECT_TRUE(SaveRunRecord({node.RunPath(7, 1)}, record));
    std::ostringstream log;
    const auto before = spdlog::default_logger();
    spdlog::set_default_logger(
        std::make_shared<spdlog::logger>("test", std::make_shared<spdlog::sinks::ostream_sink_mt>(log)));
    node.Begin();
    spdlog::set_default_logger(before);
    EXPECT_EQ(node.Status(7, 1).phase(), v1::RUN_PHASE_RUNNING);
    return log.str();
  };
  EXPECT_THAT(begin_by("9.0.0"), HasSubstr("imgagent-shim 9.0.0 is too new for imgagent "));
  EXPECT_THAT(begin_by(kVersion), testing::Not(HasSubstr("imgagent-shim")));
  EXPECT_THAT(begin_by(""), testing::Not(HasSubstr("imgagent-shim")));
  node.Stop(7, 1, 1000);
  ASSERT_TRUE(node.UntilGone(7, 1));
}

TEST(Supervisor, ARunThatEndedWhileNoAgentWasThereIsReportedByTheNext) {
  TestNode node(1);
  node.Trainer("echo done; exit 9");
  node.Begin(false);
  node.Start(7, 1, 1);
  ASSERT_TRUE(node.Until([&] { return node.Record(7, 1).phase == ShimPhase::kGone; }));
  node.Begin();
  ASSERT_TRUE(node.UntilGone(7, 1));
  EXPECT_EQ(node.Status(7, 1).exits(0).exit_code(), 9);
  EXPECT_TRUE(node.UntilLine(7, 1, 1, "done"));
}

TEST(Supervisor, OfRanksThatTheirMachineTookAlongNoExitIsTold) {
  TestNode node(3);
  node.Trainer("exit 9");
  node.Begin();
  node.Start(7, 1, 3);
  ASSERT_TRUE(node.UntilGone(7, 1));
  // As it is found when the machine went down: rank 1 had ended, 2 ran, 3 was told to end for that.
  RunRecord record = node.Record(7, 1);
  record.boot_id = "another boot";
  record.phase = ShimPhase::kStopping;
  record.ranks[1].state = RankState::kRunning;
  record.ranks[2].told = true;
  ASSERT_TRUE(SaveRunRecord({node.RunPath(7, 1)}, record));
  for (int agents = 0; agents < 2; ++agents) {
    node.ForgetStatuses();
    node.Begin();
    const auto status = node.Status(7, 1);
    EXPECT_EQ(status.phase(), v1::RUN_PHASE_GONE);
    EXPECT_EQ(status.start_error(), "");
    EXPECT_EQ(status.ranks_size(), 0);
    ASSERT_EQ(status.exits_size(), 1);
    EXPECT_EQ(status.exits(0).rank(), 1);
    EXPECT_EQ(status.exits(0).exit_code(), 9);
  }
}

TEST(Supervisor, WhatWasNotAcknowledgedComesAgainAfterAReconnect) {
  TestNode node(1);
  node.Trainer(kCounting);
  node.acknowledge = false;
  node.Begin();
  node.Start(7, 1, 1);
  ASSERT_TRUE(node.UntilLine(7, 1, 1, "line 30"));
  node.Disconnect();
  // The daemon's disk is an hour older than we thought.
  node.store().Rank(7, 1, 1) = StoredRank();
  node.acknowledge = true;
  node.Connect();
  ASSERT_TRUE(node.UntilGone(7, 1));
  ASSERT_TRUE(node.UntilLine(7, 1, 1, "line 100"));
  EXPECT_EQ(node.store().Rank(7, 1, 1).lines.size(), 100);
  EXPECT_THAT(node.store().Rank(7, 1, 1).faults, IsEmpty());
}

TEST(Supervisor, AShimThatIsKilledAtAnyMomentLeavesWholeLines) {
  for (const uint64_t after : {1, 50, 700, 5000, 20'000}) {
    TestNode node(1);
    node.Trainer("i=1; while :; do echo $i; i=$((i+1)); done");
    node.Begin();
    node.Start(7, 1, 1);
    ASSERT_TRUE(node.Until([&] { return node.store().Rank(7, 1, 1).last_line() >= after; }));
    ::kill(static_cast<pid_t>(node.Record(7, 1).shim_pid), SIGKILL);
    ASSERT_TRUE(node.UntilGone(7, 1));
    // All that the shim had written still comes, and then the run can be forgotten.
    node.Forget(7, 1);
    ASSERT_TRUE(node.Until([&] { return !std::filesystem::exists(node.RunPath(7, 1)); }));
    const auto& rank = node.store().Rank(7, 1, 1);
    EXPECT_EQ(rank.faults.size(), 0);
    for (const auto& line : rank.lines) ASSERT_EQ(line.text(), std::to_string(line.line_number()));
    EXPECT_EQ(rank.lines.size(), rank.last_line());
  }
}

TEST(Supervisor, AForgottenRunLeavesNothingBehind) {
  TestNode node(1);
  node.Trainer("echo one; echo two; exit 0");
  node.acknowledge = false;
  node.Begin();
  node.Start(7, 1, 1);
  ASSERT_TRUE(node.UntilGone(7, 1));
  // As a trainer would have: in memory, with a link in the folder.
  const auto pulse = node.RunPath(7, 1) / PulseFileName(0);
  ASSERT_TRUE(PulseFile::Create(pulse).has_value());
  std::error_code no_link;  // where there is no such memory
  const auto in_memory = std::filesystem::read_symlink(pulse, no_link);
  node.Forget(7, 1);
  ASSERT_TRUE(node.UntilLine(7, 1, 1, "two"));
  EXPECT_TRUE(std::filesystem::exists(node.RunPath(7, 1))) << "its lines are not acknowledged yet";
  node.Disconnect();
  node.acknowledge = true;
  node.Connect();
  ASSERT_TRUE(node.Until([&] { return !std::filesystem::exists(node.RunPath(7, 1)); }));
  EXPECT_FALSE(!in_memory.empty() && std::filesystem::exists(in_memory));
  node.Start(7, 1, 1);
  EXPECT_THAT(node.Status(7, 1).start_error(), HasSubstr("older"));
}

TEST(Supervisor, ASlowDaemonDoesNotFillTheMemoryNorHoldUpTheRank) {
  TestNode node(1);
  node.options().run_log_limit_bytes = 1 << 20;
  node.Trainer("seq 1 400000; echo end >&2");
  node.acknowledge = false;
  node.Begin();
  node.Start(7, 1, 1);
  ASSERT_TRUE(node.UntilGone(7, 1));
  const auto sent = node.store().Rank(7, 1, 1).lines.size();
  EXPECT_LT(sent, 100'000) << "more than a window was sent without an acknowledgement";
  uint64_t bytes = 0;
  for (const auto& segment : ListLogSegments(node.RunPath(7, 1), 0)) {
    bytes += std::filesystem::file_size(node.RunPath(7, 1) / segment.Name());
  }
  EXPECT_LE(bytes, 1 << 20);
  node.Disconnect();
  node.acknowledge = true;
  node.Connect();
  ASSERT_TRUE(node.UntilLine(7, 1, 1, "end"));
  EXPECT_THAT(node.store().Rank(7, 1, 1).Text(), Contains(HasSubstr("lines are missing here")));
  EXPECT_EQ(node.store().Rank(7, 1, 1).last_line(), 400'001);
  EXPECT_THAT(node.store().Rank(7, 1, 1).faults, IsEmpty());
}

}  // namespace
}  // namespace imgd
