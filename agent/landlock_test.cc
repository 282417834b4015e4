// The paths that ranks see.
#include "agent/landlock.h"

#include <sys/stat.h>

#include "agent/projects.h"
#include "agent/testing/node.h"

namespace imgd {
namespace {

using testing::Contains;
using testing::HasSubstr;

TEST(Paths, AreWithinAFolderHoweverTheyAreWritten) {
  const TempDir dir;
  std::filesystem::create_directories(dir / "real" / "in");
  std::filesystem::create_symlink(dir / "real", dir / "link");
  const std::string real = (dir / "real").native();
  EXPECT_TRUE(IsWithin(real, {"/nowhere", real}));
  EXPECT_TRUE(IsWithin(real + "/to/come", {real}));
  EXPECT_TRUE(IsWithin((dir / "link").native() + "/in", {real + "/"}));
  EXPECT_FALSE(IsWithin(real + "/../other", {real}));
  EXPECT_FALSE(IsWithin(real + "er", {real}));
  EXPECT_FALSE(IsWithin(real, {}));
}

TEST(Paths, AreReadWithTheirProjectAndAreAbsolute) {
  auto yaml =
      YamlMap::Parse("projects: {a: {paths: {read: [/data], write: [/w]}}, b: {paths: {}}, c: {}}\n", "f");
  const auto projects = ReadProjects(*yaml);
  EXPECT_TRUE(yaml->Errors().empty());
  EXPECT_TRUE(projects.Of("a").paths.limited);
  EXPECT_THAT(projects.Of("a").paths.read, testing::ElementsAre("/data"));
  EXPECT_THAT(projects.Of("a").paths.write, testing::ElementsAre("/w"));
  EXPECT_TRUE(projects.Of("b").paths.limited);
  EXPECT_FALSE(projects.Of("c").paths.limited);
  auto wrong = YamlMap::Parse("projects: {a: {paths: {read: [data], writes: [/w]}}}\n", "f");
  ReadProjects(*wrong);
  EXPECT_THAT(wrong->Errors(), testing::SizeIs(2));
}

/// A node whose ranks read one folder and write another; of a third nobody spoke.
struct PathsOfRuns : testing::Test {
  PathsOfRuns() : node(1) {
    for (const char* name : {"seen", "kept", "hidden"}) {
      std::filesystem::create_directory(node.dir() / name);
      node.dir().Write(std::string(name) + "/file", "text\n");
    }
    node.options().projects.rules["*"].paths = {
        .limited = true, .read = {Path("seen"), "/no/such/folder"}, .write = {Path("kept")}};
    // What the system's shell is to the trainer's tree.
    node.options().trainer = "/bin/sh";
  }
  void SetUp() override {
    if (const auto version = LandlockVersion(); !version) GTEST_SKIP() << version.error().message;
    if (IsWithin(node.dir().path(), {"/dev/shm"}))
      GTEST_SKIP() << "temporary files are where all ranks see them";
  }
  std::string Path(const char* name) const { return (node.dir() / name).native(); }
  void Run(const std::string& script, const std::string& folder) {
    node.Begin();
    auto start = TestNode::StartCommand(7, 1, 1);
    start.set_kind(v1::JOB_KIND_COMMAND);
    start.set_job_yaml(
        fmt::format("name: a\ncommand:\n  run: |\n    cd {}\n    {}\n", node.dir().path().native(), script));
    start.set_checkpoint_dir(folder);
    node.Start(start);
    ASSERT_TRUE(node.UntilGone(7, 1));
  }
  std::vector<std::string> Log() { return node.store().Rank(7, 1, 1).Text(); }
  TestNode node;
};

TEST_F(PathsOfRuns, AreAllThatRanksOpen) {
  Run("cat seen/file kept/file > /dev/null && echo read; cat hidden/file; ls hidden; cat "
      "state/runs/*/run.json\n"
      "    (echo x > seen/new); (echo x > hidden/new); (echo x > kept/new) && mv kept/new $IMGD_RUN_DIR/new "
      "&& echo wrote\n"
      "    echo x > /dev/shm/imgd-test-$$ && rm /dev/shm/imgd-test-$$ && echo shared; test $TMPDIR = "
      "$IMGD_RUN_DIR && echo tmp\n"
      "    cat /proc/self/comm; grep -c NoNewPrivs:.1 /proc/self/status; exit 0",
      Path("kept"));
  EXPECT_EQ(node.Status(7, 1).start_error(), "");
  ASSERT_TRUE(node.UntilLine(7, 1, 1, "tmp"));
  for (const char* line : {"read", "wrote", "shared", "cat", "1", "cat: hidden/file: Permission denied",
                           "ls: cannot open directory 'hidden': Permission denied"})
    EXPECT_TRUE(node.UntilLine(7, 1, 1, line)) << line;
  EXPECT_THAT(Log(), Contains(HasSubstr("seen/new: Permission denied")));
  EXPECT_THAT(Log(), Contains(HasSubstr("hidden/new: Permission denied")));
  EXPECT_THAT(Log(), Contains(HasSubstr("run.json")));
  EXPECT_FALSE(std::filesystem::exists(node.dir() / "hidden" / "new"));
}

TEST_F(PathsOfRuns, RefuseAFolderForCheckpointsThatIsNotInThem) {
  Run("exit 0", Path("hidden") + "/a");
  EXPECT_EQ(node.Status(7, 1).start_error(),
            fmt::format("its checkpoint.dir would be {}/a; jobs of its project may write in {} here",
                        Path("hidden"), Path("kept")));
  EXPECT_FALSE(std::filesystem::exists(node.dir() / "hidden" / "a"));
}

}  // namespace
}  // namespace imgd
