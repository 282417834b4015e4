#include "agent/ec2_identity.h"

#include <gmock/gmock.h>

#include "agent/config.h"
#include "agent/node_key.h"
#include "agent/testing/temp_dir.h"
#include "common/files.h"
#include "common/remote/testing/http_server.h"

namespace imgd {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;

std::string DocumentOf(const std::string& instance) {
  return fmt::format(
      R"({{"instanceId": "{}", "instanceType": "p4d.24xlarge", "availabilityZone": "us-east-1b", "region": "us-east-1"}})",
      instance);
}

/// A metadata service that wants tokens, as EC2's does.
struct Ec2IdentityTest : testing::Test {
  std::string document = DocumentOf("i-1");
  bool away = false;
  TestHttpServer server{[this](const TestRequest& request) -> TestReply {
    if (away) return {.status = 403};
    if (request.method == "PUT") return {.body = "T"};
    if (request.header("x-aws-ec2-metadata-token") != "T") return {.status = 401};
    if (request.target == "/latest/dynamic/instance-identity/document") return {.body = document};
    if (request.target == "/latest/dynamic/instance-identity/rsa2048") return {.body = "MII=\n"};
    return {.status = 404};
  }};
  TempDir folder;
};

TEST_F(Ec2IdentityTest, TheServiceSaysWhichInstanceThisIsAndWhere) {
  const auto found = FetchEc2Identity(server.url());
  ASSERT_TRUE(found.has_value()) << found.error().message;
  EXPECT_EQ(found->document, document);
  EXPECT_EQ(found->signature, "MII=\n");
  EXPECT_EQ(found->instance, "i-1");
  EXPECT_THAT(found->labels, ElementsAre(Pair("instance_type", "p4d.24xlarge"), Pair("region", "us-east-1"),
                                         Pair("zone", "us-east-1b")));
  document = "<html>";
  EXPECT_THAT(FetchEc2Identity(server.url()).error().message, HasSubstr("names no instance: <html>"));
  away = true;
  EXPECT_THAT(FetchEc2Identity(server.url()).error().message, HasSubstr("cannot ask EC2 which instance"));
}

TEST_F(Ec2IdentityTest, WithoutTheServiceItIsTheInstanceThatItWas) {
  away = true;
  EXPECT_EQ(OwnEc2Identity(server.url(), folder.path()).error().code, ErrorCode::kUnavailable);
  away = false;
  ASSERT_TRUE(OwnEc2Identity(server.url(), folder.path()).has_value());
  away = true;
  const auto kept = OwnEc2Identity(server.url(), folder.path());
  ASSERT_TRUE(kept.has_value());
  EXPECT_EQ(kept->instance, "i-1");
  EXPECT_EQ(kept->labels.at("zone"), "us-east-1b");
}

TEST_F(Ec2IdentityTest, TheStateOfAnotherInstanceIsNotTakenOver) {
  ASSERT_TRUE(OwnEc2Identity(server.url(), folder.path()).has_value());
  document = DocumentOf("i-2");
  const auto refused = OwnEc2Identity(server.url(), folder.path());
  ASSERT_FALSE(refused.has_value());
  EXPECT_THAT(refused.error().message, HasSubstr("is that of the instance i-1, and this one is i-2"));
}

TEST_F(Ec2IdentityTest, AServiceThatIsAwayIsAskedAgainAndNoKeyIsMadeMeanwhile) {
  const SystemClock clock;
  int asked = 0;
  NodeKey key({.server = "127.0.0.1:1",
               .node = "a",
               .agent_id = "x",
               .folder = folder.path(),
               .token_file = {},
               .ca_sha256 = std::string(64, 'a'),
               .ask_ec2 = [&asked]() -> Result<Ec2Identity> {
                 ++asked;
                 return Fail(ErrorCode::kUnavailable, "no such service");
               }},
              &clock);
  for (int i = 1; i <= 2; ++i) {
    EXPECT_THAT(key.Get().error().message, HasSubstr("no such service"));
    EXPECT_EQ(asked, i);
  }
  EXPECT_FALSE(std::filesystem::exists(folder / "node.key"));
}

TEST(Ec2Config, JoiningAsAnInstanceNeedsTlsAndTheHashOfTheCa) {
  const auto parsed =
      ParseConfig("{server: 'gpu-head:7650', trainer: /bin/true, join: ec2}", "agent.yaml", Config());
  ASSERT_TRUE(parsed.has_value());
  Config config = *parsed;
  EXPECT_THAT(CompleteConfig(config).error().message, HasSubstr("join: ec2 needs ca_hash"));
  config.ca_hash = "sha256:1234";
  EXPECT_THAT(CompleteConfig(config).error().message, HasSubstr("found 'sha256:1234'"));
  config.ca_hash = "sha256:" + std::string(64, 'A');
  const auto complete = CompleteConfig(config);
  ASSERT_TRUE(complete.has_value()) << complete.error().message;
  EXPECT_EQ(complete->ca_hash, std::string(64, 'a'));
  EXPECT_EQ(complete->node, "") << "EC2 says it, once it is asked";
  config.server = "http://gpu-head:7650";
  EXPECT_THAT(CompleteConfig(config).error().message, HasSubstr("needs TLS"));
}

}  // namespace
}  // namespace imgd
