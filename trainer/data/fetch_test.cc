#include "trainer/data/fetch.h"

#include <gmock/gmock.h>

#include <filesystem>

#include "common/files.h"
#include "common/remote/testing/http_server.h"
#include "common/sha256.h"
#include "trainer/data/hash.h"
#include "trainer/data/test_images.h"

namespace imgd::data {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class FetchTest : public testing::Test {
 protected:
  FetchTest() : server_([this](const TestRequest& request) { return Answer(request); }) {
    for (int i = 0; i < 50'000; ++i) content_ += static_cast<char>(i * 31 >> 3);
  }
  TestReply Answer(const TestRequest& request) {
    const std::lock_guard lock(mutex_);
    if (request.target == "/gone") return {.status = 404};
    if (request.target == "/huge")
      return {.status = 206, .headers = {{"Content-Range", "bytes 0-0/9223372036854775807"}}, .body = "x"};
    TestReply reply = ServeContent(request, content_, etag_);
    if (reply.body.size() > 1) sent_ += reply.body.size();
    if (reply.body.size() > 1 && --good_ < 0) after_(reply);
    return reply;
  }
  Result<Fetched> Fetch(FetchOptions options = {}, const std::string& name = "/x") {
    options.chunk_bytes = 10'000;
    options.connections = connections_;
    return FetchFile(
        SourceOpener(
            {.http = {.stall = stall_, .patience = Milliseconds(50), .first_wait = Milliseconds(5)}}),
        server_.url() + name, Out(), options);
  }
  /// How the server answers is changed in this: it may still be at work for a fetch that has ended.
  void Change(const std::function<void()>& change) {
    const std::lock_guard lock(mutex_);
    change();
  }
  std::string Out(const std::string& ending = "") const { return (folder_.path() / "x").string() + ending; }
  std::string Checksum() const { return Sha256Of(content_); }

  TempFolder folder_;
  int connections_ = 2;
  Milliseconds stall_ = kLong;
  std::atomic<uint64_t> sent_ = 0;
  std::atomic<int> good_ = 1'000;  ///< chunks, before
  std::mutex mutex_;               ///< guards all below
  std::string content_;
  std::string etag_ = "\"1\"";
  std::function<void(TestReply&)> after_ = [](TestReply& r) { r.status = 404; };  ///< makes them bad
  TestHttpServer server_;
};

TEST_F(FetchTest, GoesOnWhereItWasBrokenOff) {
  connections_ = 1;  // two parts are there when the third fails
  good_ = 2;
  EXPECT_THAT(Fetch().error().message, HasSubstr("404"));
  EXPECT_FALSE(std::filesystem::exists(Out()));
  good_ = 1'000;
  sent_ = 0;
  const auto fetched = Fetch({.checksum = Checksum()});
  ASSERT_TRUE(fetched.has_value()) << fetched.error().message;
  EXPECT_EQ(fetched->kept, 20'000U);
  EXPECT_EQ(sent_, 30'000U);
  EXPECT_EQ(ReadFile(Out()).value(), content_);
  EXPECT_FALSE(std::filesystem::exists(Out(".part")) || std::filesystem::exists(Out(".parts")));
  EXPECT_EQ(Fetch({.checksum = Checksum()})->kept, 50'000U) << "complete: checked, not fetched";
  EXPECT_EQ(sent_, 30'000U);
}

TEST_F(FetchTest, BeginsAnewWhereTheSourceHasChanged) {
  good_ = 2;
  EXPECT_FALSE(Fetch().has_value());
  good_ = 1'000;
  Change([&] {
    etag_ = "\"2\"";
    std::ranges::reverse(content_);
  });
  EXPECT_EQ(Fetch()->kept, 0U);
  EXPECT_EQ(ReadFile(Out()).value(), content_);
}

TEST_F(FetchTest, AServerThatGoesWrongInBetweenIsSaidAndTheFetchGoesOnLater) {
  const std::pair<std::function<void(TestReply&)>, std::string> wrongs[] = {
      {[](TestReply& r) { r.headers[0].second = "\"2\""; }, "has changed on the server"},
      {[](TestReply& r) { r.status = 200; }, "ignores range requests"},
      {[](TestReply& r) {
         r = {.headers = {{"Content-Type", "text/html"}}, .body = "<html>"};
       },
       "a web page"},
      {[](TestReply& r) {
         r = {.status = 302, .headers = {{"Location", "/x"}}};
       },
       "five redirects"},
      {[](TestReply& r) { r.headers[1].second = "bytes 0-0/99"; }, "(99 bytes, not 50000)"},
      {[](TestReply& r) { r.cut_after = 0; }, "cannot read http"},
      {[](TestReply& r) { r.stall_after = 0; }, "no answer for 300 ms"},
  };
  for (const auto& [wrong, words] : wrongs) {
    Change([&] { after_ = wrong; });
    good_ = 2;
    stall_ = words.starts_with("no answer") ? Milliseconds(300) : kLong;
    const auto failed = Fetch();
    ASSERT_FALSE(failed.has_value()) << words;
    EXPECT_THAT(failed.error().message, HasSubstr(words));
    EXPECT_FALSE(std::filesystem::exists(Out()));
    good_ = 1'000;
    stall_ = kLong;
    const auto fetched = Fetch({.checksum = Checksum()});
    ASSERT_TRUE(fetched.has_value()) << fetched.error().message;
    EXPECT_GT(fetched->kept, 0U) << words;
    std::filesystem::remove(Out());
  }
}

TEST_F(FetchTest, AWrongChecksumLeavesNothing) {
  const std::string other(32, 'a');
  EXPECT_THAT(Fetch({.checksum = other}).error().message, HasSubstr("not " + other));
  EXPECT_TRUE(std::filesystem::is_empty(folder_.path()));
  folder_.Write("x", "short");
  EXPECT_THAT(Fetch().error().message, HasSubstr("is there with 5 bytes"));
}

TEST_F(FetchTest, CanBeStopped) {
  const auto stopped = Fetch({.on_progress = [](uint64_t, uint64_t, bool) { return false; }});
  EXPECT_TRUE(stopped.has_value() || stopped.error().code == ErrorCode::kCancelled);
  EXPECT_EQ(Fetch()->bytes, 50'000U);
  EXPECT_EQ(Fetch({}, "/gone").error().code, ErrorCode::kNotFound);
}

TEST_F(FetchTest, ALieAboutTheSizeIsRefused) {
  const auto fetched = Fetch({}, "/huge");
  ASSERT_FALSE(fetched.has_value());
  EXPECT_THAT(fetched.error().message, HasSubstr("is said to have 9223372036854775807 bytes; at most"));
  EXPECT_TRUE(std::filesystem::is_empty(folder_.path()));
}

TEST(Parts, CountUpToTheFirstLineThatIsNone) {
  const auto noted = [](std::string_view lines) {
    std::vector<size_t> chunks;
    const auto there = ChunksNoted(lines, 12);
    for (size_t i = 0; i < there.size(); ++i) {
      if (there[i]) chunks.push_back(i);
    }
    return chunks;
  };
  EXPECT_THAT(noted("11\n0\n3\n"), ElementsAre(0, 3, 11));
  EXPECT_THAT(noted("1\n3"), ElementsAre(1)) << "torn: it may have been 31";
  for (const char* line : {"12\n", "-1\n", "x\n", "\n", " 2\n", "99999999999999999999999\n"}) {
    EXPECT_THAT(noted(fmt::format("1\n{}2\n", line)), ElementsAre(1)) << line;
  }
}

TEST(Checksums, AreReadAsTheToolsWriteThem) {
  const std::string md5(32, 'a');
  const std::string sha(64, 'B');
  const auto sums = ParseChecksums(md5 + "  a.tar\n# note\n" + sha + " *dir/b.tar\r\n", "SUMS").value();
  EXPECT_EQ(sums.at("a.tar"), md5);
  EXPECT_EQ(sums.at("b.tar"), std::string(64, 'b'));
  EXPECT_EQ(ParseChecksums(md5 + "  dir/a file.tar\n", "SUMS").value().at("a file.tar"), md5);
  EXPECT_THAT(ParseChecksums("\nxyz  a\n", "SUMS").error().message, HasSubstr("SUMS:2: no line"));
  EXPECT_EQ(KnownChecksum("ILSVRC2012_img_val.tar"), "29b22e2961454d5413ddabcf34fc5622");
}

}  // namespace
}  // namespace imgd::data
