#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "cli/interrupt.h"
#include "cli/settings.h"
#include "common/clock.h"
#include "imgd/v1/admin.pb.h"
#include "imgd/v1/dataset.pb.h"
#include "imgd/v1/enrol.pb.h"
#include "imgd/v1/event.pb.h"
#include "imgd/v1/job.pb.h"
#include "imgd/v1/node.pb.h"
#include "imgd/v1/token.pb.h"
#include "imgd/v1/usage.pb.h"

namespace grpc {
class ClientContext;
}

namespace imgd::cli {

/// True for errors that another try may outlive: the daemon was not there, or went away.
bool IsOutage(const Errors& errors);

/// Answers that come one after the other. Used by one thread; an interrupt ends it.
template <typename T>
class Stream {
 public:
  enum class Outcome { kItem, kIdle, kEnd };

  virtual ~Stream() = default;

  /// Waits for the next answer until `until`: kItem with `item` filled, kIdle when none came, kEnd after the
  /// last one (then see Finish).
  virtual Outcome Next(T& item, Instant until) = 0;

  /// After kEnd: how it ended. A stream that a live daemon ended by itself has no error.
  virtual Reply<void> Finish() = 0;
};

/// The daemon, as commands see it. Nothing is connected before the first call; each call has a deadline, and
/// its errors are in words for people. Used by one thread, except that the interrupt may break off its calls.
class Client {
 public:
  /// `timeout` bounds every single answer, retries included. `interrupt` outlives the client.
  Client(ServerAddress address, Duration timeout, Interrupt& interrupt);
  ~Client();

  /// Stores a job. While the daemon is away the same request is sent again until the timeout: with an
  /// idempotency key it is stored once. `on_retry` is called once, before the first repetition.
  Reply<v1::SubmitJobResponse> SubmitJob(const v1::SubmitJobRequest& request,
                                         const std::function<void()>& on_retry);

  /// Asks for a job's end; repeated as SubmitJob is.
  Reply<v1::CancelJobResponse> CancelJob(const v1::CancelJobRequest& request,
                                         const std::function<void()>& on_retry);

  Reply<v1::GetSweepResponse> GetSweep(const v1::GetSweepRequest& request);
  /// Asks for the end of a sweep's jobs; repeated as SubmitJob is.
  Reply<v1::CancelSweepResponse> CancelSweep(const v1::CancelSweepRequest& request,
                                             const std::function<void()>& on_retry);

  /// Asks a rank for a profile, once.
  Reply<v1::ProfileJobResponse> ProfileJob(const v1::ProfileJobRequest& request);

  Reply<v1::GetJobResponse> GetJob(uint64_t id);
  Reply<v1::DeleteJobResponse> DeleteJob(const v1::DeleteJobRequest& request);
  Reply<v1::ListLogsResponse> ListLogs(const v1::ListLogsRequest& request);
  Reply<v1::GetMetricsResponse> GetMetrics(const v1::GetMetricsRequest& request);
  Reply<v1::ListCheckpointsResponse> ListCheckpoints(uint64_t job);
  /// With `on_retry` it is asked again in an outage, as CancelJob is.
  Reply<v1::ListJobsResponse> ListJobs(const v1::ListJobsRequest& request,
                                       const std::function<void()>& on_retry = {});
  Reply<v1::ListNodesResponse> ListNodes();
  Reply<v1::GetNodeResponse> GetNode(const std::string& name);
  Reply<v1::ListUsageResponse> ListUsage();
  Reply<v1::ListEventsResponse> ListEvents(const v1::ListEventsRequest& request);

  // Asked once: a repetition would be refused, where the first was taken and only its answer was lost.
  Reply<v1::ChangeJobResponse> ChangeJob(const v1::ChangeJobRequest& request);
  Reply<v1::SetAsideNodeResponse> SetAsideNode(const v1::SetAsideNodeRequest& request);
  Reply<v1::ReturnNodeResponse> ReturnNode(const v1::ReturnNodeRequest& request);
  Reply<v1::ForgetNodeResponse> ForgetNode(const v1::ForgetNodeRequest& request);

  Reply<v1::RegisterDatasetResponse> RegisterDataset(const v1::RegisterDatasetRequest& request);
  Reply<v1::ListDatasetsResponse> ListDatasets();
  Reply<v1::GetDatasetResponse> GetDataset(const v1::GetDatasetRequest& request);
  Reply<v1::ReportDatasetResponse> ReportDataset(const v1::ReportDatasetRequest& request);
  Reply<v1::RemoveDatasetResponse> RemoveDataset(const std::string& name);

  Reply<v1::CreateTokenResponse> CreateToken(const v1::CreateTokenRequest& request);
  Reply<v1::ListTokensResponse> ListTokens();
  Reply<v1::RevokeTokenResponse> RevokeToken(const v1::RevokeTokenRequest& request);

  Reply<v1::CreateJoinTokenResponse> CreateJoinToken(const v1::CreateJoinTokenRequest& request);
  Reply<v1::ListJoinTokensResponse> ListJoinTokens();
  Reply<v1::RevokeJoinTokenResponse> RevokeJoinToken(const std::string& id);
  Reply<v1::RevokeNodeResponse> RevokeNode(const v1::RevokeNodeRequest& request);

  Reply<v1::ReloadResponse> Reload(const v1::ReloadRequest& request);
  Reply<v1::ShowRetentionResponse> ShowRetention();
  /// A backup's pieces. The first comes when the copies that it is made of are there; `lease` bounds all of
  /// it.
  std::unique_ptr<Stream<v1::BackupResponse>> Backup(const v1::BackupRequest& request, Duration lease);

  /// A job's events. The stream is ended with an outage from time to time even if the daemon is well, so that
  /// one which vanished without a word is noticed; open it again from the last event.
  std::unique_ptr<Stream<v1::WatchJobResponse>> WatchJob(const v1::WatchJobRequest& request);

  /// The record of decisions; ends as WatchJob does.
  std::unique_ptr<Stream<v1::WatchEventsResponse>> WatchEvents(const v1::WatchEventsRequest& request);

  /// A job's log lines; ends as WatchJob does.
  std::unique_ptr<Stream<v1::ReadLogsResponse>> ReadLogs(const v1::ReadLogsRequest& request);

  const ServerAddress& address() const { return address_; }
  /// What keeps a connection by TLS from coming about; nothing where one does, and for plain text.
  std::optional<Error> WhyNoTls() const;
  /// How far this machine's clock is ahead of imgd's, by its last answer; nothing before that.
  std::optional<Duration> ahead() const { return ahead_; }
  Duration timeout() const { return timeout_; }
  /// For an answer that takes long.
  void set_timeout(Duration timeout) { timeout_ = timeout; }

 private:
  struct Connection;
  Connection& Connected();

  /// The next call connects anew: gRPC's channels pause before they connect again, for longer than a restart
  /// of the daemon takes, and fail every call meanwhile.
  void NoteOutage();

  void NoteTime(const grpc::ClientContext& context, WallTime asked);

  /// One unary call: `call(connection, context, &response)`.
  template <typename Response, typename Call>
  Reply<Response> CallOnce(Duration limit, Call call);

  /// The call again and again while it meets an outage, until the timeout.
  template <typename Response, typename Call>
  Reply<Response> CallUntilAnswered(const std::function<void()>& on_retry, Call call);

  ServerAddress address_;
  Duration timeout_;
  Interrupt& interrupt_;
  std::optional<Duration> ahead_;
  std::unique_ptr<Connection> connection_;
};

}  // namespace imgd::cli
