#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "trainer/data/remote_file.h"
#include "trainer/data/s3_sign.h"
#include "trainer/data/sources.h"

namespace imgd::data {

/// Where credentials for S3 come from, in this order: AWS_ACCESS_KEY_ID and its fellows; the profile
/// AWS_PROFILE of the shared credentials file; the instance's role (IMDSv2), fetched again before it expires.
/// Thread-safe.
class AwsCredentialSource {
 public:
  AwsCredentialSource(Environment env, std::shared_ptr<const HttpClient> client)
      : env_(std::move(env)), client_(std::move(client)) {}

  /// Nothing: there are none; requests go unsigned, as public buckets allow. Errors: kInvalidArgument for
  /// half of a pair or a profile that is not there; kUnavailable when the instance's role can't be fetched.
  Result<std::optional<AwsCredentials>> Get();
  /// Fetches the role's again. False where there is no other.
  bool Renew();

 private:
  Result<std::optional<AwsCredentials>> Find();
  Result<std::optional<AwsCredentials>> FromRole();

  Environment env_;
  std::shared_ptr<const HttpClient> client_;
  std::mutex mutex_;
  bool known_ = false;  ///< guarded by mutex_, as below
  bool from_role_ = false;
  std::optional<AwsCredentials> credentials_;
};

/// Objects in S3 and what speaks its language, as the usual AWS_ variables say.
class S3 {
 public:
  S3(const Environment& env, std::shared_ptr<const HttpClient> client);

  /// `url`: of scheme s3.
  Result<RemoteObject> Object(const Url& url) const;
  /// What lies right below "s3://bucket/folder/", sorted by name.
  Result<std::vector<RemoteEntry>> List(const Url& folder) const;

 private:
  Result<Url> Address(const std::string& bucket, const std::string& key) const;

  std::shared_ptr<const HttpClient> client_;
  std::shared_ptr<Authorizer> authorizer_;
  std::string endpoint_;
  std::string region_;
  bool path_style_ = false;
};

/// The section `profile` of a shared credentials file. Nothing where it has no keys.
std::optional<AwsCredentials> ParseProfile(const std::string& text, const std::string& profile);

}  // namespace imgd::data
