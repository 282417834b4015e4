#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "common/remote/http_client.h"
#include "common/remote/s3_sign.h"

namespace imgd {

/// Gives a variable of the environment; empty when it is not set.
using GetVariable = std::function<std::string(const char*)>;

/// The process's own.
std::string VariableOfProcess(const char* name);

/// Where credentials for S3 come from, in this order: AWS_ACCESS_KEY_ID and its fellows; the profile
/// AWS_PROFILE of the shared credentials file; the instance's role (IMDSv2), fetched again before it expires.
/// Thread-safe.
class AwsCredentialSource {
 public:
  AwsCredentialSource(GetVariable env, std::shared_ptr<const HttpClient> client)
      : env_(std::move(env)), client_(std::move(client)) {}

  /// Nothing: there are none; requests go unsigned, as public buckets allow. Errors: kInvalidArgument for
  /// half of a pair or a profile that is not there; kUnavailable when the instance's role can't be fetched.
  Result<std::optional<AwsCredentials>> Get();
  /// Fetches the role's again. False where there is no other.
  bool Renew();

 private:
  Result<std::optional<AwsCredentials>> Find();
  Result<std::optional<AwsCredentials>> FromRole();

  GetVariable env_;
  std::shared_ptr<const HttpClient> client_;
  std::mutex mutex_;
  bool known_ = false;  ///< guarded by mutex_, as below
  bool from_role_ = false;
  std::optional<AwsCredentials> credentials_;
};

/// The section `profile` of a shared credentials file. Nothing where it has no keys.
std::optional<AwsCredentials> ParseProfile(const std::string& text, const std::string& profile);

}  // namespace imgd
