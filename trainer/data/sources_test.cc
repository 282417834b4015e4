#include "trainer/data/sources.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cstdlib>

#include "common/remote/testing/http_server.h"
#include "trainer/data/convert_source.h"
#include "trainer/data/crc32c.h"
#include "trainer/data/read_ahead.h"
#include "trainer/data/shard_list.h"
#include "trainer/data/shard_look.h"
#include "trainer/data/shard_set.h"
#include "trainer/data/test_images.h"
#include "trainer/data/test_tar.h"
#include "trainer/data/verify.h"

namespace imgd::data {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

/// Files by their path, served with ranges.
struct FakeSite {
  std::map<std::string, std::string> files;
  TestReply operator()(const TestRequest& request) const {
    const auto found = files.find(request.target);
    if (found == files.end()) return {.status = 404, .body = "none"};
    return ServeContent(request, found->second, fmt::format("\"{:x}\"", Crc32c(AsBytes(found->second))));
  }
};

SourceSettings Settings(const TempFolder& folder) {
  return {.http = {.patience = Milliseconds(200),
                   .first_patience = Milliseconds(50),
                   .first_wait = Milliseconds(5)},
          .cache_folder = folder.path() / "cache"};
}

std::string Bytes(const Dataset& set, size_t i) {
  FileBuffer buffer;
  const Status status = set.Read(i, buffer);
  return status ? std::string(buffer.bytes().begin(), buffer.bytes().end()) : status.error().message;
}

std::string Shard(const std::string& prefix, int images) {
  std::vector<std::pair<std::string, std::string>> files;
  for (int i = 0; i < images; ++i) {
    files.emplace_back(fmt::format("{}{}.jpg", prefix, i), fmt::format("{} number {}", prefix, i));
    files.emplace_back(fmt::format("{}{}.cls", prefix, i), std::to_string(i % 2));
  }
  return Tar(files);
}

TEST(RemoteShards, AreReadByFolderByPatternAndByListing) {
  const TempFolder folder;
  const std::string a = Shard("a", 3);
  const std::string b = Shard("b", 2);
  const SetDescription description{
      "s", {"cat", "dog"}, {{"s-0.tar", a.size(), 3, ""}, {"s-1.tar", b.size(), 2, ""}}};
  const FakeSite site{
      {{"/set/shards.json", description.ToJson()},
       {"/set/s-0.tar", a},
       {"/set/s-1.tar", b},
       {"/bare/s-0.tar", a},
       {"/bare/s-1.tar", b},
       {"/bare/", R"([{"name":"s-1.tar","type":"file","size":1},{"name":"x","type":"directory"},
                                      {"name":"s-0.tar","type":"file"},{"name":"README","type":"file"}])"},
       {"/page/", "<html>"}}};
  const TestHttpServer server(site);
  const SourceOpener opener(Settings(folder));
  for (const char* path :
       {"/set/", "/set", "/set/s-{0..1}.tar", "/bare/", "/bare/s-{0,1}.tar", "/bare/s-*.tar"}) {
    const auto set = ShardSet::Open(server.url() + path, opener);
    ASSERT_TRUE(set.has_value()) << path << ": " << set.error().message;
    ASSERT_EQ((*set)->size(), 5U) << path;
    EXPECT_EQ(Bytes(**set, 4), "b number 1") << path;
    const bool described = std::string(path).starts_with("/set");
    EXPECT_THAT((*set)->classes(), described ? ElementsAre("cat", "dog") : ElementsAre("0", "1")) << path;
    EXPECT_THAT((*set)->place(0), HasSubstr("at byte 512 of http://127.0.0.1"));
  }
  const auto error = [&](const std::string& path) {
    return ShardSet::Open(server.url() + path, opener).error().message;
  };
  EXPECT_THAT(error("/none/"), HasSubstr("no such folder"));
  EXPECT_THAT(error("/page/"), HasSubstr("does not list its files as JSON"));
  EXPECT_THAT(error("/bare/t-*.tar"), HasSubstr("no shard is named like http"));
  EXPECT_THAT(error("/bare/s-2.tar"), HasSubstr("404"));
}

TEST(RemoteShards, AreScannedOnceWithFewRequestsAndFetchedAhead) {
  const TempFolder folder;
  const TestHttpServer server(FakeSite{{{"/s.tar", Shard("a", 200)}}});
  const auto from_shard = [&] {
    size_t n = 0;
    for (const auto& line : server.log()) n += line.starts_with("GET /s.tar bytes");
    return n;
  };
  const SourceOpener opener(Settings(folder));
  { ASSERT_EQ(ShardSet::Open(server.url() + "/s.tar", opener).value()->size(), 200U); }
  EXPECT_LT(from_shard(), 10U);
  size_t before = from_shard();
  const auto set = ShardSet::Open(server.url() + "/s.tar", opener).value();
  EXPECT_EQ(from_shard(), before + 1) << "its size only: the index was kept";

  before = from_shard();
  std::vector<uint32_t> samples;
  for (uint32_t i = 0; i < 200; ++i) samples.push_back((i * 37) % 200);
  set->WillRead(samples);
  for (const uint32_t i : samples) ASSERT_EQ(Bytes(*set, i), fmt::format("a number {}", i));
  EXPECT_EQ(from_shard(), before + 1) << "neighbours in one request";
}

TEST(RemoteShards, AServerThatDoesNotSayWhatIsMissingIsReadAllTheSame) {
  for (const TestReply& missing :
       {TestReply{.status = 403, .body = "<Error><Code>AccessDenied</Code></Error>"},
        TestReply{.body = "\n<!doctype html><p>No such page"}}) {
    const TempFolder folder;
    const FakeSite site{{{"/s.tar", Shard("a", 3)}}};
    const TestHttpServer server([&](const TestRequest& request) {
      return site.files.contains(request.target) ? site(request) : missing;
    });
    const SourceOpener opener(Settings(folder));
    const auto set = ShardSet::Open(server.url() + "/s.tar", opener);
    ASSERT_TRUE(set.has_value()) << set.error().message;
    EXPECT_EQ(Bytes(**set, 2), "a number 2");
  }
}

TEST(RemoteShards, VerificationListsThemOnce) {
  const TempFolder folder;
  const std::string a = Shard("a", 3);
  const SetDescription description{
      "s", {"cat", "dog"}, {{"s-0.tar", a.size(), 3, fmt::format("{:08x}", Crc32c(AsBytes(a)))}}};
  const TestHttpServer server(FakeSite{{{"/set/shards.json", description.ToJson()}, {"/set/s-0.tar", a}}});
  const auto listings = [&] {
    return std::ranges::count_if(server.log(), [](const std::string& line) {
      return line.find("/set/shards.json") != std::string::npos;
    });
  };
  ASSERT_TRUE(ListShards(server.url() + "/set", SourceOpener(Settings(folder))).has_value());
  const auto once = listings();
  ASSERT_EQ(::setenv("IMGD_CACHE_DIR", (folder.path() / "verify").c_str(), 1), 0);
  const auto report = VerifyDataset(server.url() + "/set", {});
  ::unsetenv("IMGD_CACHE_DIR");
  ASSERT_TRUE(report.has_value()) << report.error().message;
  EXPECT_EQ(report->images, 3U);
  EXPECT_EQ(report->broken, 0U);
  EXPECT_EQ(report->checksums, 1U);
  EXPECT_EQ(listings(), 2 * once);
}

/// IMGD_CACHE_DIR while it lives.
class CacheDir {
 public:
  explicit CacheDir(const TempFolder& folder) {
    ::setenv("IMGD_CACHE_DIR", (folder.path() / "verify").c_str(), 1);
  }
  ~CacheDir() { ::unsetenv("IMGD_CACHE_DIR"); }
};

TEST(RemoteShards, APresignedUrlIsVerifiedWithoutItsIndex) {
  const TempFolder folder;
  const CacheDir cache(folder);
  const TestHttpServer server([&](const TestRequest& request) -> TestReply {
    if (request.target == "/s.tar?sign=1.5") return ServeContent(request, Shard("a", 2), "\"1\"");
    return {.status = 403};
  });
  const auto report = VerifyDataset(server.url() + "/s.tar?sign=1.5", {});
  ASSERT_TRUE(report.has_value()) << report.error().message;
  EXPECT_EQ(report->broken, 0U) << report->findings.at(0).reason;
  EXPECT_EQ(report->images, 2U);
}

TEST(RemoteShards, AnIndexWithoutEndIsReadAsFarAsItsShardCanNeed) {
  const TempFolder folder;
  const TestHttpServer server([&](const TestRequest& request) -> TestReply {
    if (request.target == "/s.tar") return ServeContent(request, Shard("a", 2), "\"1\"");
    if (request.target != "/s.tar.idx") return {.status = 404};
    return {.body = std::string(1 << 16, 'x'), .endless = true};
  });
  EXPECT_THAT(ShardSet::Open(server.url() + "/s.tar", SourceOpener(Settings(folder))).error().message,
              HasSubstr("/s.tar.idx: it has more than 105"));
}

TEST(RemoteShards, WhatHasNoVersionIsNotKept) {
  const TempFolder folder;
  std::string content = Shard("a", 2);
  const TestHttpServer server([&](const TestRequest& request) -> TestReply {
    if (request.target != "/s.tar") return {.status = 404};
    TestReply reply = ServeContent(request, content, "");
    std::erase_if(reply.headers, [](const auto& header) { return header.first == "ETag"; });
    return reply;
  });
  SourceSettings settings = Settings(folder);
  settings.cache_bytes = 1 << 20;
  const SourceOpener opener(settings);
  for (const char* prefix : {"a", "b"}) {
    content = Shard(prefix, 2);
    const auto set = ShardSet::Open(server.url() + "/s.tar", opener).value();
    EXPECT_EQ(set->name(0), fmt::format("{}0", prefix));
    EXPECT_EQ(Bytes(*set, 0), fmt::format("{} number 0", prefix));
  }
}

TEST(RemoteShards, TrainAndValBelowAUrlAreItsParts) {
  const TempFolder folder;
  const CacheDir cache(folder);
  const SetDescription description{"s", {"0", "1"}, {{"s-0.tar", Shard("a", 2).size(), 2, ""}}};
  const TestHttpServer server(FakeSite{{{"/", "[]"},
                                        {"/train/shards.json", description.ToJson()},
                                        {"/train/s-0.tar", Shard("a", 2)},
                                        {"/val/", R"([{"name":"s-0.tar","type":"file","size":1}])"},
                                        {"/val/s-0.tar", Shard("b", 2)}}});
  const auto parts = PartsOf(server.url());
  ASSERT_EQ(parts.size(), 2U);
  EXPECT_EQ(parts[0].name, "train");
  EXPECT_EQ(parts[0].where, server.url() + "/train");
  EXPECT_EQ(parts[1].where, server.url() + "/val");
  EXPECT_EQ(FindSource(server.url() + "/", std::nullopt)->parts.size(), 2U);
  EXPECT_TRUE(PartsOf(server.url() + "/train/").empty());
  EXPECT_EQ(LookIntoDescription(server.url() + "/train/shards.json")->name, "s");
  EXPECT_EQ(LookIntoDescription(server.url() + "/shards.json").error().code, ErrorCode::kNotFound);
}

TEST(RemoteShards, GapsAreFoundWhereTheServerLists) {
  const TempFolder folder;
  const CacheDir cache(folder);
  const TestHttpServer server(FakeSite{
      {{"/set/", R"([{"name":"s-0.tar","type":"file","size":1},{"name":"s-2.tar","type":"file","size":1}])"},
       {"/set/s-0.tar", Shard("a", 2)},
       {"/set/s-2.tar", Shard("b", 2)}}});
  const auto report = VerifyDataset(server.url() + "/set/", {}).value();
  ASSERT_EQ(report.findings.size(), 1U);
  EXPECT_EQ(report.findings[0].place, server.url() + "/set/s-1.tar");
}

TEST(RemoteShards, AChangedShardIsScannedAgain) {
  const TempFolder folder;
  FakeSite site{{{"/s.tar", Shard("a", 2)}}};
  const SourceOpener opener(Settings(folder));
  const auto server = std::make_unique<TestHttpServer>([&](const TestRequest& r) { return site(r); });
  const std::string where = server->url() + "/s.tar";
  const auto old = ShardSet::Open(where, opener).value();
  site.files["/s.tar"] = Shard("b", 2);
  EXPECT_THAT(Bytes(*old, 0), HasSubstr("has changed on the server"));
  EXPECT_EQ(ShardSet::Open(where, opener).value()->name(0), "b0");
}

TEST(RemoteShards, AnIndexThatIsNoneIsSaidAndNotReadToItsEnd) {
  const TempFolder folder;
  const std::string shard = Shard("a", 2);
  const TestHttpServer server([&](const TestRequest& request) -> TestReply {
    if (request.target.ends_with(".tar")) return ServeContent(request, shard, "\"1\"");
    if (!request.target.ends_with(".idx")) return {.status = 404};
    const bool endless = request.target.starts_with("/endless");
    return {.body = endless ? std::string(1 << 16, 'x') : "no index", .endless = endless};
  });
  const SourceOpener opener(Settings(folder));
  EXPECT_THAT(ShardSet::Open(server.url() + "/page.tar", opener).error().message,
              HasSubstr("/page.tar.idx is no good shard index"));
  EXPECT_THAT(ShardSet::Open(server.url() + "/endless.tar", opener).error().message,
              HasSubstr("/endless.tar.idx: it has more than 105"));
}

TEST(ReadAhead, KeepsToItsMemoryAndForgetsWhatNobodyReads) {
  const std::string content(1'000'000, 'x');
  const TestHttpServer server([&](const TestRequest& r) { return ServeContent(r, content, "\"1\""); });
  const auto client = std::make_shared<HttpClient>(HttpOptions{});
  const auto ahead = std::make_shared<ReadAhead>(std::make_shared<FetchPool>(2), 10'000);
  const AheadSource source(
      RemoteFile::Open({client, nullptr, ParseUrl(server.url() + "/x").value(), "x"}).value(), ahead);
  std::vector<uint8_t> out(4'000);
  for (uint64_t i = 0; i < 50; ++i) {
    const ByteRange one[] = {{i * 10'000, 4'000}};
    source.WillRead(one);
    EXPECT_LE(ahead->used_bytes(), 10'000U);
    if (i >= 40) {
      EXPECT_TRUE(source.ReadAt(one[0].offset, out).has_value());
    }
  }
  const ByteRange beyond[] = {{999'999, 10}, {~uint64_t{0} - 3, 8}};
  source.WillRead(beyond);
  EXPECT_THAT(source.ReadAt(999'999, out).error().message, HasSubstr("ends at byte 1000000"));
}

TEST(ReadAhead, NeighboursAreJoined) {
  const ByteRange ranges[] = {{100, 10}, {0, 10}, {15, 5}, {300, 0}, {112, 500}};
  const auto joined = Join(ranges, 5, 200);
  ASSERT_EQ(joined.size(), 3U);
  EXPECT_EQ(joined[0].range.offset, 100U);
  EXPECT_EQ(joined[1].range.offset, 0U);
  EXPECT_EQ(joined[1].range.size, 20U);
  EXPECT_EQ(joined[1].pieces, 2U);
  EXPECT_EQ(joined[2].range.size, 500U);
}

TEST(SourceSettings, ComeFromTheEnvironment) {
  const auto with = [](std::map<std::string, std::string> variables) {
    return SourceSettings::FromEnvironment([variables](const char* name) {
      const auto found = variables.find(name);
      return found == variables.end() ? std::string() : found->second;
    });
  };
  EXPECT_EQ(with({{"HOME", "/h"}})->cache_folder, "/h/.cache/imgd/shards");
  EXPECT_EQ(with({{"HOME", "/h"}, {"XDG_CACHE_HOME", "/c"}})->cache_folder, "/c/imgd/shards");
  EXPECT_EQ(with({{"HOME", "/h"}, {"IMGD_CACHE_DIR", "/d"}, {"IMGD_CACHE_BYTES", "0"}})->cache_bytes, 0U);
  EXPECT_THAT(with({{"IMGD_CACHE_BYTES", "10GB"}}).error().message, HasSubstr("IMGD_CACHE_BYTES is '10GB'"));
}

TEST(SourceOpener, SendsWhatTheAuthorizationFileHoldsAndNeverPrintsIt) {
  const TempFolder folder;
  std::vector<std::string> seen;
  const TestHttpServer server([&](const TestRequest& request) {
    seen.push_back(request.header("authorization"));
    return TestReply{.status = 403};
  });
  SourceSettings settings = Settings(folder);
  settings.authorization_file = folder.Write("token", "Bearer t0ken\n");
  const SourceOpener opener(settings);
  std::vector<std::string> errors = {opener.Open(server.url() + "/x").error().message};
  errors.push_back(
      opener.Open(fmt::format("http://me:p%40ss@127.0.0.1:{}/x", server.port())).error().message);
  EXPECT_THAT(seen, ElementsAre("Bearer t0ken", "Basic bWU6cEBzcw=="));
  EXPECT_THAT(errors, Each(Not(testing::AnyOf(HasSubstr("t0ken"), HasSubstr("ss@")))));
  settings.authorization_file = folder.Write("token", "two\nlines\n");
  EXPECT_THAT(SourceOpener(settings).Open(server.url() + "/x").error().message,
              HasSubstr("does not hold one line"));
}

}  // namespace
}  // namespace imgd::data
