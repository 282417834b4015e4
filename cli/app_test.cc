#include "cli/app.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "cli/testing/fake_daemon.h"
#include "cli/testing/run_cli.h"

namespace imgd::cli {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::SizeIs;

CliResult RunIt(std::vector<std::string> arguments) {
  CliCall call;
  call.arguments = std::move(arguments);
  return RunCli(call);
}

TEST(App, AMisspeltCommandOrOptionIsUsageWithTheNearest) {
  const auto command = RunIt({"jbos"});
  EXPECT_EQ(command.exit_code, 2);
  EXPECT_THAT(command.err, HasSubstr("error: unknown command 'jbos' (did you mean 'jobs'?)"));
  const auto option = RunIt({"jobs", "--limt=3"});
  EXPECT_EQ(option.exit_code, 2);
  EXPECT_THAT(option.err, AllOf(HasSubstr("unknown option --limt (did you mean '--limit'?)"),
                                HasSubstr("imgcli jobs --help")));
  EXPECT_THAT(RunIt({"dataset", "synh"}).err, HasSubstr("unknown command 'synh' (did you mean 'synth'?)"));
  EXPECT_THAT(RunIt({"show", "--ouput", "json"}).err, HasSubstr("unknown option --ouput (did you mean"));
  EXPECT_THAT(RunIt({"jobs", "5"}).err, HasSubstr("'5' is one argument too many"));
}

TEST(App, BadValuesAreUsage) {
  for (const auto& arguments :
       std::vector<std::vector<std::string>>{{},
                                             {"show"},
                                             {"jobs", "-o", "xml"},
                                             {"metrics", "1", "--plot", "-o", "csv"},
                                             {"jobs", "--limit", "0"},
                                             {"jobs", "--limit", "many"},
                                             {"jobs", "--timeout", "soon"},
                                             {"jobs", "--color", "red"},
                                             {"logs", "1", "-o", "wide"},
                                             {"watch", "1", "-o", "wide"},
                                             {"dataset", "synth", "--seed", "-1", "/nowhere/x"},
                                             {"submit", "x", "--watch", "-o", "json"}}) {
    const auto done = RunIt(arguments);
    EXPECT_EQ(done.exit_code, 2) << testing::PrintToString(arguments);
    EXPECT_THAT(done.out, IsEmpty());
    EXPECT_THAT(done.err, Not(IsEmpty()));
  }
}

TEST(App, HelpAndVersionGoToStandardOutput) {
  EXPECT_THAT(RunIt({"--version"}).out, HasSubstr("imgcli 0."));
  EXPECT_THAT(RunIt({"version"}).out, HasSubstr("imgcli 0."));
  for (const char* name : {"submit", "jobs", "show", "watch", "wait", "logs", "cancel", "nodes"}) {
    const auto help = RunIt({name, "--help"});
    EXPECT_EQ(help.exit_code, 0);
    EXPECT_THAT(help.out, HasSubstr("Examples:")) << name;
  }
  EXPECT_THAT(RunIt({"dataset", "synth", "--help"}).out, HasSubstr("imgcli dataset synth --classes 100"));
}

TEST(App, ANumberThatIsNoneIsToldInWords) {
  EXPECT_THAT(RunIt({"logs", "1", "--rank", "-1"}).err,
              HasSubstr("error: --rank: found '-1' where a whole number from 0 is expected"));
  EXPECT_THAT(RunIt({"jobs", "--limit", "many"}).err,
              HasSubstr("--limit: found 'many' where a whole number from 1 to 1000000 is expected"));
  EXPECT_THAT(RunIt({"dataset", "synth", "--seed", "-1", "x"}).err, HasSubstr("--seed: found '-1'"));
}

TEST(App, ADataSetIsDrawnAndCounted) {
  const std::string out = testing::TempDir() + fmt::format("imgcli-set-{}", ::getpid());
  const auto drawn = RunIt(
      {"dataset", "synth", "--classes", "1", "--per-class", "3", "--size", "16x16", "--jobs", "1", out});
  EXPECT_EQ(drawn.exit_code, 0) << drawn.err;
  EXPECT_EQ(drawn.out, out + ": 1 class, 3 training and 1 validation images of 16 x 16 pixels\n");
  EXPECT_THAT(RunIt({"dataset", "info", out}).out, HasSubstr("train: 3 images in 1 class\n"));
  const auto json = nlohmann::json::parse(RunIt({"dataset", "info", out, "-o", "json"}).out);
  EXPECT_EQ(json[1]["classes"][0]["images"], 1);
  const auto converted =
      RunIt({"dataset", "convert", "--shards", "2", "--jobs", "1", out + "/train", out + "/shards"});
  EXPECT_EQ(converted.exit_code, 0) << converted.err;
  EXPECT_THAT(converted.out, HasSubstr("/shards: 3 images in 2 shards, "));
  EXPECT_THAT(RunIt({"dataset", "info", out + "/shards"}).out, HasSubstr("shards: 3 images in 1 class\n"));
  EXPECT_THAT(RunIt({"dataset", "convert", "--shard-size", "1x", out + "/train", out + "/s"}).err,
              HasSubstr("--shard-size: found '1x' where a size such as 256MB or 1GiB is expected"));
  std::filesystem::remove_all(out);
}

TEST(App, AnAbsentDaemonIsOneSentence) {
  FakeDaemon daemon;
  daemon.Stop();
  CliCall call;
  call.arguments = {"jobs"};
  call.env["IMGD_SERVER"] = daemon.address();
  const auto done = RunCli(call);
  EXPECT_EQ(done.exit_code, 4);
  EXPECT_THAT(Lines(done.err), SizeIs(1));
  EXPECT_THAT(done.err, AllOf(HasSubstr("cannot reach imgd at " + daemon.address() + " (from IMGD_SERVER): "),
                              HasSubstr("Connection refused"), HasSubstr("check that imgd runs there")));
}

TEST(App, ColoursComeOnlyWhereTheyAreWanted) {
  FakeDaemon daemon;
  daemon.PutJob(MakeJob(1, "a", v1::JOB_STATE_FAILED));
  const auto colored = [&](std::vector<std::string> arguments, bool terminal, std::string no_color) {
    auto call = CallTo(daemon.address(), std::move(arguments));
    call.terminal.is_terminal = terminal;
    call.env["NO_COLOR"] = std::move(no_color);
    return RunCli(call).out.find("\x1b[31mFAILED") != std::string::npos;
  };
  EXPECT_TRUE(colored({"jobs"}, true, ""));
  EXPECT_FALSE(colored({"jobs"}, true, "1"));
  EXPECT_FALSE(colored({"jobs"}, false, ""));
  EXPECT_TRUE(colored({"jobs", "--color", "always"}, false, "1"));
  EXPECT_FALSE(colored({"--color", "never", "jobs"}, true, ""));
}

TEST(App, OutputThatCannotBeWrittenIsAFailure) {
  FakeDaemon daemon;
  daemon.PutJob(MakeJob(1, "a", v1::JOB_STATE_COMPLETED));
  std::istringstream in;
  std::ostream full(nullptr);
  std::ostringstream err;
  const std::string address = daemon.address();
  const Host host{.in = in, .out = full, .err = err, .terminal = {}, .env = [](const char*) { return ""; }};
  for (const std::vector<const char*>& words : std::vector<std::vector<const char*>>{
           {"jobs"}, {"logs", "1"}, {"logs", "1", "-f"}, {"watch", "1"}, {"events"}, {"--help"}}) {
    std::vector<const char*> argv = {"imgcli", "--server", address.c_str()};
    argv.insert(argv.end(), words.begin(), words.end());
    err.str("");
    full.clear();
    EXPECT_EQ(cli::Run(static_cast<int>(argv.size()), argv.data(), host), 1) << words.front();
    EXPECT_THAT(err.str(), HasSubstr("cannot write all of the output")) << words.front();
  }
}

}  // namespace
}  // namespace imgd::cli
