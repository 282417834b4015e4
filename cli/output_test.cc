#include "cli/output.h"

#include <gmock/gmock.h>
#include <yaml-cpp/yaml.h>

#include <sstream>

#include "cli/format.h"
#include "cli/serialize.h"
#include "cli/testing/fake_daemon.h"
#include "cli/testing/run_cli.h"

namespace imgd::cli {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

Table SampleTable() {
  Table table({{"ID", true}, {.title = "NAME", .shrink = true}, {"STATE"}});
  table.Add({"7", "a-rather-long-name", Cell("RUNNING", Style::kBusy)});
  table.Add({"12", "", "QUEUED"});
  return table;
}

std::vector<std::string> Printed(const Table& table, const Terminal& terminal) {
  std::ostringstream out;
  table.Print(out, terminal);
  return Lines(out.str());
}

TEST(Table, AlignsNumbersRightAndShowsWhatIsMissing) {
  EXPECT_THAT(Printed(SampleTable(), {}), ElementsAre("ID  NAME                STATE",    //
                                                      " 7  a-rather-long-name  RUNNING",  //
                                                      "12  -                   QUEUED"));
}

TEST(Table, CutsTheNameWhereTheTerminalIsNarrow) {
  const Terminal narrow{.is_terminal = true, .utf8 = true, .width = [] { return 24; }};
  EXPECT_THAT(Printed(SampleTable(), narrow), ElementsAre("ID  NAME         STATE",    //
                                                          " 7  a-rather-l…  RUNNING",  //
                                                          "12  -            QUEUED"));
}

TEST(Table, NeverWrapsHoweverNarrowTheTerminal) {
  for (int width = 1; width < 40; ++width) {
    const Terminal terminal{.is_terminal = true, .utf8 = true, .width = [width] { return width; }};
    for (const auto& line : Printed(SampleTable(), terminal)) EXPECT_LE(DisplayWidth(line), width) << line;
  }
}

TEST(Table, CutsNothingInAPipe) {
  const Terminal pipe{.is_terminal = false, .width = [] { return 10; }};
  EXPECT_THAT(Printed(SampleTable(), pipe)[1], HasSubstr("a-rather-long-name"));
}

TEST(Table, ColoursOnlyWhereTheyAreWanted) {
  EXPECT_THAT(Printed(SampleTable(), {.color = true})[1], HasSubstr("\x1b[36mRUNNING\x1b[0m"));
  EXPECT_THAT(Printed(SampleTable(), {}), Each(Not(HasSubstr("\x1b"))));
}

TEST(Output, JsonHasProtoNamesZeroesAndEnumsAsNames) {
  const auto json = ToJson(MakeJob(12, "rn18", v1::JOB_STATE_QUEUED));
  EXPECT_EQ(json["id"], "12") << "protobuf's mapping of 64-bit integers";
  EXPECT_EQ(json["state"], "JOB_STATE_QUEUED");
  EXPECT_EQ(json["ranks_per_node"], 1);
  EXPECT_EQ(json["restarts"], 0);
  EXPECT_EQ(json["placements"], nlohmann::ordered_json::array());
  EXPECT_FALSE(json.contains("last_step"));
}

TEST(Output, YamlReadsBackAsTheSame) {
  auto job = MakeJob(12, "on", v1::JOB_STATE_QUEUED);
  job.set_job_yaml("name: on\ntrain: {epochs: 3}\n");
  job.set_reason_text("waits: 2 of 3 nodes # \"busy\"");
  job.set_owner("123");
  std::ostringstream out;
  PrintDocument(out, ToJson(job), OutputFormat::kYaml);
  EXPECT_THAT(out.str(), HasSubstr("name: \"on\"")) << "else it is a truth value";
  const YAML::Node node = YAML::Load(out.str());
  EXPECT_EQ(node["id"].as<int>(), 12);
  EXPECT_EQ(node["job_yaml"].as<std::string>(), job.job_yaml());
  EXPECT_EQ(node["reason_text"].as<std::string>(), job.reason_text());
  EXPECT_EQ(node["owner"].as<std::string>(), "123");
  EXPECT_EQ(node["placements"].size(), 0u);
}

TEST(Output, AnUnknownFormatIsNamedWithThoseThatAre) {
  EXPECT_EQ(ParseOutputFormat("xml", {"table", "wide", "json", "yaml"}).error().message,
            "found 'xml'; allowed: table, wide, json, yaml");
}

}  // namespace
}  // namespace imgd::cli
