#include "trainer/dist/nccl_log.h"

#include <gmock/gmock.h>

#include <cstdlib>
#include <fstream>

namespace imgd::trainer {
namespace {

using testing::HasSubstr;

struct NcclLogs : testing::Test {
  NcclLogs() {
    for (const char* name : {"NCCL_DEBUG", "NCCL_DEBUG_SUBSYS", "NCCL_DEBUG_FILE", "NCCL_ALGO"})
      ::unsetenv(name);
    env.world_size = 4;
    env.local_world_size = 2;
    env.run_dir = testing::TempDir();
  }
  Environment env;
  const Fabric efa{.devices = {"rdmap16s27"}, .efa = true};
};

TEST_F(NcclLogs, TheJobsSettingsReachIt) {
  ::setenv("NCCL_ALGO", "Tree", 1);
  NcclLog::Begin({.nccl = {{"NCCL_ALGO", "Ring"}}}, env, {});
  EXPECT_STREQ(std::getenv("NCCL_ALGO"), "Ring");
  EXPECT_EQ(std::getenv("NCCL_DEBUG_FILE"), nullptr) << "without a fast fabric nothing is looked for";
}

TEST_F(NcclLogs, AFallBackToTcpIsFoundInItsLog) {
  const auto log = NcclLog::Begin({}, env, efa);
  EXPECT_EQ(log.note(), "between the nodes: 1 RDMA device (rdmap16s27), EFA");
  EXPECT_TRUE(log.Check()) << "nothing is written yet";
  std::ofstream(std::getenv("NCCL_DEBUG_FILE")) << "n:1:1 [0] NCCL INFO Using network Socket\n";
  const auto checked = log.Check();
  ASSERT_FALSE(checked);
  EXPECT_THAT(checked.error().message, HasSubstr("NCCL uses TCP sockets"));
  std::filesystem::remove(std::getenv("NCCL_DEBUG_FILE"));
}

TEST_F(NcclLogs, WithoutARunsFolderItIsATemporaryFileThatGoesHoweverItEnds) {
  env.run_dir.clear();
  std::filesystem::path file;
  {
    const auto log = NcclLog::Begin({}, env, efa);
    file = std::getenv("NCCL_DEBUG_FILE");
    EXPECT_TRUE(std::filesystem::exists(file)) << "so that nobody else can put a link there";
    std::ofstream(file) << "n:1:1 [0] NCCL INFO Using network Socket\n";
    EXPECT_FALSE(log.Check());
  }
  EXPECT_FALSE(std::filesystem::exists(file));
}

TEST_F(NcclLogs, IsLeftAloneWhereTcpIsAllowedOrItIsSomebodysElse) {
  EXPECT_TRUE(NcclLog::Begin({.allow_tcp = true}, env, efa).Check());
  EXPECT_EQ(std::getenv("NCCL_DEBUG_FILE"), nullptr);
  const auto log = NcclLog::Begin({.nccl = {{"NCCL_DEBUG_FILE", "/dev/null"}}}, env, efa);
  EXPECT_STREQ(std::getenv("NCCL_DEBUG_FILE"), "/dev/null");
  EXPECT_THAT(log.note(), HasSubstr("NCCL_DEBUG_FILE is set"));
  env.local_world_size = 4;
  EXPECT_EQ(NcclLog::Begin({}, env, efa).note(), "") << "a single node";
}

}  // namespace
}  // namespace imgd::trainer
