#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "common/remote/aws_credentials.h"
#include "common/remote/testing/http_server.h"

namespace imgd {

/// A bucket "b" in memory, spoken to as S3 is, with buckets in the path. It refuses what is not signed with
/// its keys, a body that is not what its checksum and signature say, and parts that do not fit together.
class FakeS3 {
 public:
  FakeS3();

  /// The variables that lead to it.
  std::map<std::string, std::string> Variables() const;
  GetVariable Environment() const;

  /// Answers in place of the bucket where it says something; from the server's threads.
  std::function<std::optional<TestReply>(const TestRequest&)> intercept;
  size_t keys_a_listing = 1000;
  std::string secret_key = "SK";

  std::map<std::string, std::string> Objects() const;
  void Set(const std::string& key, std::string content);
  void Remove(const std::string& key);
  size_t UploadsUnderWay() const;
  std::vector<std::string> log() const { return server_.log(); }

 private:
  struct Upload {
    std::string key;
    std::map<int, std::string> parts;
  };
  TestReply Answer(const TestRequest& request);
  bool Signed(const TestRequest& request) const;
  TestReply Put(const TestRequest& request, const std::string& key);
  TestReply Post(const TestRequest& request, const std::string& key, const std::string& query);
  TestReply Complete(const TestRequest& request, const std::string& key, const std::string& id);
  TestReply ListKeys(const std::string& query) const;
  TestReply ListUploads() const;

  mutable std::mutex mutex_;
  std::map<std::string, std::string> objects_;  ///< guarded by mutex_
  std::map<std::string, Upload> uploads_;       ///< guarded by mutex_
  int next_upload_ = 1;                         ///< guarded by mutex_
  TestHttpServer server_;                       ///< last: its threads use all of the above
};

/// How a test speaks to it: without patience.
HttpOptions HastyHttp();

}  // namespace imgd
