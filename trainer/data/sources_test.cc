#include "trainer/data/sources.h"

#include <gmock/gmock.h>

#include "trainer/data/crc32c.h"
#include "trainer/data/read_ahead.h"
#include "trainer/data/shard_set.h"
#include "trainer/data/test_http_server.h"
#include "trainer/data/test_images.h"
#include "trainer/data/test_tar.h"

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
