#include "trainer/data/fetch.h"

#include <gmock/gmock.h>

#include <filesystem>

#include "common/files.h"
#include "trainer/data/hash.h"
#include "trainer/data/test_http_server.h"
#include "trainer/data/test_images.h"

namespace imgd::data {
namespace {

using testing::HasSubstr;

class FetchTest : public testing::Test {
 protected:
  FetchTest() : server_([this](const TestRequest& request) { return Answer(request); }) {
    for (int i = 0; i < 50'000; ++i) content_ += static_cast<char>(i * 31 >> 3);
  }
  TestReply Answer(const TestRequest& request) {
    if (request.target == "/gone") return {.status = 404};
    TestReply reply = ServeContent(request, content_, etag_);
    if (reply.body.size() > 1) sent_ += reply.body.size();
    if (reply.body.size() > 1 && --good_ < 0) reply.status = 404;
    return reply;
  }
  Result<Fetched> Fetch(FetchOptions options = {}, const std::string& name = "/x") {
    options.chunk_bytes = 10'000;
    options.connections = 2;
    return FetchFile(SourceOpener({.http = {.patience = Milliseconds(50), .first_wait = Milliseconds(5)}}),
                     server_.url() + name, Out(), options);
  }
  std::string Out(const std::string& ending = "") const { return (folder_.path() / "x").string() + ending; }
  std::string Checksum() const { return Sha256Hex(content_); }

  TempFolder folder_;
  std::string content_;
  std::string etag_ = "\"1\"";
  std::atomic<uint64_t> sent_ = 0;
  std::atomic<int> good_ = 1'000;
  TestHttpServer server_;
};

TEST_F(FetchTest, GoesOnWhereItWasBrokenOff) {
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
  etag_ = "\"2\"";
  std::ranges::reverse(content_);
  EXPECT_EQ(Fetch()->kept, 0U);
  EXPECT_EQ(ReadFile(Out()).value(), content_);
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

TEST(Checksums, AreReadAsTheToolsWriteThem) {
  const std::string md5(32, 'a');
  const std::string sha(64, 'B');
  const auto sums = ParseChecksums(md5 + "  a.tar\n# note\n" + sha + " *dir/b.tar\r\n", "SUMS").value();
  EXPECT_EQ(sums.at("a.tar"), md5);
  EXPECT_EQ(sums.at("b.tar"), std::string(64, 'b'));
  EXPECT_THAT(ParseChecksums("\nxyz  a\n", "SUMS").error().message, HasSubstr("SUMS:2: no line"));
  EXPECT_EQ(KnownChecksum("ILSVRC2012_img_val.tar"), "29b22e2961454d5413ddabcf34fc5622");
}

}  // namespace
}  // namespace imgd::data
