#include "server/web/downloads.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "common/sha256.h"
#include "server/rpc/testing/rpc_fixture.h"
#include "server/web/testing/http_client.h"

namespace imgd {
namespace {

using testing::HasSubstr;
using testing::Not;
using Json = nlohmann::json;

/// A daemon that serves plain HTTP on the loopback, and a running job.
struct DownloadsTest : RpcTest {
  void SetUp() override {
    RpcTest::SetUp();
    if (HasFatalFailure()) return;
    daemon.reset();
    config.web.listen = "127.0.0.1:0";
    config.web.plain_http = true;
    StartDaemon();
    agent = std::make_unique<FakeAgent>(channel, "a", 1);
    id = Submit(kJob);
    run = BringUp(*agent);
    root = Get(id).job().checkpoint_dir();
  }
  void TearDown() override {
    agent.reset();
    RpcTest::TearDown();
  }
  web::TestAnswer Ask(const std::string& path, const std::string& headers = "") {
    web::TestConnection connection(daemon->web_port());
    const auto answer = connection.Ask("GET", path, "", headers);
    EXPECT_TRUE(answer.has_value()) << path;
    return answer.value_or(web::TestAnswer{});
  }
  web::TestAnswer AskFile(const std::string& checkpoint, const std::string& file,
                          const std::string& headers = "") {
    return Ask(fmt::format("/api/v1/jobs/{}/checkpoints/{}/files/{}", id, checkpoint, file), headers);
  }
  Json Checkpoints() {
    return Json::parse(Ask(fmt::format("/api/v1/jobs/{}/checkpoints", id)).body)["checkpoints"];
  }
  /// A checkpoint with one file, and what reports it.
  v1::TrainerEvent Written(uint64_t step, const std::string& content) {
    const auto path = root / "g1" / fmt::format("step{}", step);
    std::filesystem::create_directories(path);
    std::ofstream(path / "model.safetensors") << content;
    return Manifest(path, step, "model.safetensors", content.size());
  }
  /// What validation found of one of generation 1, beside it.
  void Validated(uint64_t step, double top1, uint64_t of_step) {
    std::ofstream(root / "g1" / fmt::format("step{}", step) / "validation.json")
        << Json{{"step", of_step}, {"top1", top1}}.dump();
  }
  static v1::TrainerEvent EpochEvent(uint64_t step, double top1) {
    v1::TrainerEvent event;
    event.mutable_epoch()->set_epoch(static_cast<uint32_t>(step));
    event.mutable_epoch()->set_step(step);
    event.mutable_epoch()->set_val_top1(top1);
    return event;
  }
  static v1::TrainerEvent Manifest(const std::filesystem::path& path, uint64_t step, const std::string& name,
                                   size_t bytes) {
    const Json file = {{"name", name}, {"size", bytes}, {"sha256", std::string(64, 'a')}};
    const std::string manifest = Json{{"format", 1}, {"files", {file}}}.dump();
    std::ofstream(path / "manifest.json") << manifest;
    auto event = CheckpointEvent(path, step, 1);
    event.mutable_checkpoint()->set_manifest_sha256(Sha256Of(manifest));
    return event;
  }

  std::unique_ptr<FakeAgent> agent;
  uint64_t id = 0;
  v1::RunId run;
  std::filesystem::path root;
};

TEST(Range, IsOneOfBytesOrNone) {
  const auto of = [](const char* text, uint64_t size) {
    const auto range = web::RangeOf(text, size);
    return range ? fmt::format("{}-{}", range->first, range->end) : "";
  };
  EXPECT_EQ(of("bytes=0-9", 100), "0-10");
  EXPECT_EQ(of("bytes=90-", 100), "90-100");
  EXPECT_EQ(of("bytes=90-200", 100), "90-100");
  EXPECT_EQ(of("bytes=0-18446744073709551615", 100), "0-100");
  EXPECT_EQ(of("bytes=-10", 100), "90-100");
  EXPECT_EQ(of("bytes=-200", 100), "0-100");
  EXPECT_EQ(of("bytes=100-", 100), "100-100") << "no byte of it";
  for (const char* other : {"", "bytes=", "bytes=-", "bytes=5-4", "bytes=1-2,4-5", "bytes=a-b", "lines=1-2"})
    EXPECT_EQ(of(other, 100), "") << other;
}

TEST_F(DownloadsTest, AFileComesWholeInPartsAndAgain) {
  std::string content;
  for (int i = 0; i < 300'000; ++i) content += fmt::format("{:07};", i);  // several pieces
  agent->Events(run, 0, 2, {Written(5, content)});
  const Json listed = Checkpoints();
  EXPECT_EQ(listed[0]["name"], "g1-step5");
  const auto manifest = *ReadFile(root / "g1/step5/manifest.json");
  EXPECT_EQ(listed[0]["files"],
            Json::array({Json{{"name", "model.safetensors"}, {"size_bytes", "2400000"}},
                         Json{{"name", "manifest.json"}, {"size_bytes", std::to_string(manifest.size())}}}));
  EXPECT_EQ(AskFile("g1-step5", "manifest.json").body, manifest);
  const auto whole = AskFile("g1-step5", "model.safetensors");
  EXPECT_EQ(whole.status, 200);
  EXPECT_TRUE(whole.body == content);
  EXPECT_THAT(whole.head,
              HasSubstr("Content-Disposition: attachment; filename=\"rn50-1-g1-step5-model.safetensors\""));
  EXPECT_THAT(whole.head, HasSubstr("Accept-Ranges: bytes"));
  const auto part = AskFile("g1-step5", "model.safetensors", "Range: bytes=8-15\r\n");
  EXPECT_EQ(part.status, 206);
  EXPECT_EQ(part.body, "0000001;");
  EXPECT_THAT(part.head, HasSubstr("Content-Range: bytes 8-15/2400000\r\n"));
  const std::string same = fmt::format("Range: bytes=-8\r\nIf-Range: \"{}\"\r\n", std::string(64, 'a'));
  EXPECT_EQ(AskFile("g1-step5", "model.safetensors", same).body, "0299999;");
  const auto other = AskFile("g1-step5", "model.safetensors", "Range: bytes=-8\r\nIf-Range: \"x\"\r\n");
  EXPECT_EQ(other.status, 200) << "the file is another than what the caller has a part of";
  EXPECT_EQ(other.body.size(), content.size());
  const auto beyond = AskFile("g1-step5", "model.safetensors", "Range: bytes=2400000-\r\n");
  EXPECT_EQ(beyond.status, 416);
  EXPECT_THAT(beyond.head, HasSubstr("Content-Range: bytes */2400000\r\n"));
  web::TestConnection kept(daemon->web_port());
  const std::string path = fmt::format("/api/v1/jobs/{}/checkpoints/g1-step5/files/model.safetensors", id);
  for (int i = 0; i < 3; ++i)
    EXPECT_EQ(kept.Ask("GET", path, "", fmt::format("Range: bytes={}-{}\r\n", i, i))->body, "0");
}

TEST_F(DownloadsTest, HeadSaysHowLongAFileIsAndSendsNothingOfIt) {
  agent->Events(run, 0, 2, {Written(5, "weights")});
  web::TestConnection connection(daemon->web_port());
  const std::string path = fmt::format("/api/v1/jobs/{}/checkpoints/g1-step5/files/model.safetensors", id);
  for (int i = 0; i < 2; ++i) {
    const auto head = connection.Ask("HEAD", path);
    ASSERT_TRUE(head.has_value());
    EXPECT_EQ(head->status, 200);
    EXPECT_THAT(head->head, HasSubstr("Content-Length: 7\r\n"));
    EXPECT_THAT(head->head, HasSubstr("Accept-Ranges: bytes\r\n"));
  }
  EXPECT_EQ(connection.Ask("GET", path)->body, "weights") << "on the same connection";
}

TEST_F(DownloadsTest, ACheckpointSaysHowGoodItIsAndWhyItStays) {
  std::vector<v1::TrainerEvent> events;
  for (uint64_t step = 1; step <= 6; ++step) events.push_back(Written(step, "weights"));
  events.push_back(EpochEvent(3, 0.875));
  Validated(2, 0.75, 2);
  Validated(4, 0.5, 4);
  Validated(5, 0.9375, 4);  // of other weights
  std::filesystem::remove_all(root / "g1/step3");
  std::ofstream(root / "g1/step1/pinned") << "the paper's\n";
  agent->Events(run, 0, 2, events);
  const Json listed = Checkpoints();
  std::vector<std::string> kept;
  for (const auto& one : listed) kept.push_back(one["name"].get<std::string>() + " " + one["kept_as"].dump());
  EXPECT_THAT(
      kept, testing::ElementsAre("g1-step6 [\"last\"]", "g1-step5 [\"newest 2\"]", "g1-step4 [\"newest 3\"]",
                                 "g1-step3 []", "g1-step2 [\"best\"]", "g1-step1 [\"pinned\"]"));
  EXPECT_EQ(listed[4]["val_top1"], 0.75);
  EXPECT_EQ(listed[3]["val_top1"], 0.875) << "as it was reported: it is gone";
  for (const size_t i : {0u, 1u, 5u}) EXPECT_FALSE(listed[i].contains("val_top1")) << "it was not validated";
}

TEST_F(DownloadsTest, OfOneThatIsUnseenItsOwnStartOrALaterOneSaysHowGoodItIs) {
  agent->Events(run, 0, 2,
                {CheckpointEvent(root / "g0/step5", 5, 0), CheckpointEvent(root / "g1/step6", 6, 1),
                 CheckpointEvent(root / "g2/step5", 5, 2), EpochEvent(5, 0.75), EpochEvent(6, 0.5)});
  const Json listed = Checkpoints();
  EXPECT_FALSE(listed[0].contains("val_top1")) << "g2-step5: an earlier start had other weights then";
  EXPECT_EQ(listed[1]["val_top1"], 0.5);
  EXPECT_EQ(listed[2]["val_top1"], 0.75) << "g0-step5: the next start began with it";
}

TEST_F(DownloadsTest, OneThatAThousandCameAfterIsStillThere) {
  std::vector<v1::TrainerEvent> events = {Written(1, "the first")};
  for (uint64_t step = 2; step <= 1100; ++step)
    events.push_back(CheckpointEvent(root / "g1" / fmt::format("step{}", step), step, 1));
  agent->Events(run, 0, 2, events);
  EXPECT_EQ(AskFile("g1-step1", "model.safetensors").body, "the first");
  EXPECT_EQ(AskFile("g1-step0", "model.safetensors").status, 404);
  const Json listed = Checkpoints();
  ASSERT_EQ(listed.size(), 1001u) << "those that are gone are not all listed";
  EXPECT_EQ(listed[1000]["name"], "g1-step1");
}

TEST_F(DownloadsTest, NothingElseIsSent) {
  agent->Events(run, 0, 2, {Written(5, "weights")});
  std::ofstream(root / "g1/step5/notes.txt") << "secret";
  const auto folder = root / "g1/step5";
  for (const char* file : {"notes.txt", "..%2f..%2fstate.db", "..", "%2e%2e", "pinned", "model"})
    EXPECT_EQ(AskFile("g1-step5", file).status, 404) << file;
  for (const char* name : {"g1-step6", "g1-step05", "step5", "..", "g1", "g1%2Fstep5"})
    EXPECT_EQ(AskFile(name, "model.safetensors").status, 404) << name;
  EXPECT_EQ(Ask("/api/v1/jobs/99/checkpoints/g1-step5/files/model.safetensors").status, 404);
  EXPECT_EQ(Ask("/api/v1/jobs/x/checkpoints/g1-step5/files/model.safetensors").status, 400);

  // A trainer of somebody's own says what it likes: a link in the file's place, another place's manifest.
  std::ofstream(root / "outside") << "weights";
  std::filesystem::remove(folder / "model.safetensors");
  std::filesystem::create_symlink(root / "outside", folder / "model.safetensors");
  const auto linked = AskFile("g1-step5", "model.safetensors");
  EXPECT_EQ(linked.status, 404);
  EXPECT_THAT(linked.body, HasSubstr("is a link, which imgd does not follow"));
  std::filesystem::remove(folder / "model.safetensors");
  ASSERT_EQ(::mkfifo((folder / "model.safetensors").c_str(), 0600), 0);
  EXPECT_EQ(AskFile("g1-step5", "model.safetensors").status, 404) << "a pipe";
  std::filesystem::remove(folder / "model.safetensors");
  std::ofstream(folder / "model.safetensors") << "shorter";
  std::ofstream(folder / "model.safetensors", std::ios::app) << " or longer";
  EXPECT_THAT(AskFile("g1-step5", "model.safetensors").body, HasSubstr("has not the 7 bytes"));
  agent->Events(run, 0, 3, {DownloadsTest::Manifest(folder, 7, "../outside", 7)});
  EXPECT_EQ(AskFile("g1-step7", "..%2Foutside").status, 404);
  const auto swapped = AskFile("g1-step5", "model.safetensors");
  EXPECT_EQ(swapped.status, 500);
  EXPECT_THAT(swapped.body, HasSubstr("another checkpoint than the one that the job wrote"));
}

TEST_F(DownloadsTest, WhatImgdCantSeeItSays) {
  agent->Events(run, 0, 2, {Written(5, "weights"), CheckpointEvent(root / "g1/step4", 4, 1)});
  EXPECT_EQ(Checkpoints()[0]["presence"], "CHECKPOINT_PRESENCE_GONE");
  EXPECT_EQ(Checkpoints()[1]["presence"], "CHECKPOINT_PRESENCE_HERE");
  std::filesystem::remove_all(root);
  const Json listed = Checkpoints();
  EXPECT_EQ(listed[1]["presence"], "CHECKPOINT_PRESENCE_UNSPECIFIED");
  EXPECT_THAT(listed[1]["unseen"].get<std::string>(),
              HasSubstr(fmt::format("imgd's machine has no folder {}", root.native())));
  const auto asked = AskFile("g1-step5", "model.safetensors");
  EXPECT_EQ(asked.status, 412);
  EXPECT_THAT(asked.body, HasSubstr("the checkpoints are on the nodes that ran the job"));
}

TEST_F(DownloadsTest, SamplesAreListedWithoutTheirPicturesWhichHaveAddresses) {
  EXPECT_FALSE(Json::parse(Ask(fmt::format("/api/v1/jobs/{}/samples", id)).body).contains("samples"));
  std::vector<v1::TrainerEvent> events(4);
  for (size_t i = 0; i < events.size(); ++i) {
    auto& samples = *events[i].mutable_samples();
    samples.set_step(i + 1);
    auto& image = *samples.add_images();
    image.set_class_name("cat");
    image.set_picture(fmt::format("\xFF\xD8\xFFpicture {}", i + 1));
    samples.add_images()->set_picture("<script>");
  }
  agent->Events(run, 0, 2, events);
  const auto listed = Ask(fmt::format("/api/v1/jobs/{}/samples", id));
  const Json answer = Json::parse(listed.body);
  EXPECT_EQ(answer["samples"]["step"], "4");
  EXPECT_EQ(answer["samples"]["images"][0]["picture"], "");
  const auto picture = [&](uint64_t event, int number) {
    return Ask(fmt::format("/api/v1/jobs/{}/samples/{}/{}", id, event, number));
  };
  const uint64_t newest = std::stoull(answer["event"].get<std::string>());
  EXPECT_EQ(picture(newest, 0).body, "\xFF\xD8\xFFpicture 4");
  EXPECT_THAT(picture(newest, 0).head, HasSubstr("Content-Type: image/jpeg\r\n"));
  EXPECT_THAT(picture(newest, 0).head, HasSubstr("immutable"));
  EXPECT_EQ(picture(newest - 2, 0).body, "\xFF\xD8\xFFpicture 2");
  EXPECT_EQ(picture(newest - 3, 0).status, 404) << "of older ones the pictures are gone";
  EXPECT_EQ(picture(newest, 1).status, 404) << "that is no picture";
  EXPECT_EQ(picture(newest, 2).status, 404);
  EXPECT_EQ(Ask(fmt::format("/api/v1/jobs/{}/samples/{}/-1", id, newest)).status, 404);
  EXPECT_EQ(Ask(fmt::format("/api/v1/jobs/{}/samples/x/0", id)).status, 400);
  EXPECT_EQ(Ask(fmt::format("/api/v1/jobs/{}/samples/0/0", id)).status, 400)
      << "the newest is another tomorrow";
  for (const auto& event : Watch(id, 0, false)) {
    for (const auto& image : event.samples().images()) EXPECT_EQ(image.picture(), "");
  }
}

TEST_F(DownloadsTest, AnAgentThatNobodyDialsIsAskedByItsStream) {
  web::TestAnswer answer;
  std::thread scraper([&] { answer = Ask("/metrics/nodes/a"); });
  const auto asked = agent->NextCommand();
  ASSERT_TRUE(asked && asked->has_show_metrics());
  agent->Metrics(asked->show_metrics().number() + 7, "of another question\n");
  agent->Metrics(asked->show_metrics().number(), "up 1\n");
  scraper.join();
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(answer.body, "up 1\n");
  EXPECT_THAT(answer.head, HasSubstr("Content-Type: text/plain; version=0.0.4"));
  const Json targets = Json::parse(Ask("/sd/prometheus").body);
  EXPECT_EQ(targets[0]["targets"][0], "localhost");
  EXPECT_EQ(targets[0]["labels"]["__metrics_path__"], "/metrics/nodes/a");
  EXPECT_EQ(Json::parse(Ask("/sd/prometheus?relayed=false").body), Json::array());
  EXPECT_EQ(Ask("/sd/prometheus?relayed=maybe").status, 400);
  EXPECT_EQ(Ask("/metrics/nodes/nobody").status, 404);

  std::thread waits([&] { answer = Ask("/metrics/nodes/a"); });
  ASSERT_TRUE(agent->NextCommand()->has_show_metrics());
  agent->End();
  waits.join();
  EXPECT_EQ(answer.status, 503);
  EXPECT_THAT(answer.body, HasSubstr("went away before it answered"));
  EXPECT_THAT(Ask("/metrics/nodes/a").body, HasSubstr("is not connected"));
}

}  // namespace
}  // namespace imgd
