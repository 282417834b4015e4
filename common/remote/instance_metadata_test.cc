#include "common/remote/instance_metadata.h"

#include <gmock/gmock.h>

#include "common/remote/testing/http_server.h"

namespace imgd {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

/// What a machine's metadata service has, and the tokens that it takes.
struct FakeMetadata {
  std::map<std::string, std::string> content;
  int tokens = 0;
  int refuse = 0;  ///< status of everything, where it is not 0
  std::string valid;

  TestReply operator()(const TestRequest& request) {
    if (refuse != 0) return {.status = refuse};
    if (request.target == "/latest/api/token") {
      const bool lasts = request.header("x-aws-ec2-metadata-token-ttl-seconds") == "21600";
      if (request.method != "PUT" || !lasts) return {.status = 400};
      valid = fmt::format("T{}", ++tokens);
      return {.body = valid};
    }
    if (request.header("x-aws-ec2-metadata-token") != valid) return {.status = 401};
    const auto found = content.find(request.target);
    return found == content.end() ? TestReply{.status = 404} : TestReply{.body = found->second};
  }
};

struct MetadataTest : testing::Test {
  FakeMetadata fake;
  TestHttpServer server{[this](const TestRequest& request) { return fake(request); }};
  InstanceMetadata metadata{server.url() + "/"};
};

TEST_F(MetadataTest, WhatIsThereIsReadWithOneToken) {
  fake.content = {{"/a", "content"}};
  EXPECT_EQ(metadata.Get("/a").value(), "content");
  EXPECT_EQ(metadata.Get("/b").value(), std::nullopt);
  EXPECT_EQ(metadata.Get("/a").value(), "content");
  EXPECT_THAT(server.log(), ElementsAre(HasSubstr("PUT /latest/api/token"), HasSubstr("GET /a"),
                                        HasSubstr("GET /b"), HasSubstr("GET /a")));
}

TEST_F(MetadataTest, AnOldTokenIsReplacedOnce) {
  fake.content = {{"/a", "content"}};
  ASSERT_TRUE(metadata.Get("/a").has_value());
  fake.valid = "another";
  EXPECT_EQ(metadata.Get("/a").value(), "content");
  EXPECT_EQ(fake.tokens, 2);
}

TEST_F(MetadataTest, WhatItRefusesIsAnErrorAndIsAskedForAgainTheNextTime) {
  for (const int status : {400, 401, 403, 500}) {
    fake.refuse = status;
    const auto refused = metadata.Get("/a");
    ASSERT_FALSE(refused.has_value()) << status;
    EXPECT_EQ(refused.error().code, ErrorCode::kUnavailable);
    EXPECT_THAT(refused.error().message, HasSubstr(fmt::format("status {}", status)));
  }
  fake.refuse = 0;
  fake.content = {{"/a", "content"}};
  EXPECT_EQ(metadata.Get("/a").value(), "content");
}

TEST_F(MetadataTest, AnAnswerWithoutEndIsNotTaken) {
  fake.content = {{"/a", std::string(70 << 10, 'x')}};
  const auto refused = metadata.Get("/a");
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, ErrorCode::kDataLoss);
}

}  // namespace
}  // namespace imgd
