#include "cli/completion.h"

#include <gmock/gmock.h>

#include "cli/testing/run_cli.h"

namespace imgd::cli {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsSupersetOf;
using testing::Not;

Grammar SmallGrammar() {
  const Grammar::Option help{.names = {"-h", "--help"}, .help = "Print help"};
  const Grammar::Option output{.names = {"-o", "--output"},
                               .help = "How to print",
                               .value_name = "FORMAT",
                               .words = {"table", "json", "yaml"},
                               .takes_value = true};
  const Grammar::Option key{.names = {"--key"}, .help = "Key", .value_name = "FILE", .takes_value = true};
  const Grammar::Option all{.names = {"-a", "--all"}, .help = "Also those\nthat have ended"};
  const Grammar::Option job{.names = {"JOB"}, .takes_value = true};
  const Grammar::Option source{.names = {"SRC"}, .takes_value = true};
  const Grammar::Option shell{.names = {"SHELL"}, .words = {"bash", "fish"}, .takes_value = true};
  const Grammar jobs{.name = "jobs", .help = "List jobs", .options = {help, output, all}};
  const Grammar show{.name = "show", .help = "Show a job", .options = {help, output}, .arguments = {job}};
  const Grammar convert{.name = "convert", .help = "Convert", .options = {help}, .arguments = {source}};
  const Grammar dataset{.name = "dataset", .help = "Data sets", .options = {help}, .commands = {convert}};
  const Grammar script{.name = "script", .help = "Print one", .options = {help}, .arguments = {shell}};
  return {.name = "imgcli", .options = {help, key}, .commands = {jobs, show, dataset, script}};
}

/// The words that are offered, with ":files" last where names of files are too.
std::vector<std::string> Offered(const std::vector<std::string>& words) {
  const auto completion = Complete(SmallGrammar(), words);
  std::vector<std::string> offered;
  for (const auto& candidate : completion.candidates) offered.push_back(candidate.word);
  if (completion.files) offered.push_back(":files");
  return offered;
}

TEST(Completion, OffersWhatCanStandThere) {
  const std::vector<std::string> commands = {"jobs", "show", "dataset", "script"};
  const std::vector<std::string> formats = {"table", "json", "yaml"};
  struct Case {
    const char* what;
    std::vector<std::string> words;
    std::vector<std::string> offered;
  };
  for (const auto& [what, words, offered] : std::vector<Case>{
           {"nothing typed", {""}, commands},
           {"no word at all", {}, commands},
           {"the beginning of a command", {"s"}, {"show", "script"}},
           {"a command of a command", {"dataset", ""}, {"convert"}},
           {"options, the command's first", {"jobs", "-"}, {"--help", "--output", "--all", "--key"}},
           {"the beginning of an option", {"jobs", "--a"}, {"--all"}},
           {"the program's option after a command", {"dataset", "convert", "--k"}, {"--key"}},
           {"an option's value", {"jobs", "-o", ""}, formats},
           {"the beginning of a value", {"jobs", "--output", "j"}, {"json"}},
           {"a value after '=', as zsh and fish have it", {"jobs", "--output=t"}, {"--output=table"}},
           {"a value after '=', as bash has it", {"jobs", "--output", "=", "t"}, {"table"}},
           {"right after bash's '='", {"jobs", "--output", "="}, formats},
           {"a file", {"--key", ""}, {":files"}},
           {"the value is not taken for a command", {"--key", "jobs", "s"}, {"show", "script"}},
           {"a flag takes no value", {"jobs", "--all", "--o"}, {"--output"}},
           {"a flag with '='", {"jobs", "--all="}, {}},
           {"a job's number, which nobody knows", {"show", ""}, {}},
           {"an argument that is a file", {"dataset", "convert", ""}, {":files"}},
           {"an argument with known words", {"script", "b"}, {"bash"}},
           {"after -- no options", {"dataset", "convert", "--", "-"}, {":files"}},
           {"an unknown command", {"no", "jo"}, {"jobs"}},
       }) {
    EXPECT_EQ(Offered(words), offered) << what;
  }
}

TEST(Completion, TheTextHasTheFirstLineOfEachHelp) {
  const auto completion = Complete(SmallGrammar(), {"jobs", "--a"});
  EXPECT_EQ(CompletionText(completion), "--all\tAlso those\n");
  EXPECT_EQ(CompletionText({.candidates = {{"json", ""}}, .files = true}), "json\n:files\n");
}

std::vector<std::string> OfProgram(std::vector<std::string> words) {
  words.insert(words.begin(), "complete");
  return Lines(RunCli({.arguments = std::move(words)}).out);
}

TEST(Completion, TheProgramKnowsItsOwnWords) {
  EXPECT_THAT(OfProgram({""}),
              IsSupersetOf({std::string("cancel\tEnd jobs"), std::string("jobs\tList jobs, newest first")}));
  EXPECT_THAT(OfProgram({"jobs", "-o", ""}), ElementsAre("table", "wide", "json", "yaml"));
  EXPECT_THAT(OfProgram({"--color", "a"}), ElementsAre("auto", "always"));
  EXPECT_THAT(OfProgram({"completion", ""}), ElementsAre("bash", "zsh", "fish"));
  EXPECT_THAT(OfProgram({"submit", ""}), ElementsAre(":files"));
  EXPECT_THAT(OfProgram({""}), Not(Contains(HasSubstr("complete\t"))));
}

TEST(Completion, EveryListingIsAlsoWide) {
  const std::vector<std::vector<std::string>> listings = {{"jobs"},
                                                          {"nodes"},
                                                          {"show"},
                                                          {"checkpoints"},
                                                          {"usage"},
                                                          {"node", "show"},
                                                          {"events"},
                                                          {"sweep"},
                                                          {"recipes"},
                                                          {"model", "list"},
                                                          {"dataset", "list"},
                                                          {"token", "list"},
                                                          {"node", "join-tokens"}};
  for (auto words : listings) {
    const std::string name = testing::PrintToString(words);
    words.insert(words.end(), {"-o", ""});
    EXPECT_THAT(OfProgram(words), ElementsAre("table", "wide", "json", "yaml")) << name;
  }
}

TEST(Completion, EachShellHasItsScript) {
  for (const char* shell : {"bash", "zsh", "fish"}) {
    const auto script = RunCli({.arguments = {"completion", shell}});
    EXPECT_EQ(script.exit_code, 0);
    EXPECT_THAT(script.out, HasSubstr("complete ")) << shell;
  }
  EXPECT_EQ(RunCli({.arguments = {"completion", "tcsh"}}).exit_code, 2);
}

}  // namespace
}  // namespace imgd::cli
