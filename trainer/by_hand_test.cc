#include "trainer/by_hand.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include <fstream>
#include <map>

namespace imgd::trainer {
namespace {

using testing::HasSubstr;
using testing::Not;

struct ByHand : testing::Test {
  Result<std::optional<report::HttpReport>> Read() {
    const auto get = [this](const char* name) -> const char* {
      const auto found = variables.find(name);
      return found == variables.end() ? nullptr : found->second.c_str();
    };
    return ReportByHand(arguments, job, env, get);
  }
  ReportArguments arguments{.url = "https://gpu-head:7651", .token_file = {}, .ca_file = {}};
  JobSpec job;
  Environment env;
  std::map<std::string, std::string> variables = {{"IMGD_REPORT_TOKEN", "imgd_secret"}, {"USER", "ada"}};
};

TEST_F(ByHand, SaysWhatTheRunIs) {
  job.name = "mine";
  job.text = "name: mine\n";
  job.checkpoint.dir = "/ckpt";
  env.world_size = 16;
  env.local_world_size = 8;
  const auto report = Read();
  ASSERT_TRUE(report.has_value() && report->has_value());
  EXPECT_EQ((*report)->token, "imgd_secret");
  EXPECT_EQ((*report)->nodes, 2);
  EXPECT_EQ((*report)->ranks_per_node, 8);
  EXPECT_EQ((*report)->owner, "ada");
  EXPECT_EQ((*report)->checkpoint_dir, "/ckpt/mine");
  EXPECT_EQ((*report)->hosts.size(), 1u);
}

TEST_F(ByHand, OnlyRankZeroReportsAndOnlyWithoutAnAgent) {
  variables.clear();
  env.world_size = 2;
  env.rank = 1;
  EXPECT_FALSE(Read().value().has_value()) << "it needs no token either";
  env.rank = 0;
  env.run_dir = "/run";
  EXPECT_FALSE(Read().value().has_value());
  env.run_dir.clear();
  arguments.url.clear();
  EXPECT_FALSE(Read().value().has_value());
}

TEST_F(ByHand, ABadUrlIsAnErrorOnEveryRank) {
  arguments.url = "http://gpu-head:7651";
  env.world_size = 2;
  env.rank = 1;
  EXPECT_EQ(Read().error().code, ErrorCode::kInvalidArgument);
}

TEST_F(ByHand, WithoutATokenItSaysHowToGetOne) {
  variables["IMGD_REPORT_TOKEN"] = "";
  EXPECT_THAT(Read().error().message, HasSubstr("there is no token in IMGD_REPORT_TOKEN"));
  EXPECT_THAT(Read().error().hint, HasSubstr("imgcli token create --scope report"));
  variables["IMGD_REPORT_TOKEN"] = "two words";
  EXPECT_THAT(Read().error().message, Not(HasSubstr("two words")));
}

TEST_F(ByHand, AFileOfATokenGoesBeforeTheVariable) {
  const std::string path = testing::TempDir() + "imgd_token_" + std::to_string(::getpid());
  std::ofstream(path) << "imgd_of_file\n";
  arguments.token_file = path;
  EXPECT_EQ(Read().value()->token, "imgd_of_file");
  ::unlink(path.c_str());
  EXPECT_THAT(Read().error().message, HasSubstr("--report-token-file: cannot open " + path));
}

TEST_F(ByHand, ACaFileHasToHoldACertificate) {
  arguments.ca_file = "/dev/null";
  EXPECT_THAT(Read().error().message, HasSubstr("--report-ca: /dev/null has no certificate"));
}

}  // namespace
}  // namespace imgd::trainer
