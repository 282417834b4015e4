#pragma once

#include <chrono>
#include <string>

#include "common/remote/http_client.h"

namespace imgd {

struct AwsCredentials {
  std::string access_key;
  std::string secret_key;
  std::string session_token;  ///< of temporary ones; else empty
  std::chrono::system_clock::time_point expires = std::chrono::system_clock::time_point::max();
};

/// What a signature is for.
struct SigningScope {
  std::string region;
  std::string service = "s3";
  std::chrono::system_clock::time_point time;
};

/// Adds x-amz-date, the session token's header and the Authorization header of AWS Signature Version 4 to a
/// request. All headers it has and the host are signed. The path is signed as it is sent (as
/// S3 wants it: not normalised, encoded once); the query in sorted order; the body by its SHA-256. For
/// service "s3" also x-amz-content-sha256, against which S3 compares what it gets.
/// https://docs.aws.amazon.com/AmazonS3/latest/API/sig-v4-header-based-auth.html
void SignV4(HttpRequest& request, const AwsCredentials& credentials, const SigningScope& scope);

}  // namespace imgd
