// Ranks as users of their own: who that is, what it needs, and what such a rank can and can't do.
#include <poll.h>
#include <sys/stat.h>

#include "agent/projects.h"
#include "agent/secrets.h"
#include "agent/testing/node.h"
#include "agent/unix_user.h"
#include "common/files.h"

namespace imgd {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::HasSubstr;
using testing::Not;

UnixUser Named(std::string name) { return {.name = std::move(name)}; }

struct Users : testing::Test {
  Users() { ::chmod(dir.path().c_str(), 0755); }
  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "only root can be other users";
  }
  void Put(const char* name) { ::chmod(dir.Write(name, "KEY=not-for-anybody\n").c_str(), 0600); }
  std::string Refusal(std::map<std::string, ProjectRules> rules) {
    const auto done = CompleteProjects({.secrets_dir = dir.path(), .rules = std::move(rules)}, "/bin/sh");
    return done ? "" : done.error().message;
  }
  TempDir dir;
};

TEST_F(Users, AreFoundWithTheirGroups) {
  const auto user = FindUnixUser("nobody", {"mail", "nogroup"});
  ASSERT_TRUE(user.has_value());
  EXPECT_EQ(user->uid, 65534);
  EXPECT_THAT(user->groups, testing::UnorderedElementsAre(65534, 8));
  EXPECT_EQ(FindUnixUser("no-such-user", {}).error().message, "this machine has no user 'no-such-user'");
  EXPECT_EQ(FindUnixUser("nobody", {"no-such-group"}).error().message,
            "this machine has no group 'no-such-group'");
}

TEST_F(Users, ARootThatNobodyNamedIsRefused) {
  EXPECT_EQ(Refusal({}), "");
  EXPECT_EQ(Refusal({{"*", {}}}), "");
  EXPECT_EQ(Refusal({{"*", {.user = Named("root")}}, {"a", {.user = Named("nobody")}}}), "");
  EXPECT_THAT(Refusal({{"a", {.user = Named("nobody")}}}),
              HasSubstr("'*' has no user, and its ranks would be root"));
  EXPECT_THAT(Refusal({{"*", {.user = Named("nobody")}}, {"a", {}}}), HasSubstr("'a' has no user"));
}

TEST_F(Users, WhatCannotBeIsSaidBeforeAnyJobComes) {
  EXPECT_EQ(Refusal({{"a", {.user = Named("no-such-user")}}}),
            "projects: 'a': this machine has no user 'no-such-user'");
  const auto closed = dir.Script("trainer", "exit 0");
  const auto done = CompleteProjects({.rules = {{"*", {.user = Named("nobody")}}}}, closed);
  EXPECT_EQ(done.error().message,
            fmt::format("projects: '*': user nobody can't run {}: Permission denied", closed.native()));
  // One who is not root, and has no capability.
  const auto nobody = FindUnixUser("nobody", {}).value();
  const auto games = FindUnixUser("games", {}).value();
  EXPECT_TRUE(DoAs(nobody, [&] { return MayBecome(nobody); }));
  const auto refused = DoAs(nobody, [&] { return MayBecome(games); });
  EXPECT_THAT(refused.error().message,
              HasSubstr("can't run ranks as user games: it lacks CAP_CHOWN, CAP_KILL, "
                        "CAP_SETGID, CAP_SETUID (imgagent-users.conf"));
  EXPECT_THAT(DoAs(nobody, [&] { return DoAs(games, [] { return Status(); }); }).error().message,
              HasSubstr("cannot become user games: Operation not permitted"));
}

TEST_F(Users, WhatIsDoneAsOneEndsWithWhoAsksForIt) {
  int fds[2];
  ASSERT_EQ(::pipe2(fds, O_CLOEXEC), 0);
  const UniqueFd read(fds[0]);
  UniqueFd write(fds[1]);
  const pid_t asks = ::fork();
  ASSERT_GE(asks, 0);
  if (asks == 0) {
    (void)DoAs(FindUnixUser("nobody", {}).value(), [&] {
      (void)!::write(write.get(), "x", 1);
      ::pause();  // as on a folder that does not answer
      return Status();
    });
    ::_exit(0);
  }
  write.reset();
  char byte = 0;
  ASSERT_EQ(::read(read.get(), &byte, 1), 1);
  ASSERT_EQ(::kill(asks, SIGKILL), 0);
  ::waitpid(asks, nullptr, 0);
  pollfd closed{.fd = read.get(), .events = POLLIN, .revents = 0};
  ASSERT_EQ(::poll(&closed, 1, 20'000), 1) << "it lives on, with all that was open";
  EXPECT_EQ(::read(read.get(), &byte, 1), 0);
}

TEST_F(Users, ASecretIsRefusedWhereOthersThanItsProjectsGetAtIt) {
  Put("s3");
  const auto with = [](const char* user, std::vector<std::string> secrets = {}) {
    return ProjectRules{.secrets = std::move(secrets), .user = Named(user)};
  };
  EXPECT_EQ(Refusal({{"*", {.secrets = {"s3"}}}}), "");
  EXPECT_EQ(Refusal({{"a", with("games", {"s3"})}, {"*", with("nobody")}}), "");
  EXPECT_THAT(Refusal({{"a", {.secrets = {"s3"}}}}),
              AllOf(HasSubstr("the secret 's3' is not for '*'"), HasSubstr("run as the agent's user")));
  EXPECT_THAT(
      Refusal({{"a", with("games", {"s3"})}, {"b", with("games")}, {"*", with("nobody")}}),
      HasSubstr("is not for 'b', and its ranks could read it all the same, since they run as user games"));
  EXPECT_THAT(Refusal({{"a", with("games", {"s3"})}, {"*", with("root")}}), HasSubstr("run as user root"));
  EXPECT_THAT(Refusal({{"a", with("games", {"none"})}, {"*", with("nobody")}}),
              HasSubstr("projects: 'a': cannot open"));
}

/// A node whose ranks are nobody's, in a folder that others may pass through.
struct RanksOfAUser : Users {
  RanksOfAUser() : node(2) {
    ::chmod(node.dir().path().c_str(), 0711);
    Projects projects{.rules = {{"*", {.user = Named("nobody")}}}};
    if (auto complete = CompleteProjects(projects, "/bin/sh")) node.options().projects = std::move(*complete);
  }
  void Trainer(std::string_view body) {
    node.Trainer(body);
    ::chmod((node.dir() / "trainer").c_str(), 0755);
    node.Begin();
  }
  std::vector<std::string> Log(uint32_t rank) { return node.store().Rank(7, 1, rank).Text(); }
  TestNode node;
};

TEST_F(RanksOfAUser, AreThatUserAndHaveAFolderOfTheirOwn) {
  const auto run = node.RunPath(7, 1);
  const auto others = dir.Write("others", "text\n");
  Trainer(fmt::format(
      "id -u; id -g; id -G; grep -E 'NoNewPrivs|CapPrm|CapAmb' /proc/self/status; echo $IMGD_RUN_DIR; echo "
      "$HOME $USER\n"
      "cat $1 > /dev/null && cat $IMGD_RESUME > /dev/null && echo reads\n"
      "printf '\\002\\000\\000\\000\\010\\001' > $IMGD_RUN_DIR/events.$LOCAL_RANK; mkdir -m 0700 "
      "$IMGD_RUN_DIR/own.$RANK\n"
      "for f in run.json status.json shim.log; do cat {0}/$f; touch {0}/$f; ln -sf {1} {0}/$f.tmp; "
      "done 2>/dev/null\n"
      "ls {0} 2>&1 > /dev/null | grep -c denied; touch {0}/new 2>&1 | grep -c denied; exit 0",
      run.native(), others.native()));
  node.Start(7, 1, 2);
  ASSERT_TRUE(node.UntilGone(7, 1));
  EXPECT_EQ(node.Status(7, 1).start_error(), "");
  for (const uint32_t rank : {1, 2}) {
    ASSERT_TRUE(
        node.Until([&] { return node.store().Rank(7, 1, rank).last_event == 1 && Log(rank).size() >= 11; }));
    EXPECT_THAT(Log(rank),
                testing::ElementsAre("65534", "65534", "65534", "CapPrm:\t0000000000000000",
                                     "CapAmb:\t0000000000000000", "NoNewPrivs:\t1", (run / "ranks").native(),
                                     "/nonexistent nobody", "reads", "1", "1"));
  }
  EXPECT_FALSE(std::filesystem::exists(run / "status.json.tmp"));
  EXPECT_EQ(*ReadFile(others), "text\n");
  struct stat facts {};
  ASSERT_EQ(::stat((run / "ranks").c_str(), &facts), 0);
  EXPECT_EQ(facts.st_mode & 07777, 02770U);
  node.Forget(7, 1);
  EXPECT_TRUE(node.Until([&] { return !std::filesystem::exists(run); }));
}

TEST_F(RanksOfAUser, AreEndedWithAllThatTheyBegan) {
  Trainer("trap '' TERM; sleep 600 & echo up; wait; sleep 600");
  node.Start(7, 1, 1);
  ASSERT_TRUE(node.UntilLine(7, 1, 1, "up"));
  EXPECT_THAT(node.Processes(7, 1), testing::SizeIs(2));
  node.Stop(7, 1, 100);
  ASSERT_TRUE(node.UntilGone(7, 1));
  EXPECT_THAT(node.Processes(7, 1), testing::IsEmpty());
}

TEST_F(RanksOfAUser, DieWithTheirShim) {
  Trainer("echo up; exec sleep 600");
  node.Start(7, 1, 1);
  ASSERT_TRUE(node.UntilLine(7, 1, 1, "up"));
  const pid_t rank = node.Processes(7, 1).front();
  node.Disconnect();
  ::kill(static_cast<pid_t>(node.Record(7, 1).shim_pid), SIGKILL);
  // Nobody looks after it any more: it is the kernel that ends it.
  for (int i = 0; i < 500 && !ReadProcessStat(rank).value_or(ProcessStat{.state = 'X'}).IsDead(); ++i)
    ::usleep(10'000);
  EXPECT_TRUE(ReadProcessStat(rank).value_or(ProcessStat{.state = 'X'}).IsDead());
  node.Connect();
  ASSERT_TRUE(node.UntilGone(7, 1));
}

TEST_F(RanksOfAUser, KeepTheJobsFolderAsTheirs) {
  Trainer("exit 0");
  const auto folder = node.dir() / "jobs";
  std::filesystem::create_directory(folder);
  auto start = TestNode::StartCommand(7, 1, 1);
  start.set_kind(v1::JOB_KIND_COMMAND);
  start.set_job_yaml("name: a\ncommand: {run: 'echo kept > state'}\n");
  start.set_checkpoint_dir((folder / "a").native());
  node.Start(start);
  ASSERT_TRUE(node.UntilGone(7, 1));
  EXPECT_THAT(node.Status(7, 1).start_error(),
              AllOf(HasSubstr("cannot make the job's folder"), HasSubstr("name a checkpoint.dir that")));
  ASSERT_EQ(::chown(folder.c_str(), 65534, 65534), 0);
  start.mutable_run()->set_generation(2);
  node.Start(start);
  ASSERT_TRUE(node.UntilGone(7, 2));
  EXPECT_EQ(node.Status(7, 2).start_error(), "");
  struct stat facts {};
  ASSERT_EQ(::stat((folder / "a" / "state").c_str(), &facts), 0);
  EXPECT_EQ(facts.st_uid, 65534);
}

TEST_F(RanksOfAUser, TakeACheckpointBeforeTheyEnd) {
  node.options().trainer = IMGD_FAKE_TRAINER;
  node.Begin();
  auto start = TestNode::StartCommand(7, 1, 1);
  start.set_job_yaml("name: obeys");
  node.Start(start);
  ASSERT_TRUE(node.UntilLine(7, 1, 1, "ready"));
  node.Stop(7, 1, 20'000, true);
  ASSERT_TRUE(node.UntilGone(7, 1));
  EXPECT_EQ(node.Status(7, 1).exits(0).exit_code(), 11);
}

}  // namespace
}  // namespace imgd
