#include "cli/testing/fake_daemon.h"

#include <arpa/inet.h>
#include <grpcpp/grpcpp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cmath>
#include <condition_variable>
#include <map>
#include <mutex>
#include <optional>

#include "cli/words.h"
#include "common/files.h"
#include "imgd/v1/event.grpc.pb.h"
#include "imgd/v1/job.grpc.pb.h"
#include "imgd/v1/node.grpc.pb.h"
#include "imgd/v1/usage.grpc.pb.h"

namespace imgd::cli {
namespace {

grpc::StatusCode GrpcCodeOf(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidArgument:
      return grpc::INVALID_ARGUMENT;
    case ErrorCode::kNotFound:
      return grpc::NOT_FOUND;
    case ErrorCode::kFailedPrecondition:
      return grpc::FAILED_PRECONDITION;
    case ErrorCode::kResourceExhausted:
      return grpc::RESOURCE_EXHAUSTED;
    case ErrorCode::kUnavailable:
      return grpc::UNAVAILABLE;
    default:
      return grpc::INTERNAL;
  }
}

grpc::Status StatusOf(const Errors& errors) {
  // What gRPC itself answers for a daemon that shuts down.
  if (errors.front().code == ErrorCode::kCancelled) return {grpc::CANCELLED, "CANCELLED"};
  v1::ErrorDetails details;
  for (const auto& error : errors) {
    auto& detail = *details.add_errors();
    detail.set_message(error.message);
    detail.set_file(error.file);
    detail.set_line(static_cast<uint32_t>(error.line));
    detail.set_column(static_cast<uint32_t>(error.column));
    detail.set_hint(error.hint);
  }
  return {GrpcCodeOf(errors.front().code), errors.front().ToString(), details.SerializeAsString()};
}

grpc::Status NoJob(uint64_t id) {
  return StatusOf(
      {Error{.code = ErrorCode::kNotFound, .message = fmt::format("no job has the number {}", id)}});
}

struct StoredJob {
  v1::Job job;
  std::vector<v1::JobEvent> events;
  std::vector<v1::LogLine> lines;
};

}  // namespace

struct FakeDaemon::State final : public v1::JobService::Service {
  explicit State(FakeDaemon& owner)
      : owner(owner), nodes_service(*this), events_service(*this), usage_service(*this) {}

  struct Nodes final : public v1::NodeService::Service {
    explicit Nodes(State& state) : state(state) {}
    grpc::Status ListNodes(grpc::ServerContext*, const v1::ListNodesRequest*,
                           v1::ListNodesResponse* response) override {
      const std::lock_guard lock(state.mutex);
      for (const auto& node : state.nodes) *response->add_nodes() = node;
      response->set_warning(state.warning);
      return grpc::Status::OK;
    }
    grpc::Status GetNode(grpc::ServerContext*, const v1::GetNodeRequest* request,
                         v1::GetNodeResponse* response) override {
      const std::lock_guard lock(state.mutex);
      return state.FillNode(request->name(), response->mutable_node());
    }
    grpc::Status SetAsideNode(grpc::ServerContext*, const v1::SetAsideNodeRequest* request,
                              v1::SetAsideNodeResponse* response) override {
      const std::lock_guard lock(state.mutex);
      state.set_asides.push_back(*request);
      for (auto& node : state.nodes) {
        if (node.name() != request->name()) continue;
        if (node.set_aside().drain()) {
          return StatusOf({Error{.code = ErrorCode::kFailedPrecondition,
                                 .message = fmt::format("node {} is drained already", node.name())}});
        }
        node.mutable_set_aside()->set_drain(request->drain());
        node.mutable_set_aside()->set_reason(request->reason());
        node.mutable_set_aside()->set_actor(request->actor());
      }
      return state.FillNode(request->name(), response->mutable_node());
    }
    grpc::Status ForgetNode(grpc::ServerContext*, const v1::ForgetNodeRequest* request,
                            v1::ForgetNodeResponse*) override {
      const std::lock_guard lock(state.mutex);
      v1::Node ignored;
      const grpc::Status known = state.FillNode(request->name(), &ignored);
      std::erase_if(state.nodes, [request](const v1::Node& node) { return node.name() == request->name(); });
      return known;
    }
    grpc::Status ReturnNode(grpc::ServerContext*, const v1::ReturnNodeRequest* request,
                            v1::ReturnNodeResponse* response) override {
      const std::lock_guard lock(state.mutex);
      for (auto& node : state.nodes) {
        if (node.name() == request->name()) node.clear_set_aside();
      }
      return state.FillNode(request->name(), response->mutable_node());
    }
    State& state;
  };

  struct Usage final : public v1::UsageService::Service {
    explicit Usage(State& state) : state(state) {}
    grpc::Status ListUsage(grpc::ServerContext*, const v1::ListUsageRequest*,
                           v1::ListUsageResponse* response) override {
      const std::lock_guard lock(state.mutex);
      *response = state.usage;
      return grpc::Status::OK;
    }
    State& state;
  };

  struct Events final : public v1::EventService::Service {
    explicit Events(State& state) : state(state) {}
    grpc::Status WatchEvents(grpc::ServerContext* context, const v1::WatchEventsRequest* request,
                             grpc::ServerWriter<v1::WatchEventsResponse>* writer) override {
      std::unique_lock lock(state.mutex);
      state.event_watches.push_back(*request);
      size_t sent = 0;
      for (size_t next = 0;;) {
        while (next < state.decisions.size()) {
          v1::WatchEventsResponse response;
          *response.mutable_event() = state.decisions[next++];
          response.set_oldest_number(state.oldest_decision);
          if (response.event().number() <= request->after_event()) continue;
          if (response.event().number() < state.oldest_decision) continue;
          if (state.stream_limit == sent++) return {grpc::DEADLINE_EXCEEDED, "ends"};
          writer->Write(response);
        }
        if (request->no_follow()) return grpc::Status::OK;
        if (!state.WaitForMore(lock, *context)) return {grpc::UNAVAILABLE, "ends"};
      }
    }
    /// The newest; nothing else is asked for.
    grpc::Status ListEvents(grpc::ServerContext*, const v1::ListEventsRequest*,
                            v1::ListEventsResponse* response) override {
      const std::lock_guard lock(state.mutex);
      response->set_oldest_number(state.oldest_decision);
      if (state.last_decision > 0) response->add_events()->set_number(state.last_decision);
      return grpc::Status::OK;
    }
    State& state;
  };

  grpc::Status FillNode(const std::string& name, v1::Node* out) const {
    for (const auto& node : nodes) {
      if (node.name() != name) continue;
      *out = node;
      return grpc::Status::OK;
    }
    return StatusOf(
        {Error{.code = ErrorCode::kNotFound, .message = fmt::format("there is no node {}", name)}});
  }

  grpc::Status SubmitJob(grpc::ServerContext*, const v1::SubmitJobRequest* request,
                         v1::SubmitJobResponse* response) override {
    {
      const std::lock_guard lock(mutex);
      submits.push_back(*request);
    }
    if (owner.on_submit) return Answer(owner.on_submit(*request), response);
    return StatusOf({Error{.message = "the test says nothing of submits"}});
  }

  grpc::Status CancelJob(grpc::ServerContext*, const v1::CancelJobRequest* request,
                         v1::CancelJobResponse* response) override {
    {
      const std::lock_guard lock(mutex);
      cancels.push_back(*request);
    }
    if (owner.on_cancel) return Answer(owner.on_cancel(*request), response);
    *response->mutable_job() = owner.GetJob(request->id());
    return grpc::Status::OK;
  }

  grpc::Status GetSweep(grpc::ServerContext*, const v1::GetSweepRequest* request,
                        v1::GetSweepResponse* response) override {
    const std::lock_guard lock(mutex);
    for (const auto& sweep : sweeps) {
      const bool has = request->id() >= sweep.id() && request->id() < sweep.id() + sweep.members();
      if (request->id() != 0 ? !has : sweep.name() != request->name()) continue;
      *response->mutable_sweep() = sweep;
      return grpc::Status::OK;
    }
    return StatusOf({Error{.code = ErrorCode::kNotFound, .message = "there is no such sweep"}});
  }

  grpc::Status CancelSweep(grpc::ServerContext*, const v1::CancelSweepRequest* request,
                           v1::CancelSweepResponse* response) override {
    const std::lock_guard lock(mutex);
    sweep_cancels.push_back(*request);
    response->set_cancelled(2);
    return grpc::Status::OK;
  }

  grpc::Status ChangeJob(grpc::ServerContext*, const v1::ChangeJobRequest* request,
                         v1::ChangeJobResponse* response) override {
    {
      const std::lock_guard lock(mutex);
      changes.push_back(*request);
    }
    if (owner.on_change) return Answer(owner.on_change(*request), response);
    *response->mutable_job() = owner.GetJob(request->id());
    return grpc::Status::OK;
  }

  grpc::Status ProfileJob(grpc::ServerContext*, const v1::ProfileJobRequest* request,
                          v1::ProfileJobResponse* response) override {
    if (owner.on_profile) return Answer(owner.on_profile(*request), response);
    return StatusOf({Error{.message = "the test says nothing of profiles"}});
  }

  template <typename Response>
  static grpc::Status Answer(const Reply<Response>& reply, Response* response) {
    if (!reply) return StatusOf(reply.error());
    *response = *reply;
    return grpc::Status::OK;
  }

  grpc::Status GetJob(grpc::ServerContext*, const v1::GetJobRequest* request,
                      v1::GetJobResponse* response) override {
    const std::lock_guard lock(mutex);
    const auto found = jobs.find(request->id());
    if (found == jobs.end()) return NoJob(request->id());
    *response->mutable_job() = found->second.job;
    response->set_warning(warning);
    for (const auto& event : found->second.events) {
      if (event.has_state_change()) *response->add_history() = event;
    }
    return grpc::Status::OK;
  }

  grpc::Status ListJobs(grpc::ServerContext*, const v1::ListJobsRequest* request,
                        v1::ListJobsResponse* response) override {
    const std::lock_guard lock(mutex);
    lists.push_back(*request);
    response->set_warning(warning);
    uint64_t before = request->page_token().empty() ? UINT64_MAX : std::stoull(request->page_token());
    const int size = request->page_size() == 0 ? 100 : static_cast<int>(request->page_size());
    for (auto it = jobs.rbegin(); it != jobs.rend(); ++it) {
      const auto& job = it->second.job;
      if (job.id() >= before || job.name().find(request->name_contains()) == std::string::npos) continue;
      if (request->sweep_id() != 0 && job.sweep_id() != request->sweep_id()) continue;
      const auto& states = request->states();
      if (!states.empty() && std::find(states.begin(), states.end(), job.state()) == states.end()) continue;
      if (response->jobs_size() == size) {
        response->set_next_page_token(std::to_string(response->jobs(size - 1).id()));
        break;
      }
      *response->add_jobs() = job;
    }
    return grpc::Status::OK;
  }

  grpc::Status WatchJob(grpc::ServerContext* context, const v1::WatchJobRequest* request,
                        grpc::ServerWriter<v1::WatchJobResponse>* writer) override {
    std::unique_lock lock(mutex);
    watches.push_back(*request);
    ++streams;
    changed.notify_all();
    const auto found = jobs.find(request->id());
    if (found == jobs.end()) return NoJob(request->id());
    auto& stored = found->second;
    size_t sent = 0;
    for (size_t next = 0;;) {
      while (next < stored.events.size()) {
        v1::WatchJobResponse response;
        *response.mutable_event() = stored.events[next++];
        if (response.event().number() <= request->after_event()) continue;
        if (stream_limit == sent++) return {grpc::DEADLINE_EXCEEDED, "ends"};
        writer->Write(response);
      }
      if (request->no_follow() || IsFinal(stored.job.state())) return grpc::Status::OK;
      if (!WaitForMore(lock, *context)) return {grpc::UNAVAILABLE, "ends"};
    }
  }

  grpc::Status ReadLogs(grpc::ServerContext* context, const v1::ReadLogsRequest* request,
                        grpc::ServerWriter<v1::ReadLogsResponse>* writer) override {
    std::unique_lock lock(mutex);
    log_reads.push_back(*request);
    ++streams;
    changed.notify_all();
    const auto found = jobs.find(request->id());
    if (found == jobs.end()) return NoJob(request->id());
    auto& stored = found->second;
    // Where no start is named, the latest and those after it.
    const uint64_t first = request->has_generation() ? request->generation() : stored.job.generation();
    const uint64_t last = request->has_generation() ? request->generation() : UINT64_MAX;
    size_t next = 0;
    if (request->tail() > 0 && stored.lines.size() > request->tail())
      next = stored.lines.size() - request->tail();
    while (true) {
      v1::ReadLogsResponse response;
      for (; next < stored.lines.size(); ++next) {
        const auto& line = stored.lines[next];
        if (line.generation() < first || line.generation() > last) continue;
        if (!request->has_rank() || line.rank() == request->rank()) *response.add_lines() = line;
      }
      if (response.lines_size() > 0) writer->Write(response);
      const bool over = IsFinal(stored.job.state()) || last < stored.job.generation();
      if (!request->follow() || over) return grpc::Status::OK;
      if (!WaitForMore(lock, *context)) return {grpc::UNAVAILABLE, "ends"};
    }
  }

  grpc::Status ListLogs(grpc::ServerContext*, const v1::ListLogsRequest* request,
                        v1::ListLogsResponse* response) override {
    const std::lock_guard lock(mutex);
    const auto found = jobs.find(request->id());
    if (found == jobs.end()) return NoJob(request->id());
    // Two lines a page, so that who asks has to go back.
    const size_t until = request->before().empty() ? SIZE_MAX : std::stoull(request->before());
    std::vector<const v1::LogLine*> like;
    for (const auto& line : found->second.lines) {
      const std::string text = line.text();
      const bool has =
          std::search(text.begin(), text.end(), request->contains().begin(), request->contains().end(),
                      [](char a, char b) { return std::tolower(a) == std::tolower(b); }) != text.end();
      const bool grave = request->level() <= v1::LOG_LEVEL_INFO;
      if (grave && (has || request->contains().empty()) &&
          (!request->has_rank() || line.rank() == request->rank()) && line.line_number() < until)
        like.push_back(&line);
    }
    const bool search = !request->contains().empty() || request->level() != v1::LOG_LEVEL_UNSPECIFIED;
    const size_t most = search ? std::min<size_t>(2, request->tail()) : SIZE_MAX;
    const size_t from = like.size() > most ? like.size() - most : 0;
    for (size_t i = from; i < like.size(); ++i) *response->add_lines() = *like[i];
    if (from > 0) response->set_previous(std::to_string(like[from]->line_number()));
    return grpc::Status::OK;
  }

  grpc::Status ListCheckpoints(grpc::ServerContext*, const v1::ListCheckpointsRequest* request,
                               v1::ListCheckpointsResponse* response) override {
    const std::lock_guard lock(mutex);
    if (!jobs.contains(request->id())) return NoJob(request->id());
    *response = checkpoints;
    return grpc::Status::OK;
  }

  /// The losses of the job's steps; what else is asked for has no numbers.
  grpc::Status GetMetrics(grpc::ServerContext*, const v1::GetMetricsRequest* request,
                          v1::GetMetricsResponse* response) override {
    const std::lock_guard lock(mutex);
    metrics.push_back(*request);
    const auto found = jobs.find(request->id());
    if (found == jobs.end()) return NoJob(request->id());
    std::vector<v1::StepMetrics> steps;
    for (const auto& event : found->second.events) {
      const bool within = !request->has_to() || static_cast<double>(event.step().step()) <= request->to();
      if (event.has_step() && within) steps.push_back(event.step());
    }
    std::vector<std::string> names(request->names().begin(), request->names().end());
    if (names.empty() && !steps.empty()) names = {"loss"};
    const size_t most = request->points() == 0 ? 1000 : request->points();
    const size_t width = (steps.size() + most - 1) / most;
    for (const auto& name : names) {
      auto& series = *response->add_series();
      series.set_name(name);
      series.set_values(name == "loss" ? steps.size() : 0);
      for (size_t i = 0; i < steps.size(); ++i) {
        const double value = name == "loss" ? steps[i].loss() : NAN;
        const bool begins = i % width == 0;
        auto& point = begins ? *series.add_points() : *series.mutable_points(series.points_size() - 1);
        point.set_x(static_cast<double>(steps[i].step()));
        point.set_min(begins ? value : std::fmin(point.min(), value));
        point.set_max(begins ? value : std::fmax(point.max(), value));
        point.set_last(value);
      }
    }
    return grpc::Status::OK;
  }

  /// False when the daemon stops or the client has gone.
  bool WaitForMore(std::unique_lock<std::mutex>& lock, grpc::ServerContext& context) {
    // The client's leaving wakes nobody; it is looked for now and then.
    changed.wait_for(lock, std::chrono::milliseconds(20));
    return !stopping && !context.IsCancelled();
  }

  FakeDaemon& owner;
  Nodes nodes_service;
  Events events_service;
  Usage usage_service;
  std::unique_ptr<grpc::Server> server;
  int port = 0;

  mutable std::mutex mutex;
  std::condition_variable changed;
  std::map<uint64_t, StoredJob> jobs;  // all below: guarded by mutex
  std::vector<v1::Node> nodes;
  v1::ListUsageResponse usage;
  std::vector<v1::SubmitJobRequest> submits;
  std::vector<v1::CancelJobRequest> cancels;
  std::vector<v1::CancelSweepRequest> sweep_cancels;
  std::vector<v1::Sweep> sweeps;
  std::vector<v1::ListJobsRequest> lists;
  std::vector<v1::GetMetricsRequest> metrics;
  v1::ListCheckpointsResponse checkpoints;
  std::vector<v1::WatchJobRequest> watches;
  std::vector<v1::ReadLogsRequest> log_reads;
  std::vector<v1::ChangeJobRequest> changes;
  std::vector<v1::SetAsideNodeRequest> set_asides;
  std::vector<v1::WatchEventsRequest> event_watches;
  std::vector<v1::Event> decisions;
  uint64_t oldest_decision = 1;
  uint64_t last_decision = 0;
  std::optional<size_t> stream_limit;
  int streams = 0;
  bool stopping = false;
  std::string warning;
};

FakeDaemon::FakeDaemon() : state_(std::make_unique<State>(*this)) { Start(); }

FakeDaemon::~FakeDaemon() { Stop(); }

void FakeDaemon::Stop() {
  if (!state_->server) return;
  {
    const std::lock_guard lock(state_->mutex);
    state_->stopping = true;
    state_->changed.notify_all();
  }
  state_->server->Shutdown(std::chrono::system_clock::now());
  state_->server->Wait();
  state_->server.reset();
}

void FakeDaemon::Start() {
  {
    const std::lock_guard lock(state_->mutex);
    state_->stopping = false;
  }
  grpc::ServerBuilder builder;
  builder.AddListeningPort(fmt::format("127.0.0.1:{}", state_->port), grpc::InsecureServerCredentials(),
                           &state_->port);
  builder.RegisterService(state_.get());
  builder.RegisterService(&state_->nodes_service);
  builder.RegisterService(&state_->events_service);
  builder.RegisterService(&state_->usage_service);
  state_->server = builder.BuildAndStart();
}

std::string FakeDaemon::address() const { return fmt::format("127.0.0.1:{}", state_->port); }

void FakeDaemon::PutJob(const v1::Job& job) {
  const std::lock_guard lock(state_->mutex);
  state_->jobs[job.id()].job = job;
  state_->changed.notify_all();
}

void FakeDaemon::PutSweep(const v1::Sweep& sweep) {
  const std::lock_guard lock(state_->mutex);
  state_->sweeps.push_back(sweep);
}

std::vector<v1::GetMetricsRequest> FakeDaemon::metrics() const {
  const std::lock_guard lock(state_->mutex);
  return state_->metrics;
}

std::vector<v1::CancelSweepRequest> FakeDaemon::sweep_cancels() const {
  const std::lock_guard lock(state_->mutex);
  return state_->sweep_cancels;
}

void FakeDaemon::PutCheckpoints(const v1::ListCheckpointsResponse& checkpoints) {
  const std::lock_guard lock(state_->mutex);
  state_->checkpoints = checkpoints;
}

void FakeDaemon::SetWarning(const std::string& warning) {
  const std::lock_guard lock(state_->mutex);
  state_->warning = warning;
}

v1::Job FakeDaemon::GetJob(uint64_t id) const {
  const std::lock_guard lock(state_->mutex);
  return state_->jobs.at(id).job;
}

void FakeDaemon::AddEvent(uint64_t id, v1::JobEvent event) {
  const std::lock_guard lock(state_->mutex);
  auto& stored = state_->jobs.at(id);
  event.set_number(stored.job.last_event_number() + 1);
  event.set_time_us(NowMicros());
  ApplyEvent(event, stored.job);
  stored.events.push_back(std::move(event));
  state_->changed.notify_all();
}

void FakeDaemon::AddLine(uint64_t id, const v1::LogLine& line) {
  const std::lock_guard lock(state_->mutex);
  state_->jobs.at(id).lines.push_back(line);
  state_->changed.notify_all();
}

void FakeDaemon::PutUsage(const v1::ListUsageResponse& usage) {
  const std::lock_guard lock(state_->mutex);
  state_->usage = usage;
}

void FakeDaemon::PutNode(const v1::Node& node) {
  const std::lock_guard lock(state_->mutex);
  for (auto& known : state_->nodes) {
    if (known.name() != node.name()) continue;
    known = node;
    return;
  }
  state_->nodes.push_back(node);
}

void FakeDaemon::AddDecision(v1::Event event) {
  const std::lock_guard lock(state_->mutex);
  event.set_number(++state_->last_decision);
  state_->decisions.push_back(std::move(event));
  state_->changed.notify_all();
}

void FakeDaemon::PassOver(uint64_t events) {
  const std::lock_guard lock(state_->mutex);
  state_->last_decision += events;
  state_->oldest_decision = state_->last_decision + 1;
}

void FakeDaemon::LimitStreams(size_t items) {
  const std::lock_guard lock(state_->mutex);
  state_->stream_limit = items;
}

void FakeDaemon::AwaitStreams(int count) {
  std::unique_lock lock(state_->mutex);
  state_->changed.wait(lock, [&] { return state_->streams >= count; });
}

std::vector<v1::SubmitJobRequest> FakeDaemon::submits() const {
  const std::lock_guard lock(state_->mutex);
  return state_->submits;
}

std::vector<v1::CancelJobRequest> FakeDaemon::cancels() const {
  const std::lock_guard lock(state_->mutex);
  return state_->cancels;
}

std::vector<v1::ListJobsRequest> FakeDaemon::lists() const {
  const std::lock_guard lock(state_->mutex);
  return state_->lists;
}

std::vector<v1::WatchJobRequest> FakeDaemon::watches() const {
  const std::lock_guard lock(state_->mutex);
  return state_->watches;
}

std::vector<v1::ReadLogsRequest> FakeDaemon::log_reads() const {
  const std::lock_guard lock(state_->mutex);
  return state_->log_reads;
}

std::vector<v1::ChangeJobRequest> FakeDaemon::changes() const {
  const std::lock_guard lock(state_->mutex);
  return state_->changes;
}

std::vector<v1::SetAsideNodeRequest> FakeDaemon::set_asides() const {
  const std::lock_guard lock(state_->mutex);
  return state_->set_asides;
}

std::vector<v1::WatchEventsRequest> FakeDaemon::event_watches() const {
  const std::lock_guard lock(state_->mutex);
  return state_->event_watches;
}

bool BreakOffConnections(const std::string& address, int count) {
  UniqueFd door(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  at.sin_port = htons(static_cast<uint16_t>(std::stoi(address.substr(address.rfind(':') + 1))));
  const int yes = 1;
  ::setsockopt(door.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  if (::bind(door.get(), reinterpret_cast<const sockaddr*>(&at), sizeof at) != 0) return false;
  if (::listen(door.get(), 16) != 0) return false;
  for (int i = 0; i < count; ++i) {
    pollfd waiting{.fd = door.get(), .events = POLLIN, .revents = 0};
    if (::poll(&waiting, 1, 20'000) <= 0) return false;
    const UniqueFd caller(::accept4(door.get(), nullptr, nullptr, SOCK_CLOEXEC));
  }
  return true;
}

v1::Job MakeJob(uint64_t id, const std::string& name, v1::JobState state) {
  v1::Job job;
  job.set_id(id);
  job.set_name(name);
  job.set_state(state);
  job.set_nodes(2);
  job.set_ranks_per_node(1);
  job.set_owner("lena");
  job.set_submitted_us(NowMicros() - 60'000'000);
  if (state != v1::JOB_STATE_QUEUED) job.set_started_us(NowMicros() - 50'000'000);
  if (IsFinal(state)) job.set_ended_us(NowMicros() - 10'000'000);
  if (IsFinal(state)) job.set_held_ms(40'000);
  return job;
}

v1::JobEvent StateEvent(v1::JobState from, v1::JobState to, const std::string& text) {
  v1::JobEvent event;
  event.mutable_state_change()->set_from(from);
  event.mutable_state_change()->set_to(to);
  event.mutable_state_change()->set_text(text);
  event.mutable_state_change()->set_actor("scheduler");
  event.set_generation(1);
  return event;
}

v1::JobEvent StepEvent(uint64_t step, uint64_t total) {
  v1::JobEvent event;
  auto& metrics = *event.mutable_step();
  metrics.set_step(step);
  metrics.set_total_steps(total);
  metrics.set_epoch(static_cast<double>(step) / 40);
  metrics.set_loss(1.5);
  metrics.set_top1(0.25);
  metrics.set_images_per_second(812);
  metrics.set_eta_seconds(62);
  event.set_generation(1);
  return event;
}

v1::LogLine Line(uint32_t rank, uint64_t number, const std::string& text) {
  v1::LogLine line;
  line.set_rank(rank);
  line.set_line_number(number);
  line.set_generation(1);
  line.set_text(text);
  line.set_time_us(1'700'000'000'000'000);
  return line;
}

}  // namespace imgd::cli
