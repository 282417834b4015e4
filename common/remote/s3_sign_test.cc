#include "common/remote/s3_sign.h"

#include <gmock/gmock.h>

namespace imgd {
namespace {

using testing::HasSubstr;

/// The published examples' time and keys.
const AwsCredentials kExample{"AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"};
const auto kExampleTime = std::chrono::system_clock::from_time_t(1440938160);  // 2015-08-30T12:36:00Z

std::string Signature(const std::string& url) {
  HttpRequest request{.url = ParseUrl(url).value()};
  SignV4(request, kExample, {"us-east-1", "service", kExampleTime});
  const std::string value = request.headers.back().second;
  return value.substr(value.find("SignedHeaders="));
}

TEST(SignV4, GivesThePublishedSignatures) {
  EXPECT_EQ(Signature("https://example.amazonaws.com/"),
            "SignedHeaders=host;x-amz-date, "
            "Signature=5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31");
  // get-vanilla-query-order-key-case
  EXPECT_EQ(Signature("https://example.amazonaws.com/?Param2=value2&Param1=value1"),
            "SignedHeaders=host;x-amz-date, "
            "Signature=b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500");
}

TEST(SignV4, GivesThePublishedSignatureOfARangeOfAnObject) {
  // "Example: GET Object" of the S3 API's reference.
  HttpRequest request{.url = ParseUrl("https://examplebucket.s3.amazonaws.com/test.txt").value(),
                      .headers = {{"range", "bytes=0-9"}}};
  SignV4(request, {"AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"},
         {"us-east-1", "s3", std::chrono::system_clock::from_time_t(1369353600)});
  EXPECT_THAT(request.headers.back().second,
              HasSubstr("Signature=f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41"));
}

TEST(SignV4, GivesThePublishedSignatureOfAnObjectThatIsPut) {
  // "Example: PUT Object" of the S3 API's reference.
  HttpRequest request{
      .method = "PUT",
      .url = ParseUrl("https://examplebucket.s3.amazonaws.com/test%24file.text").value(),
      .headers = {{"date", "Fri, 24 May 2013 00:00:00 GMT"}, {"x-amz-storage-class", "REDUCED_REDUNDANCY"}},
      .body = "Welcome to Amazon S3."};
  SignV4(request, {"AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"},
         {"us-east-1", "s3", std::chrono::system_clock::from_time_t(1369353600)});
  EXPECT_THAT(request.headers.back().second,
              HasSubstr("Signature=98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd"));
}

}  // namespace
}  // namespace imgd
