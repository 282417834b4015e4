#pragma once

#include <atomic>
#include <functional>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "common/files.h"

namespace imgd::report {

/// A POST as the server got it.
struct TestPost {
  std::string path;
  std::string head;  ///< request line and headers
  std::string body;
};

/// What it answers.
struct TestPostReply {
  int status = 200;
  std::string body = "{}";
  std::string headers = {};  ///< more of them, each with its line end
  bool cut = false;          ///< the connection ends in the middle of the answer
};

/// An HTTP server on the loopback that does what a test says, and can go away and come back on its port. A
/// thread for each connection.
class PostServer {
 public:
  using Handler = std::function<TestPostReply(const TestPost&)>;
  explicit PostServer(Handler handler);
  ~PostServer();
  PostServer(const PostServer&) = delete;
  PostServer& operator=(const PostServer&) = delete;

  /// Ends all connections; who connects is refused.
  void Stop();
  void Start();
  std::string url() const;

 private:
  void Accept();
  void Serve(int fd);

  Handler handler_;
  int port_ = 0;
  UniqueFd listener_;
  std::atomic<bool> stopping_ = false;
  std::mutex mutex_;
  std::set<int> open_;                ///< guarded by mutex_
  std::vector<std::thread> threads_;  ///< guarded by mutex_
  std::thread accepting_;
};

}  // namespace imgd::report
