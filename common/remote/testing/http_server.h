#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "common/files.h"

namespace imgd {

/// For what is expected to answer, on a loaded machine too.
inline constexpr std::chrono::milliseconds kLong{60'000};

/// A request as the test's server got it.
struct TestRequest {
  std::string method;
  std::string target;                          ///< path and query
  std::map<std::string, std::string> headers;  ///< names in lower case
  std::string body;                            ///< whose size its head says
  std::string header(const std::string& name) const {
    const auto found = headers.find(name);
    return found == headers.end() ? "" : found->second;
  }
};

/// What it answers, and how it misbehaves.
struct TestReply {
  int status = 200;
  std::vector<std::pair<std::string, std::string>> headers;
  std::string body;
  std::optional<uint64_t> content_length;         ///< another than the body's
  std::optional<size_t> cut_after;                ///< the connection is reset after so many bytes of the body
  std::optional<size_t> stall_after;              ///< nothing more comes after so many, until the server ends
  std::optional<std::chrono::milliseconds> drip;  ///< the body comes byte by byte, with so much time between
  bool endless = false;                           ///< the body again and again, without a length
};

/// An HTTP server on the loopback that does what a test says. A thread for each connection.
class TestHttpServer {
 public:
  using Handler = std::function<TestReply(const TestRequest&)>;
  explicit TestHttpServer(Handler handler);
  ~TestHttpServer();
  TestHttpServer(const TestHttpServer&) = delete;
  TestHttpServer& operator=(const TestHttpServer&) = delete;

  std::string url() const { return fmt::format("http://127.0.0.1:{}", port_); }
  int port() const { return port_; }
  /// Requests so far, as "METHOD target range".
  std::vector<std::string> log() const;
  size_t connections() const { return connections_; }

 private:
  void Accept();
  void Serve(int fd);
  bool Answer(int fd, const TestRequest& request);

  Handler handler_;
  UniqueFd listener_;
  int port_ = 0;
  std::atomic<bool> stopping_ = false;
  std::atomic<size_t> connections_ = 0;
  mutable std::mutex mutex_;
  std::vector<std::string> log_;      ///< guarded by mutex_
  std::set<int> open_;                ///< guarded by mutex_
  std::vector<std::thread> threads_;  ///< guarded by mutex_
  std::thread accepting_;
};

/// A well-behaved answer to a request for `content`, whole or a range of it.
TestReply ServeContent(const TestRequest& request, const std::string& content, const std::string& etag);

}  // namespace imgd
