// Secrets: their files, who may have them, and that their values go nowhere but into the ranks' environment.
#include "agent/secrets.h"

#include <sys/stat.h>

#include "agent/projects.h"
#include "agent/testing/node.h"

namespace imgd {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::HasSubstr;
using testing::Not;
using testing::Pair;
using testing::UnorderedElementsAre;

constexpr const char* kValue = "kq83hzz71-not-for-anybody";

/// A folder with the files of secrets, as an operator makes it.
struct SecretFiles : testing::Test {
  SecretFiles() { ::chmod(dir.path().c_str(), 0755); }
  void Put(const char* name, std::string_view text, mode_t mode = 0600) {
    ::chmod(dir.Write(name, text).c_str(), mode);
  }
  std::string Refusal(const std::vector<std::string>& names) {
    const auto read = ReadSecrets(dir.path(), names);
    return read ? "" : read.error().ToString();
  }
  TempDir dir;
};

TEST_F(SecretFiles, AreVariablesALineWithCommentsAndBlankLines) {
  Put("s3", "# of the team\n\nAWS_ACCESS_KEY_ID=AKIA\r\nAWS_SECRET_ACCESS_KEY=a=b c#d \n");
  Put("wandb", "WANDB_API_KEY=x", 0400);
  EXPECT_THAT(*ReadSecrets(dir.path(), {"s3", "wandb"}),
              UnorderedElementsAre(Pair("AWS_ACCESS_KEY_ID", "AKIA"),
                                   Pair("AWS_SECRET_ACCESS_KEY", "a=b c#d "), Pair("WANDB_API_KEY", "x")));
  EXPECT_TRUE(ReadSecrets("/nonexistent", {})->empty());
}

TEST_F(SecretFiles, ThatOthersGetAtAreRefused) {
  for (const mode_t mode : {0604, 0606, 0620, 0644, 0660, 0601}) {
    Put("s3", "A=1\n", mode);
    EXPECT_THAT(Refusal({"s3"}), AllOf(HasSubstr("/s3 is of user"),
                                       HasSubstr(fmt::format("mode {:04o}", mode)), HasSubstr("chmod go=")))
        << mode;
  }
  Put("s3", "A=1\n", 0640);  // of root's own group, or the agent's
  EXPECT_EQ(Refusal({"s3"}), "");
  ::chmod(dir.path().c_str(), 0777);
  EXPECT_THAT(Refusal({"s3"}), HasSubstr("mode 0777"));
}

TEST_F(SecretFiles, OfSomebodyElseAreRefused) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give a file away";
  Put("s3", "A=1\n");
  ASSERT_EQ(::chown((dir / "s3").c_str(), 65534, 0), 0);
  EXPECT_THAT(Refusal({"s3"}), HasSubstr("is of user 65534"));
  ASSERT_EQ(::chown((dir / "s3").c_str(), 0, 65534), 0);
  EXPECT_EQ(Refusal({"s3"}), "");
  ::chmod((dir / "s3").c_str(), 0640);
  EXPECT_THAT(Refusal({"s3"}), HasSubstr("group 65534"));
}

TEST_F(SecretFiles, ErrorsNameFileAndLineAndNeverAValue) {
  const std::string value = kValue;
  for (const auto& [text, words] :
       std::map<std::string, std::string>{{"A=1\nexport B=" + value, "/s3:2: is no NAME=VALUE"},
                                          {value, "/s3:1: is no NAME=VALUE"},
                                          {"RANK=" + value, "RANK is set by imgd"},
                                          {"IMGD_X=" + value, "IMGD_X is set by imgd"},
                                          {"A='" + value + "'", "begins with a quote"},
                                          {"A=" + value + "\x01", "control character"},
                                          {"A=1\nA=" + value, "A is set twice"}}) {
    Put("s3", text);
    EXPECT_THAT(Refusal({"s3"}), AllOf(HasSubstr(words), Not(HasSubstr(value))));
  }
  EXPECT_THAT(Refusal({"none"}), HasSubstr("cannot open " + (dir / "none").native()));
  std::filesystem::create_directory(dir / "folder");
  EXPECT_THAT(Refusal({"folder"}), HasSubstr("is no file"));
}

TEST(HideValues, TakesOutAllValuesThatAreNoShortWords) {
  const SecretVariables secrets = {{"A", "password1"}, {"B", "password1234"}, {"C", "1"}};
  EXPECT_EQ(HideValues("1 password1234 x password1password1", secrets), "1 *** x ******");
  EXPECT_EQ(HideValues("nothing", {}), "nothing");
}

TEST(Projects, AreReadAndOthersAreAStar) {
  auto yaml = YamlMap::Parse("secrets_dir: /s\nprojects: {a: {secrets: [x]}, '*': {secrets: [y, z]}}\n", "f");
  const auto projects = ReadProjects(*yaml);
  yaml->Finish();
  EXPECT_TRUE(yaml->Errors().empty());
  EXPECT_EQ(projects.secrets_dir, "/s");
  EXPECT_THAT(projects.Of("a").secrets, testing::ElementsAre("x"));
  EXPECT_THAT(projects.Of("b").secrets, testing::ElementsAre("y", "z"));
  EXPECT_THAT(projects.Of("").secrets, testing::ElementsAre("y", "z"));
  auto wrong =
      YamlMap::Parse("secrets_dir: s\nprojects: {'a b': {}, c: {secrets: [../x], secret: y}}\n", "f");
  ReadProjects(*wrong);
  EXPECT_THAT(wrong->Errors(), testing::SizeIs(4));
}

TEST(Projects, RefuseWhatAJobMayNotHaveAndSayWhatItMay) {
  const Projects projects{.rules = {{"vision", {.secrets = {"s3-team", "wandb"}}}}};
  EXPECT_TRUE(CheckClaims(projects, {"vision", {"wandb"}}));
  EXPECT_EQ(CheckClaims(projects, {"vision", {"s3"}}).error().message,
            "a job of project vision may not have the secret 's3'; it may have s3-team, wandb here");
  EXPECT_EQ(CheckClaims(projects, {"", {"wandb"}}).error().message,
            "a job of no project may not have the secret 'wandb'; it may have none here");
}

struct SecretsOfRuns : SecretFiles {
  SecretsOfRuns() : node(1) {
    Put("s3", fmt::format("AWS_SECRET_ACCESS_KEY={}\nLR=1\n", kValue));
    node.options().projects = {.secrets_dir = dir.path(), .rules = {{"p", {.secrets = {"s3"}}}}};
  }
  v1::StartRun Command(const std::string& job) {
    auto start = TestNode::StartCommand(7, 1, 1);
    start.set_kind(v1::JOB_KIND_COMMAND);
    start.set_checkpoint_dir((node.dir() / "job").native());
    start.set_job_yaml(job);
    return start;
  }
  TestNode node;
};

TEST_F(SecretsOfRuns, AreInTheEnvironmentOfRanksAndNowhereElse) {
  const std::string value = kValue;
  node.Begin();
  // It prints its environment, on both streams, and ends with half a line.
  node.Start(
      Command("name: a\nproject: p\nsecrets: [s3]\ncommand:\n  env: {LR: 7}\n  run: |\n"
              "    test $AWS_SECRET_ACCESS_KEY = " +
              value.substr(0, 5) +
              "${AWS_SECRET_ACCESS_KEY#?????} || exit 9\n"
              "    test ${#AWS_SECRET_ACCESS_KEY} = 25 || exit 8\n"
              "    env; env >&2; printf \"so $AWS_SECRET_ACCESS_KEY\" >&2; exit $LR\n"));
  ASSERT_TRUE(node.UntilGone(7, 1));
  const auto status = node.Status(7, 1);
  EXPECT_EQ(status.start_error(), "");
  ASSERT_EQ(status.exits_size(), 1);
  EXPECT_EQ(status.exits(0).exit_code(), 7);
  EXPECT_EQ(status.exits(0).last_error_line(), "so ***");
  EXPECT_THAT(status.ShortDebugString(), Not(HasSubstr(value)));
  ASSERT_TRUE(node.UntilLine(7, 1, 1, "so ***"));
  EXPECT_THAT(node.store().Rank(7, 1, 1).Text(), Contains("AWS_SECRET_ACCESS_KEY=***"));
  for (const auto& file : std::filesystem::recursive_directory_iterator(node.dir().path())) {
    const std::string text = file.is_regular_file() ? ReadFile(file.path()).value_or("") : "";
    EXPECT_THAT(text, Not(HasSubstr(value))) << file.path();
  }
}

TEST_F(SecretsOfRuns, OfAnotherProjectAreNotGivenOut) {
  node.Begin();
  node.Start(Command("name: a\nproject: q\nsecrets: [s3]\ncommand: {run: [env]}\n"));
  ASSERT_TRUE(node.UntilGone(7, 1));
  EXPECT_THAT(node.Status(7, 1).start_error(),
              HasSubstr("a job of project q may not have the secret 's3'; it may have none here"));
}

TEST_F(SecretsOfRuns, ThatWereTakenAwayMeanwhileEndTheStartInWords) {
  node.Begin();
  std::filesystem::remove(dir / "s3");
  node.Start(Command("name: a\nproject: p\nsecrets: [s3]\ncommand: {run: [env]}\n"));
  ASSERT_TRUE(node.UntilGone(7, 1));
  EXPECT_EQ(node.Status(7, 1).start_error(),
            fmt::format("cannot open {}: No such file or directory", (dir / "s3").native()));
}

}  // namespace
}  // namespace imgd
