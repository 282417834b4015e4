#include <gmock/gmock.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "common/sha256.h"
#include "common/tls/join_token.h"
#include "common/tls/pem.h"
#include "common/tls/probe.h"

namespace imgd::tls {
namespace {

using testing::HasSubstr;

TEST(Pem, ARequestSaysWhichKeyItIsForAndIsSignedByIt) {
  const std::string key = NewKey().value();
  const std::string request = MakeRequest(key).value();
  EXPECT_EQ(CheckRequest(request).value(), PublicHashOf(key).value());
  EXPECT_NE(PublicHashOf(NewKey().value()).value(), PublicHashOf(key).value());
  std::string changed = request;
  const size_t middle = changed.size() / 2;
  changed[middle] = changed[middle] == 'A' ? 'B' : 'A';
  EXPECT_FALSE(CheckRequest(changed)) << "its signature is of another content";
  EXPECT_FALSE(CheckRequest(key));
  EXPECT_FALSE(MakeRequest("no key"));
  EXPECT_FALSE(FactsOf(request));
}

TEST(Pem, ASecretFileIsItsOwnersAloneAlsoInThePlaceOfAnOpenOne) {
  const std::filesystem::path path =
      std::filesystem::path(testing::TempDir()) / fmt::format("imgd_secret_{}", ::getpid());
  std::filesystem::remove(path);
  ASSERT_TRUE(WriteSecretFile(path, "one"));
  ::chmod(path.c_str(), 0644);
  ASSERT_TRUE(WriteSecretFile(path, "two"));
  struct stat found {};
  ASSERT_EQ(::stat(path.c_str(), &found), 0);
  EXPECT_EQ(found.st_mode & 0777, 0600u);
  EXPECT_EQ(found.st_size, 3);
  std::filesystem::remove(path);
}

TEST(Pem, AFingerprintHasColons) { EXPECT_EQ(WithColons("ab01ff"), "AB:01:FF"); }

TEST(JoinTokens, ComeBackFromTheirTextAndNothingElseDoes) {
  const std::string hash = Sha256Of("ca");
  const auto token = ParseJoinToken(" " + ToText({"imgd_12", hash}) + "\n");
  ASSERT_TRUE(token.has_value());
  EXPECT_EQ(token->secret, "imgd_12");
  EXPECT_EQ(token->ca_sha256, hash);
  const std::vector<std::string> others = {"",
                                           "imgd_12",
                                           "imgd-join-",
                                           "imgd-join-a",
                                           "imgd-join--" + hash,
                                           "imgd-join-a-" + hash.substr(1),
                                           "imgd-join-a-" + std::string(64, 'g')};
  for (const auto& bad : others) {
    const auto refused = ParseJoinToken(bad);
    ASSERT_FALSE(refused.has_value()) << bad;
    EXPECT_THAT(refused.error().message, HasSubstr("no join token"));
  }
}

TEST(JoinTokens, TheHashOfACaIsTakenAsPeopleHaveIt) {
  const std::string hash = Sha256Of("ca");
  for (const std::string& text :
       {hash, "sha256:" + hash, WithColons(hash), "sha256=" + WithColons(hash) + "\n"}) {
    EXPECT_EQ(ParseCaHash(text).value_or(""), hash) << text;
  }
  for (const std::string& text : {std::string(), std::string("sha256"), hash.substr(1), "sha1:" + hash}) {
    EXPECT_FALSE(ParseCaHash(text)) << text;
  }
}

TEST(Probe, NobodyThereIsSaidAsSuch) {
  const auto chain = FetchChain({.host = "127.0.0.1", .port = "1"});
  ASSERT_FALSE(chain.has_value());
  EXPECT_EQ(chain.error().code, ErrorCode::kUnavailable);
  EXPECT_THAT(chain.error().message, HasSubstr("127.0.0.1:1: Connection refused"));
}

TEST(Probe, ACertificateThatIsNotInTheChainIsNotTheRightOne) {
  const auto found = FindPinned({}, std::string(64, 'a'), "gpu-head:7650");
  ASSERT_FALSE(found.has_value());
  EXPECT_EQ(found.error().code, ErrorCode::kPermissionDenied);
  EXPECT_THAT(found.error().message, HasSubstr("nothing was sent"));
}

}  // namespace
}  // namespace imgd::tls
