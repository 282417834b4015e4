// Programs in place of the trainer, as real processes under a shim.
#include "agent/program.h"

#include <netinet/in.h>
#include <sys/socket.h>

#include "agent/testing/node.h"

namespace imgd {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::Not;

/// A command of one node and two devices, which is rank 0's too where `port` is its rendezvous.
v1::StartRun CommandStart(const std::string& command, uint32_t ranks = 2, uint32_t port = 0) {
  auto start = TestNode::StartCommand(7, 1, 2);
  start.set_kind(v1::JOB_KIND_COMMAND);
  start.set_job_yaml("name: sh\ncommand: " + command + "\n");
  start.set_ranks(ranks);
  start.set_node_count(2);
  start.set_node_rank(1);
  if (port == 0) return start;
  start.set_first_rank(0);
  start.set_node_rank(0);
  start.set_master_port(port);
  return start;
}

struct Program : testing::Test {
  Program() : node(2) {
    node.Trainer("echo this is the trainer; exit 1\n");
    node.Begin();
    folder = node.dir().path() / "jobs" / "sh-1";
  }
  void Start(v1::StartRun start) {
    start.set_checkpoint_dir(folder.native());
    node.Start(start);
  }
  std::vector<std::string> Log(uint32_t rank) { return node.store().Rank(7, 1, rank).Text(); }
  TestNode node;
  std::filesystem::path folder;
};

TEST_F(Program, EachRankIsToldWhoItIsAsTorchrunTellsItsWorkers) {
  Start(CommandStart("{run: [env], env: {LR: 0.1, IFS_X: 'a b'}}"));
  ASSERT_TRUE(node.UntilGone(7, 1));
  ASSERT_TRUE(node.UntilLine(7, 1, 2, "LR=0.1"));
  for (const char* line : {"RANK=2", "LOCAL_RANK=1", "WORLD_SIZE=3", "LOCAL_WORLD_SIZE=2", "GROUP_RANK=1",
                           "GROUP_WORLD_SIZE=2", "MASTER_ADDR=127.0.0.1", "MASTER_PORT=29500",
                           "IMGD_JOB_ID=7", "IMGD_GENERATION=1", "IFS_X=a b", "IMGD_DEVICES=2"})
    EXPECT_TRUE(node.UntilLine(7, 1, 2, line)) << line;
  EXPECT_TRUE(node.UntilLine(7, 1, 2, "IMGD_CHECKPOINT_DIR=" + folder.native()));
  EXPECT_THAT(Log(2), Not(Contains(HasSubstr("PET_"))));
  const auto status = node.Status(7, 1);
  ASSERT_EQ(status.exits_size(), 2);
  EXPECT_EQ(status.exits(0).exit_code(), 0);
}

TEST_F(Program, OneProcessANodeIsToldWhatTorchrunNeeds) {
  Start(CommandStart("{run: [env], per: node}", /*ranks=*/1));
  ASSERT_TRUE(node.UntilGone(7, 1));
  ASSERT_TRUE(node.UntilLine(7, 1, 1, "LOCAL_WORLD_SIZE=1"));
  for (const char* line : {"PET_NNODES=2", "PET_NODE_RANK=1", "PET_NPROC_PER_NODE=2",
                           "PET_MASTER_ADDR=127.0.0.1", "PET_MASTER_PORT=29500", "IMGD_DEVICES=2"})
    EXPECT_TRUE(node.UntilLine(7, 1, 1, line)) << line;
  EXPECT_EQ(node.Status(7, 1).exits_size(), 1);
}

TEST_F(Program, RunsInTheJobsOwnFolderWhichStays) {
  Start(CommandStart("{run: 'pwd; echo $0; echo kept > state; exit 4'}", 1));
  ASSERT_TRUE(node.UntilGone(7, 1));
  ASSERT_TRUE(node.UntilLine(7, 1, 1, folder.native()));
  EXPECT_EQ(*ReadFile(folder / "state"), "kept\n");
  EXPECT_EQ(node.Status(7, 1).exits(0).exit_code(), 4);
  EXPECT_FALSE(node.Status(7, 1).exits(0).told());
}

TEST_F(Program, RunsWhereTheJobSaysAndByThePathOfTheJob) {
  const auto bin = node.dir().path() / "bin";
  std::filesystem::create_directories(bin);
  std::ofstream(bin / "hello") << "#!/bin/sh\necho \"hello $1 from $PWD\"\n";
  std::filesystem::permissions(bin / "hello", std::filesystem::perms::owner_all);
  Start(CommandStart(
      fmt::format("{{run: [hello, 'you all'], dir: /, env: {{PATH: '/nowhere:{}'}}}}", bin.native()), 1));
  ASSERT_TRUE(node.UntilGone(7, 1));
  EXPECT_TRUE(node.UntilLine(7, 1, 1, "hello you all from /"));
}

TEST_F(Program, WhatCanNotBeRunIsNamed) {
  const struct {
    const char* command;
    const char* error;
  } kTable[] = {
      {"{run: [no-such-program]}", "there is no program 'no-such-program' in PATH"},
      {"{run: [/no/such/program]}", "cannot run /no/such/program: No such file"},
      {"{run: [env], dir: /no/such/folder}", "command.dir: there is no folder /no/such/folder on this node"},
      {"{run: []}", "command.run: missing"},
  };
  uint64_t generation = 0;
  for (const auto& row : kTable) {
    auto start = CommandStart(row.command);
    start.mutable_run()->set_generation(++generation);
    Start(start);
    ASSERT_TRUE(node.UntilGone(7, generation)) << row.command;
    EXPECT_THAT(node.Status(7, generation).start_error(), HasSubstr(row.error));
    EXPECT_THAT(node.Processes(7, generation), testing::IsEmpty());
  }
}

TEST_F(Program, RankZeroFindsTheRendezvousPortFree) {
  node.Prepare(7, 1);
  ASSERT_THAT(node.prepared(), testing::SizeIs(1));
  const uint32_t port = node.prepared()[0].port();
  Start(CommandStart("{run: 'echo fd=$IMGD_MASTER_FD.; sleep 600'}", 1, port));
  ASSERT_TRUE(node.UntilLine(7, 1, 0, "fd=."));
  const UniqueFd own(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(::bind(own.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  node.Stop(7, 1, 1000);
  ASSERT_TRUE(node.UntilGone(7, 1));
}

TEST_F(Program, AStopIsSigtermThenSigkillAlsoWhereACheckpointIsAskedFor) {
  Start(CommandStart("{run: 'trap \"echo told; exit 0\" TERM; echo up; while :; do sleep 0.01; done'}", 1));
  ASSERT_TRUE(node.UntilLine(7, 1, 1, "up"));
  node.Stop(7, 1, 60'000, /*checkpoint=*/true);
  ASSERT_TRUE(node.UntilGone(7, 1));
  EXPECT_TRUE(node.UntilLine(7, 1, 1, "told"));
  EXPECT_EQ(node.Status(7, 1).exits(0).exit_code(), 0);
  EXPECT_TRUE(node.Status(7, 1).exits(0).told());
  auto deaf = CommandStart("{run: 'trap \"\" TERM; sleep 600 & echo up; wait; sleep 600'}", 1);
  deaf.mutable_run()->set_generation(2);
  Start(deaf);
  ASSERT_TRUE(node.UntilLine(7, 2, 1, "up"));
  node.Stop(7, 2, 100);
  ASSERT_TRUE(node.UntilGone(7, 2));
  EXPECT_EQ(node.Status(7, 2).exits(0).signal(), 9);
  EXPECT_THAT(node.Processes(7, 2), testing::IsEmpty()) << "what it started is gone too";
}

TEST_F(Program, TheLastLineThatSaysSomethingIsKept) {
  Start(CommandStart("{run: 'echo ValueError: x >&2; echo ======= >&2; exit 1'}", 1));
  ASSERT_TRUE(node.UntilGone(7, 1));
  EXPECT_EQ(node.Status(7, 1).exits(0).last_error_line(), "ValueError: x");
}

TEST_F(Program, AnAgentThatComesBackFindsItAgain) {
  Start(CommandStart("{run: 'echo up; sleep 600'}", 1));
  ASSERT_TRUE(node.UntilLine(7, 1, 1, "up"));
  node.Begin();
  ASSERT_TRUE(node.UntilPhase(7, 1, v1::RUN_PHASE_RUNNING));
  node.Stop(7, 1, 1000, /*checkpoint=*/true);
  ASSERT_TRUE(node.UntilGone(7, 1));
  EXPECT_EQ(node.Status(7, 1).exits(0).signal(), 15);
}

TEST(ProgramOf, AConversionIsImgcliWithItsOptions) {
  const auto program = ProgramOf(
      v1::JOB_KIND_CONVERSION,
      "name: a\nconvert: {source: /data/in, target: /data/out, to: tfrecord, strict: true}\n", "/opt/imgcli");
  ASSERT_TRUE(program.has_value());
  EXPECT_THAT(program->arguments, testing::ElementsAre("/opt/imgcli", "dataset", "convert", "--to=tfrecord",
                                                       "--strict", "/data/in", "/data/out"));
  EXPECT_FALSE(program->own_folder);
  EXPECT_TRUE(ProgramOf(v1::JOB_KIND_TRAINING, "name: a\n", "")->arguments.empty());
  EXPECT_THAT(ProgramOf(v1::JOB_KIND_COMMAND, "name: a\ndata: {train: /x}\n", "").error().message,
              HasSubstr("the job file is of a training"));
}

}  // namespace
}  // namespace imgd
