#pragma once

#include <memory>
#include <optional>
#include <string>

#include "cli/app.h"
#include "cli/client.h"
#include "imgd/v1/session.pb.h"

namespace imgd::cli {

/// One call of SessionService.OpenSession. One thread may write while another reads; Cancel() is for any.
class SessionCall {
 public:
  virtual ~SessionCall() = default;
  /// Waits until there is room; false when the call has ended.
  virtual bool Write(const v1::OpenSessionRequest& request) = 0;
  /// False after the last answer.
  virtual bool Read(v1::OpenSessionResponse& response) = 0;
  virtual void Cancel() = 0;
  /// How it ended, when Read() was false.
  virtual Reply<void> Finish() = 0;

  bool WriteFrame(v1::SessionFrame frame);
};

/// Opens sessions over one connection. Thread-safe.
class SessionCaller {
 public:
  explicit SessionCaller(const ServerAddress& address);
  ~SessionCaller();
  std::unique_ptr<SessionCall> Open();

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

/// Begins a session and waits until it is there. Errors: why it is not.
Reply<v1::SessionOpened> BeginSession(SessionCall& call, v1::SessionBegin begin);

/// What NODE|JOB on the command line means: a job's number, a node's name, else a job's name. With a rank it
/// is a job. Errors: as FindJob().
Reply<void> FindPlace(Client& client, const std::string& reference, std::optional<uint32_t> rank,
                      v1::SessionBegin& begin);

/// The exit code that a session's end stands for; says its error.
int ExitCodeOfSession(Context& context, const v1::SessionEnd& end);

}  // namespace imgd::cli
