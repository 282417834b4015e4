#include <gmock/gmock.h>

#include "common/remote/testing/http_server.h"
#include "trainer/data/shard_set.h"
#include "trainer/data/sources.h"
#include "trainer/data/test_images.h"
#include "trainer/data/test_tar.h"

namespace imgd::data {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

using Variables = std::map<std::string, std::string>;

Environment Env(Variables variables) {
  return [variables = std::move(variables)](const char* name) {
    const auto found = variables.find(name);
    return found == variables.end() ? std::string() : found->second;
  };
}

/// A bucket that knows one key, and an instance's metadata beside it.
struct MiniS3 {
  std::map<std::string, std::string> objects;  ///< by path-style target, encoded
  AwsCredentials valid{"AK", "SK", ""};
  std::vector<std::string> roles_keys;  ///< one after the other
  int handed_out = 0;
  int port = 0;

  bool Signed(const TestRequest& request) const {
    HttpRequest again{.method = request.method,
                      .url = ParseUrl(fmt::format("http://127.0.0.1:{}{}", port, request.target)).value()};
    for (const char* name : {"range", "if-match"}) {
      if (!request.header(name).empty()) again.headers.emplace_back(name, request.header(name));
    }
    std::tm parts{};
    ::strptime(request.header("x-amz-date").c_str(), "%Y%m%dT%H%M%SZ", &parts);
    SignV4(again, valid, {"eu-1", "s3", std::chrono::system_clock::from_time_t(::timegm(&parts))});
    return again.headers.back().second == request.header("authorization");
  }

  TestReply Metadata(const TestRequest& request) {
    const bool lasts = !request.header("x-aws-ec2-metadata-token-ttl-seconds").empty();
    if (request.target == "/latest/api/token") return {.body = request.method == "PUT" && lasts ? "T" : ""};
    if (request.header("x-aws-ec2-metadata-token") != "T") return {.status = 401};
    if (request.target.ends_with("/security-credentials/")) return {.body = "my role"};
    if (!request.target.ends_with("/my%20role")) return {.status = 404};
    const std::string key = roles_keys[static_cast<size_t>(handed_out++)];
    return {
        .body = fmt::format(
            R"({{"AccessKeyId":"{}","SecretAccessKey":"SK","Token":"","Expiration":"2099-01-01T00:00:00Z"}})",
            key)};
  }

  TestReply operator()(const TestRequest& request) {
    if (request.target.starts_with("/latest/")) return Metadata(request);
    if (!Signed(request)) {
      const bool old = request.header("authorization").find("Credential=OLD/") != std::string::npos;
      return {
          .status = old ? 400 : 403,
          .body = old ? "<Code>ExpiredToken</Code>" : "<Error><Code>SignatureDoesNotMatch</Code></Error>"};
    }
    if (request.target.starts_with("/b/?")) return List(request.target);
    const auto found = objects.find(request.target);
    return found == objects.end() ? TestReply{.status = 404} : ServeContent(request, found->second, "\"e\"");
  }

  /// Two keys an answer.
  TestReply List(const std::string& target) const {
    const bool second = target.find("continuation-token=n%2B1") != std::string::npos;
    const std::string rest = second ? "" : "<NextContinuationToken>n+1</NextContinuationToken>";
    std::string keys =
        second ? "<Contents><Key>set%3D1/s-1.tar</Key><Size>7</Size></Contents>"
               : "<Contents><Key>set%3D1/</Key></Contents><Contents><Key>set%3D1/s-0.tar</Key></Contents>";
    return {.body = "<ListBucketResult>" + keys + rest + "</ListBucketResult>"};
  }
};

class S3Test : public testing::Test {
 protected:
  S3Test() : server_([this](const TestRequest& request) { return s3_(request); }) {
    s3_.port = server_.port();
    variables_ = {{"AWS_ACCESS_KEY_ID", "AK"},
                  {"AWS_SECRET_ACCESS_KEY", "SK"},
                  {"AWS_REGION", "eu-1"},
                  {"AWS_ENDPOINT_URL", server_.url()}};
  }
  SourceOpener Opener() const {
    return SourceOpener(
        {.http = {.patience = Milliseconds(50), .first_wait = Milliseconds(5)}, .env = Env(variables_)});
  }
  std::string Content(const SourceOpener& opener, const std::string& where) {
    const auto source = opener.Open(where);
    return source ? ReadText(**source, 0, (*source)->size()).value_or("unreadable") : source.error().message;
  }

  MiniS3 s3_;
  TestHttpServer server_;
  Variables variables_;
};

TEST_F(S3Test, ReadsKeysOfEveryKindSigned) {
  s3_.objects = {{"/b/a%3Db/c%3Ad%2A%20e.tar", "content"}};
  EXPECT_EQ(Content(Opener(), "s3://b/a=b/c:d* e.tar"), "content");
  EXPECT_THAT(Content(Opener(), "s3://b/none"), HasSubstr("s3://b/none: the server answers 404"));
  variables_["AWS_SECRET_ACCESS_KEY"] = "wrong";
  EXPECT_THAT(Content(Opener(), "s3://b/a=b/c:d* e.tar"), HasSubstr("403 SignatureDoesNotMatch"));
}

TEST_F(S3Test, ReadsShardsByPrefixAndByPattern) {
  const std::string shard = Tar({{"a.jpg", "A"}, {"a.cls", "0"}});
  s3_.objects = {{"/b/set%3D1/s-0.tar", shard}, {"/b/set%3D1/s-1.tar", shard}};
  for (const char* where :
       {"s3://b/set=1/", "s3://b/set=1", "s3://b/set=1/s-*.tar", "s3://b/set=1/s-{0,1}.tar"}) {
    const auto set = ShardSet::Open(where, Opener());
    ASSERT_TRUE(set.has_value()) << where << ": " << set.error().message;
    EXPECT_EQ((*set)->size(), 2U) << where;
  }
}

TEST_F(S3Test, TakesTheInstancesRoleAndFetchesItAgainWhenItHasExpired) {
  variables_.erase("AWS_ACCESS_KEY_ID");
  variables_.erase("AWS_SECRET_ACCESS_KEY");
  variables_["AWS_EC2_METADATA_SERVICE_ENDPOINT"] = server_.url() + "/";
  s3_.objects = {{"/b/x", "content"}};
  s3_.roles_keys = {"OLD", "AK", "AK"};
  EXPECT_EQ(Content(Opener(), "s3://b/x"), "content");
  EXPECT_EQ(s3_.handed_out, 2);
}

TEST_F(S3Test, SaysWhichCredentialsAreMissing) {
  variables_.erase("AWS_SECRET_ACCESS_KEY");
  EXPECT_THAT(Content(Opener(), "s3://b/x"), HasSubstr("one is set, and the other is not"));
  variables_.erase("AWS_ACCESS_KEY_ID");
  const TempFolder folder;
  variables_["AWS_SHARED_CREDENTIALS_FILE"] =
      folder.Write("c",
                   "[default]\naws_access_key_id=no\n\n[ team ] # ours\naws_access_key_id = "
                   "AK\naws_secret_access_key=SK\r\n");
  variables_["AWS_PROFILE"] = "other";
  EXPECT_THAT(Content(Opener(), "s3://b/x"), HasSubstr("AWS_PROFILE is 'other', but "));
  variables_["AWS_PROFILE"] = "team";
  s3_.objects = {{"/b/x", "content"}};
  EXPECT_EQ(Content(Opener(), "s3://b/x"), "content");
}

}  // namespace
}  // namespace imgd::data
