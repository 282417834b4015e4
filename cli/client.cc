#include "cli/client.h"

#include <grpcpp/grpcpp.h>

#include <algorithm>

#include "cli/channel.h"
#include "common/clock_skew.h"
#include "common/tls/probe.h"
#include "imgd/v1/admin.grpc.pb.h"
#include "imgd/v1/dataset.grpc.pb.h"
#include "imgd/v1/enrol.grpc.pb.h"
#include "imgd/v1/event.grpc.pb.h"
#include "imgd/v1/job.grpc.pb.h"
#include "imgd/v1/node.grpc.pb.h"
#include "imgd/v1/token.grpc.pb.h"
#include "imgd/v1/usage.grpc.pb.h"

namespace imgd::cli {
namespace {

using namespace std::chrono_literals;

constexpr Duration kFirstBackoff = 100ms;
constexpr Duration kLongestBackoff = 1s;
constexpr Duration kWatchLease = 2min;  ///< then the stream is opened again
constexpr Duration kLogsLease = 30min;  ///< longer: opening it again sends every kept line again

std::chrono::system_clock::time_point Wall(Instant deadline) {
  return std::chrono::system_clock::now() + (deadline - std::chrono::steady_clock::now());
}

/// A server stream over a completion queue of its own, so that waiting has a limit and needs no thread.
template <typename T>
class GrpcStream final : public Stream<T> {
 public:
  using typename Stream<T>::Outcome;

  template <typename Open>
  GrpcStream(ServerAddress address, Duration lease, Interrupt& interrupt, Open open)
      : address_(std::move(address)), lease_(lease) {
    context_.set_deadline(Wall(std::chrono::steady_clock::now() + lease));
    ShowToken(address_, context_);
    scope_ = std::make_unique<Interrupt::Scope>(interrupt, [this] { context_.TryCancel(); });
    reader_ = open(&context_, &queue_);
  }

  ~GrpcStream() override {
    scope_.reset();
    context_.TryCancel();
    queue_.Shutdown();
    void* tag = nullptr;
    bool ok = false;
    while (queue_.Next(&tag, &ok)) {
    }
  }

  Outcome Next(T& item, Instant until) override {
    while (!ended_) {
      if (started_ && !reading_) {
        reader_->Read(&item_, this);
        reading_ = true;
      }
      void* tag = nullptr;
      bool ok = false;
      if (queue_.AsyncNext(&tag, &ok, Wall(until)) != grpc::CompletionQueue::GOT_EVENT) return Outcome::kIdle;
      if (!started_) {
        started_ = ok;
        ended_ = !ok;
      } else {
        reading_ = false;
        ended_ = !ok;
        if (ok) {
          item = std::move(item_);
          item_.Clear();
          return Outcome::kItem;
        }
      }
    }
    return Outcome::kEnd;
  }

  Reply<void> Finish() override {
    grpc::Status status;
    reader_->Finish(&status, this);
    void* tag = nullptr;
    bool ok = false;
    queue_.Next(&tag, &ok);
    if (status.ok()) return {};
    return tl::unexpected(ErrorsOf(status, address_, lease_));
  }

 private:
  ServerAddress address_;
  Duration lease_;
  grpc::ClientContext context_;
  grpc::CompletionQueue queue_;
  std::unique_ptr<Interrupt::Scope> scope_;
  std::unique_ptr<grpc::ClientAsyncReader<T>> reader_;
  T item_;
  bool started_ = false;
  bool reading_ = false;
  bool ended_ = false;
};

}  // namespace

struct Client::Connection {
  explicit Connection(const ServerAddress& address)
      : channel(MakeChannel(address)),
        jobs(v1::JobService::NewStub(channel)),
        nodes(v1::NodeService::NewStub(channel)),
        events(v1::EventService::NewStub(channel)),
        datasets(v1::DatasetService::NewStub(channel)),
        tokens(v1::TokenService::NewStub(channel)),
        usage(v1::UsageService::NewStub(channel)),
        enrol(v1::EnrolService::NewStub(channel)),
        admin(v1::AdminService::NewStub(channel)) {}

  std::shared_ptr<grpc::Channel> channel;
  std::unique_ptr<v1::JobService::Stub> jobs;
  std::unique_ptr<v1::NodeService::Stub> nodes;
  std::unique_ptr<v1::EventService::Stub> events;
  std::unique_ptr<v1::DatasetService::Stub> datasets;
  std::unique_ptr<v1::TokenService::Stub> tokens;
  std::unique_ptr<v1::UsageService::Stub> usage;
  std::unique_ptr<v1::EnrolService::Stub> enrol;
  std::unique_ptr<v1::AdminService::Stub> admin;
};

bool IsOutage(const Errors& errors) {
  if (errors.empty()) return false;
  const ErrorCode code = errors.front().code;
  return code == ErrorCode::kUnavailable || code == ErrorCode::kDeadlineExceeded;
}

Client::Client(ServerAddress address, Duration timeout, Interrupt& interrupt)
    : address_(std::move(address)), timeout_(timeout), interrupt_(interrupt) {}

Client::~Client() = default;

Client::Connection& Client::Connected() {
  if (!connection_) connection_ = std::make_unique<Connection>(address_);
  return *connection_;
}

void Client::NoteOutage() { connection_.reset(); }

std::optional<Error> Client::WhyNoTls() const {
  if (!address_.tls) return std::nullopt;
  auto why = tls::WhyNoTls(ProbeOf(address_), SystemClock());
  if (why && why->code == ErrorCode::kUnavailable) return std::nullopt;
  return why;
}

void Client::NoteTime(const grpc::ClientContext& context, WallTime asked) {
  const auto& said = context.GetServerInitialMetadata();
  const auto found = said.find(kTimeMetadata);
  if (found == said.end()) return;
  ahead_ = AheadOf({found->second.data(), found->second.size()}, asked, SystemClock().Wall());
}

template <typename Response, typename Call>
Reply<Response> Client::CallOnce(Duration limit, Call call) {
  grpc::ClientContext context;
  context.set_deadline(Wall(std::chrono::steady_clock::now() + limit));
  ShowToken(address_, context);
  const Interrupt::Scope scope(interrupt_, [&context] { context.TryCancel(); });
  Response response;
  const WallTime asked = SystemClock().Wall();
  const grpc::Status status = call(Connected(), &context, &response);
  NoteTime(context, asked);
  if (status.ok()) return response;
  if (TellsOfOutage(status)) NoteOutage();
  return tl::unexpected(ErrorsOf(status, address_, limit));
}

template <typename Response, typename Call>
Reply<Response> Client::CallUntilAnswered(const std::function<void()>& on_retry, Call call) {
  const Instant end = std::chrono::steady_clock::now() + timeout_;
  Duration backoff = kFirstBackoff;
  for (bool first = true;; first = false) {
    const Duration left = end - std::chrono::steady_clock::now();
    auto reply = CallOnce<Response>(left, call);
    if (reply || !IsOutage(reply.error())) return reply;
    if (std::chrono::steady_clock::now() + backoff >= end) return reply;
    if (first) on_retry();
    if (interrupt_.WaitFor(backoff)) return reply;
    backoff = std::min(backoff * 2, kLongestBackoff);
  }
}

Reply<v1::SubmitJobResponse> Client::SubmitJob(const v1::SubmitJobRequest& request,
                                               const std::function<void()>& on_retry) {
  return CallUntilAnswered<v1::SubmitJobResponse>(
      on_retry, [&](Connection& connection, auto* context, auto* response) {
        return connection.jobs->SubmitJob(context, request, response);
      });
}

Reply<v1::CancelJobResponse> Client::CancelJob(const v1::CancelJobRequest& request,
                                               const std::function<void()>& on_retry) {
  return CallUntilAnswered<v1::CancelJobResponse>(
      on_retry, [&](Connection& connection, auto* context, auto* response) {
        return connection.jobs->CancelJob(context, request, response);
      });
}

Reply<v1::GetSweepResponse> Client::GetSweep(const v1::GetSweepRequest& request) {
  return CallOnce<v1::GetSweepResponse>(timeout_, [&](Connection& connection, auto* context, auto* response) {
    return connection.jobs->GetSweep(context, request, response);
  });
}

Reply<v1::GetMetricsResponse> Client::GetMetrics(const v1::GetMetricsRequest& request) {
  return CallOnce<v1::GetMetricsResponse>(timeout_,
                                          [&](Connection& connection, auto* context, auto* response) {
                                            return connection.jobs->GetMetrics(context, request, response);
                                          });
}

Reply<v1::ListCheckpointsResponse> Client::ListCheckpoints(uint64_t job) {
  v1::ListCheckpointsRequest request;
  request.set_id(job);
  return CallOnce<v1::ListCheckpointsResponse>(
      timeout_, [&](Connection& connection, auto* context, auto* response) {
        return connection.jobs->ListCheckpoints(context, request, response);
      });
}

Reply<v1::DeleteJobResponse> Client::DeleteJob(const v1::DeleteJobRequest& request) {
  return CallOnce<v1::DeleteJobResponse>(timeout_,
                                         [&](Connection& connection, auto* context, auto* response) {
                                           return connection.jobs->DeleteJob(context, request, response);
                                         });
}

Reply<v1::ListLogsResponse> Client::ListLogs(const v1::ListLogsRequest& request) {
  return CallOnce<v1::ListLogsResponse>(timeout_, [&](Connection& connection, auto* context, auto* response) {
    return connection.jobs->ListLogs(context, request, response);
  });
}

Reply<v1::CancelSweepResponse> Client::CancelSweep(const v1::CancelSweepRequest& request,
                                                   const std::function<void()>& on_retry) {
  return CallUntilAnswered<v1::CancelSweepResponse>(
      on_retry, [&](Connection& connection, auto* context, auto* response) {
        return connection.jobs->CancelSweep(context, request, response);
      });
}

Reply<v1::ProfileJobResponse> Client::ProfileJob(const v1::ProfileJobRequest& request) {
  return CallOnce<v1::ProfileJobResponse>(timeout_,
                                          [&](Connection& connection, auto* context, auto* response) {
                                            return connection.jobs->ProfileJob(context, request, response);
                                          });
}

Reply<v1::GetJobResponse> Client::GetJob(uint64_t id) {
  v1::GetJobRequest request;
  request.set_id(id);
  return CallOnce<v1::GetJobResponse>(timeout_, [&](Connection& connection, auto* context, auto* response) {
    return connection.jobs->GetJob(context, request, response);
  });
}

Reply<v1::ListJobsResponse> Client::ListJobs(const v1::ListJobsRequest& request,
                                             const std::function<void()>& on_retry) {
  const auto call = [&](Connection& connection, auto* context, auto* response) {
    return connection.jobs->ListJobs(context, request, response);
  };
  if (on_retry) return CallUntilAnswered<v1::ListJobsResponse>(on_retry, call);
  return CallOnce<v1::ListJobsResponse>(timeout_, call);
}

Reply<v1::ListNodesResponse> Client::ListNodes() {
  return CallOnce<v1::ListNodesResponse>(timeout_, [](Connection& connection, auto* context, auto* response) {
    return connection.nodes->ListNodes(context, {}, response);
  });
}

Reply<v1::GetNodeResponse> Client::GetNode(const std::string& name) {
  v1::GetNodeRequest request;
  request.set_name(name);
  return CallOnce<v1::GetNodeResponse>(timeout_, [&](Connection& connection, auto* context, auto* response) {
    return connection.nodes->GetNode(context, request, response);
  });
}

Reply<v1::ListUsageResponse> Client::ListUsage() {
  return CallOnce<v1::ListUsageResponse>(timeout_, [](Connection& connection, auto* context, auto* response) {
    return connection.usage->ListUsage(context, {}, response);
  });
}

Reply<v1::ChangeJobResponse> Client::ChangeJob(const v1::ChangeJobRequest& request) {
  return CallOnce<v1::ChangeJobResponse>(timeout_,
                                         [&](Connection& connection, auto* context, auto* response) {
                                           return connection.jobs->ChangeJob(context, request, response);
                                         });
}

Reply<v1::SetAsideNodeResponse> Client::SetAsideNode(const v1::SetAsideNodeRequest& request) {
  return CallOnce<v1::SetAsideNodeResponse>(
      timeout_, [&](Connection& connection, auto* context, auto* response) {
        return connection.nodes->SetAsideNode(context, request, response);
      });
}

Reply<v1::ReturnNodeResponse> Client::ReturnNode(const v1::ReturnNodeRequest& request) {
  return CallOnce<v1::ReturnNodeResponse>(timeout_,
                                          [&](Connection& connection, auto* context, auto* response) {
                                            return connection.nodes->ReturnNode(context, request, response);
                                          });
}

Reply<v1::ForgetNodeResponse> Client::ForgetNode(const v1::ForgetNodeRequest& request) {
  return CallOnce<v1::ForgetNodeResponse>(timeout_,
                                          [&](Connection& connection, auto* context, auto* response) {
                                            return connection.nodes->ForgetNode(context, request, response);
                                          });
}

Reply<v1::ListEventsResponse> Client::ListEvents(const v1::ListEventsRequest& request) {
  return CallOnce<v1::ListEventsResponse>(timeout_,
                                          [&](Connection& connection, auto* context, auto* response) {
                                            return connection.events->ListEvents(context, request, response);
                                          });
}

std::unique_ptr<Stream<v1::WatchEventsResponse>> Client::WatchEvents(const v1::WatchEventsRequest& request) {
  auto& events = *Connected().events;
  return std::make_unique<GrpcStream<v1::WatchEventsResponse>>(
      address_, kWatchLease, interrupt_,
      [&](auto* context, auto* queue) { return events.AsyncWatchEvents(context, request, queue, nullptr); });
}

Reply<v1::ReloadResponse> Client::Reload(const v1::ReloadRequest& request) {
  return CallOnce<v1::ReloadResponse>(timeout_, [&](Connection& connection, auto* context, auto* response) {
    return connection.admin->Reload(context, request, response);
  });
}

Reply<v1::ShowRetentionResponse> Client::ShowRetention() {
  return CallOnce<v1::ShowRetentionResponse>(timeout_,
                                             [](Connection& connection, auto* context, auto* response) {
                                               return connection.admin->ShowRetention(context, {}, response);
                                             });
}

std::unique_ptr<Stream<v1::BackupResponse>> Client::Backup(const v1::BackupRequest& request, Duration lease) {
  auto& admin = *Connected().admin;
  return std::make_unique<GrpcStream<v1::BackupResponse>>(
      address_, lease, interrupt_,
      [&](auto* context, auto* queue) { return admin.AsyncBackup(context, request, queue, nullptr); });
}

Reply<v1::RegisterDatasetResponse> Client::RegisterDataset(const v1::RegisterDatasetRequest& request) {
  return CallOnce<v1::RegisterDatasetResponse>(
      timeout_, [&](Connection& connection, auto* context, auto* response) {
        return connection.datasets->RegisterDataset(context, request, response);
      });
}

Reply<v1::ListDatasetsResponse> Client::ListDatasets() {
  return CallOnce<v1::ListDatasetsResponse>(timeout_,
                                            [](Connection& connection, auto* context, auto* response) {
                                              return connection.datasets->ListDatasets(context, {}, response);
                                            });
}

Reply<v1::GetDatasetResponse> Client::GetDataset(const v1::GetDatasetRequest& request) {
  return CallOnce<v1::GetDatasetResponse>(
      timeout_, [&](Connection& connection, auto* context, auto* response) {
        return connection.datasets->GetDataset(context, request, response);
      });
}

Reply<v1::ReportDatasetResponse> Client::ReportDataset(const v1::ReportDatasetRequest& request) {
  return CallOnce<v1::ReportDatasetResponse>(
      timeout_, [&](Connection& connection, auto* context, auto* response) {
        return connection.datasets->ReportDataset(context, request, response);
      });
}

Reply<v1::RemoveDatasetResponse> Client::RemoveDataset(const std::string& name) {
  v1::RemoveDatasetRequest request;
  request.set_name(name);
  return CallOnce<v1::RemoveDatasetResponse>(
      timeout_, [&](Connection& connection, auto* context, auto* response) {
        return connection.datasets->RemoveDataset(context, request, response);
      });
}

Reply<v1::CreateTokenResponse> Client::CreateToken(const v1::CreateTokenRequest& request) {
  return CallOnce<v1::CreateTokenResponse>(
      timeout_, [&](Connection& connection, auto* context, auto* response) {
        return connection.tokens->CreateToken(context, request, response);
      });
}

Reply<v1::ListTokensResponse> Client::ListTokens() {
  return CallOnce<v1::ListTokensResponse>(timeout_,
                                          [](Connection& connection, auto* context, auto* response) {
                                            return connection.tokens->ListTokens(context, {}, response);
                                          });
}

Reply<v1::RevokeTokenResponse> Client::RevokeToken(const v1::RevokeTokenRequest& request) {
  return CallOnce<v1::RevokeTokenResponse>(
      timeout_, [&](Connection& connection, auto* context, auto* response) {
        return connection.tokens->RevokeToken(context, request, response);
      });
}

Reply<v1::CreateJoinTokenResponse> Client::CreateJoinToken(const v1::CreateJoinTokenRequest& request) {
  return CallOnce<v1::CreateJoinTokenResponse>(
      timeout_, [&](Connection& connection, auto* context, auto* response) {
        return connection.enrol->CreateJoinToken(context, request, response);
      });
}

Reply<v1::ListJoinTokensResponse> Client::ListJoinTokens() {
  return CallOnce<v1::ListJoinTokensResponse>(
      timeout_, [](Connection& connection, auto* context, auto* response) {
        return connection.enrol->ListJoinTokens(context, {}, response);
      });
}

Reply<v1::RevokeJoinTokenResponse> Client::RevokeJoinToken(const std::string& id) {
  v1::RevokeJoinTokenRequest request;
  request.set_id(id);
  return CallOnce<v1::RevokeJoinTokenResponse>(
      timeout_, [&](Connection& connection, auto* context, auto* response) {
        return connection.enrol->RevokeJoinToken(context, request, response);
      });
}

Reply<v1::RevokeNodeResponse> Client::RevokeNode(const v1::RevokeNodeRequest& request) {
  return CallOnce<v1::RevokeNodeResponse>(timeout_,
                                          [&](Connection& connection, auto* context, auto* response) {
                                            return connection.enrol->RevokeNode(context, request, response);
                                          });
}

std::unique_ptr<Stream<v1::WatchJobResponse>> Client::WatchJob(const v1::WatchJobRequest& request) {
  auto& jobs = *Connected().jobs;
  return std::make_unique<GrpcStream<v1::WatchJobResponse>>(
      address_, kWatchLease, interrupt_,
      [&](auto* context, auto* queue) { return jobs.AsyncWatchJob(context, request, queue, nullptr); });
}

std::unique_ptr<Stream<v1::ReadLogsResponse>> Client::ReadLogs(const v1::ReadLogsRequest& request) {
  auto& jobs = *Connected().jobs;
  return std::make_unique<GrpcStream<v1::ReadLogsResponse>>(
      address_, kLogsLease, interrupt_,
      [&](auto* context, auto* queue) { return jobs.AsyncReadLogs(context, request, queue, nullptr); });
}

}  // namespace imgd::cli
