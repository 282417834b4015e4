#pragma once

#include <memory>
#include <string>
#include <vector>

#include "common/remote/aws_credentials.h"
#include "common/remote/http_object.h"

namespace imgd {

/// What a listing of a remote folder has.
struct RemoteEntry {
  std::string name;  ///< plain, without folders
  uint64_t bytes = 0;
};

/// An object as a listing has it.
struct S3Key {
  std::string key;  ///< whole and plain
  uint64_t bytes = 0;
  int64_t changed_us = 0;  ///< microseconds since 1970 UTC, whole seconds; 0: not said
};

/// Objects in S3 and what speaks its language, as the usual AWS_ variables say. Thread-safe.
class S3 {
 public:
  S3(const GetVariable& env, std::shared_ptr<const HttpClient> client);

  /// `url`: of scheme s3.
  Result<RemoteObject> Object(const Url& url) const;
  /// What lies right below "s3://bucket/folder/", sorted by name.
  Result<std::vector<RemoteEntry>> List(const Url& folder) const;
  /// The keys of a bucket that begin with `prefix`; with `only_files` no '/' follows it. Errors: kNotFound
  /// where there is no such bucket; those of the server.
  Result<std::vector<S3Key>> Keys(const std::string& bucket, const std::string& prefix,
                                  bool only_files) const;

  const std::string& region() const { return region_; }

 private:
  Result<Url> Address(const std::string& bucket, const std::string& key) const;

  std::shared_ptr<const HttpClient> client_;
  std::shared_ptr<Authorizer> authorizer_;
  std::string endpoint_;
  std::string region_;
  bool path_style_ = false;
};

/// How servers are spoken to: the certificates that the variables name; what is waited for is said on
/// standard error.
HttpOptions HttpOptionsFrom(const GetVariable& env);

/// The texts of the elements <name> in S3's answers, which do not nest an element in one of its name.
std::vector<std::string> XmlElements(std::string_view xml, std::string_view name);
/// The text that the first one stands for; empty where there is none.
std::string XmlText(std::string_view xml, std::string_view name);
/// An object's key in an answer to a request with encoding-type=url.
std::string KeyOfListing(std::string_view xml);

}  // namespace imgd
