#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "agent/event_loop.h"
#include "common/error.h"
#include "common/files.h"

namespace imgd {

/// Answers GET and HEAD of /metrics by HTTP, one request a connection, and knows nothing else. Everything
/// happens on the loop's thread, so that what is shown needs no lock, and no connection holds a thread. A
/// connection lasts at most some seconds, and there are at most some dozens.
class MetricsServer {
 public:
  using MakeText = std::function<std::string()>;

  /// Listens on `address` ("host:port"; port 0: a free one). `make_text` is called for each request.
  /// Errors: those of ListenOn, saying that it is for metrics.
  static Result<std::unique_ptr<MetricsServer>> Listen(EventLoop* loop, const std::string& address,
                                                       MakeText make_text);
  ~MetricsServer();
  MetricsServer(const MetricsServer&) = delete;
  MetricsServer& operator=(const MetricsServer&) = delete;

  uint32_t port() const { return port_; }
  size_t connections() const { return clients_.size(); }

 private:
  struct Client {
    UniqueFd fd;
    std::string request;
    std::string answer;  ///< empty until the request is whole
    size_t sent = 0;     ///< of the answer
    size_t ignored = 0;  ///< bytes that came after the request
    EventLoop::TimerId deadline = 0;
  };

  MetricsServer(EventLoop* loop, UniqueFd listener, uint32_t port, MakeText make_text);
  void Accept();
  void OnClient(int fd);
  /// These return false when the client is to go.
  bool ReadRequest(Client& client);
  bool SendAnswer(Client& client);
  static bool ReadToEnd(Client& client);
  std::string AnswerTo(const std::string& request) const;
  void Drop(int fd);

  EventLoop* loop_;
  UniqueFd listener_;
  uint32_t port_;
  MakeText make_text_;
  std::map<int, Client> clients_;
  EventLoop::TimerId accept_again_ = 0;
};

}  // namespace imgd
