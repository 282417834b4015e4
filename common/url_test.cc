#include "common/url.h"

#include <gmock/gmock.h>

namespace imgd {
namespace {

using testing::HasSubstr;

TEST(Url, IsReadAndPutTogether) {
  const Url url = ParseUrl("HTTPS://me:p@ss@Host:8443/a b/c?x=1#frag").value();
  EXPECT_EQ(url.ToString(), "https://host:8443/a%20b/c?x=1");
  EXPECT_EQ(url.ForPeople(), "https://host:8443/a%20b/c");
  EXPECT_EQ(url.userinfo, "me:p@ss");
  EXPECT_EQ(ParseUrl("s3://bucket/a=b/c?d").value().path, "/a=b/c?d");
  EXPECT_EQ(Beside("http://h/a?sig=1", "x y.tar"), "http://h/a/x%20y.tar?sig=1");
  EXPECT_EQ(NameOfFile("http://h/a/x%20y.tar?z"), "x y.tar");
  EXPECT_EQ(Resolve(url, "../d").value().path, "/a%20b/../d");
  for (const char* bad :
       {"http://", "ftp://x/", "http://h:0/", "http://h:x/", "http://h h/", "http://h/\n", "s3:///x"})
    EXPECT_FALSE(ParseUrl(bad).has_value()) << bad;
  EXPECT_THAT(ParseUrl("http://me:secret@/").error().message, testing::Not(HasSubstr("secret")));
}

TEST(GrpcAddresses, AreTlsButOnLoopbackUnlessASchemeSaysSo) {
  EXPECT_TRUE(SplitGrpcAddress("gpu-head:7650").tls);
  EXPECT_TRUE(SplitGrpcAddress("gpu-head").tls);
  EXPECT_TRUE(SplitGrpcAddress("[fd00::1]:7650").tls);
  EXPECT_FALSE(SplitGrpcAddress("127.0.0.1:7650").tls);
  EXPECT_FALSE(SplitGrpcAddress("localhost").tls);
  EXPECT_FALSE(SplitGrpcAddress("[::1]").tls);
  EXPECT_FALSE(SplitGrpcAddress("[::1]:7650").tls);
  EXPECT_TRUE(SplitGrpcAddress("https://127.0.0.1:7650/").tls);
  EXPECT_EQ(SplitGrpcAddress("https://127.0.0.1:7650/").address, "127.0.0.1:7650");
  EXPECT_FALSE(SplitGrpcAddress("http://gpu-head:7650").tls);
  EXPECT_TRUE(SplitGrpcAddress("http://gpu-head:7650").is_said);
  EXPECT_EQ(SplitGrpcAddress("ftp://gpu-head").address, "ftp://gpu-head");
}

}  // namespace
}  // namespace imgd
