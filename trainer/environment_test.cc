#include "trainer/environment.h"

#include <gmock/gmock.h>

#include <map>

namespace imgd::trainer {
namespace {

using testing::HasSubstr;
using Variables = std::map<std::string, std::string>;

Result<Environment> Read(const Variables& variables) {
  return ReadEnvironment([&](const char* name) -> const char* {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
}

TEST(Environment, IsOneRankAtATerminalWhereNothingIsSet) {
  const auto env = Read({});
  ASSERT_TRUE(env.has_value());
  EXPECT_EQ(env->world_size, 1);
  EXPECT_EQ(env->rank, 0);
  EXPECT_TRUE(env->run_dir.empty());
  EXPECT_FALSE(env->resume_file.has_value());
  EXPECT_FALSE(env->master_fd.has_value());
}

TEST(Environment, TakesTorchrunsVariablesAndImgds) {
  const auto env = Read({{"RANK", "3"},
                         {"WORLD_SIZE", "4"},
                         {"LOCAL_RANK", "1"},
                         {"LOCAL_WORLD_SIZE", "2"},
                         {"MASTER_ADDR", "10.0.0.1"},
                         {"MASTER_PORT", "4711"},
                         {"IMGD_MASTER_FD", "7"},
                         {"IMGD_RUN_DIR", "/run/x"},
                         {"IMGD_NVJPEG_LIBRARY", "/opt/libnvjpeg.so"},
                         {"IMGD_GENERATION", "5"},
                         {"IMGD_RESUME", "/run/x/resume.json"},
                         {"TORCHELASTIC_USE_AGENT_STORE", "True"}});
  ASSERT_TRUE(env.has_value());
  EXPECT_EQ(env->rank, 3);
  EXPECT_EQ(env->local_rank, 1);
  EXPECT_EQ(env->local_world_size, 2);
  EXPECT_EQ(env->master_address, "10.0.0.1");
  EXPECT_EQ(env->master_port, 4711);
  EXPECT_EQ(env->master_fd, 7);
  EXPECT_EQ(env->nvjpeg_library, "/opt/libnvjpeg.so");
  EXPECT_EQ(env->cudart_library, "");
  EXPECT_EQ(env->generation, 5U);
  EXPECT_EQ(env->resume_file, "/run/x/resume.json");
  EXPECT_TRUE(env->store_is_elsewhere);
}

TEST(Environment, SaysWhereARunsLocalFilesAre) {
  JobSpec spec;
  spec.name = "rn50";
  EXPECT_EQ(FiguresFolder(spec, *Read({{"IMGD_CHECKPOINT_DIR", "/ckpt/rn50-1"}})), "/ckpt/rn50-1/logs");
  EXPECT_EQ(LocalFolderOf(spec, *Read({})), "checkpoints/rn50");
  spec.checkpoint.dir = "s3://bucket/x/";
  EXPECT_EQ(LocalFolderOf(spec, *Read({})), "checkpoints/rn50");
  EXPECT_EQ(FiguresFolder(spec, *Read({{"IMGD_RUN_DIR", "/run/7-1"}})), "/run/7-1/logs");
  EXPECT_EQ(
      LocalFolderOf(spec, *Read({{"IMGD_RUN_DIR", "/run/7-1"}, {"IMGD_CHECKPOINT_DIR", "/ckpt/rn50-1"}})),
      "/ckpt/rn50-1");
  spec.report.dir = "/figures";
  EXPECT_EQ(FiguresFolder(spec, *Read({{"IMGD_RUN_DIR", "/run/7-1"}})), "/figures");
}

TEST(Environment, NamesTheVariableThatIsWrong) {
  EXPECT_THAT(Read({{"WORLD_SIZE", "two"}}).error().message,
              HasSubstr("WORLD_SIZE: found 'two' where a whole number"));
  EXPECT_THAT(Read({{"WORLD_SIZE", "2"}, {"RANK", "2"}}).error().message, HasSubstr("RANK: found '2'"));
}

}  // namespace
}  // namespace imgd::trainer
