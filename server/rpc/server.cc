#include "server/rpc/server.h"

#include <google/protobuf/stubs/logging.h>
#include <grpc/support/log.h>
#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/health_check_service_interface.h>
#include <netdb.h>
#include <spdlog/spdlog.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <mutex>
#include <utility>

#include "common/files.h"
#include "grpc/health/v1/health.pb.h"
#include "server/auth/gate.h"
#include "server/rpc/agent_service.h"
#include "server/rpc/call_interceptor.h"
#include "server/rpc/callers.h"
#include "server/rpc/credentials.h"
#include "server/rpc/dataset_service.h"
#include "server/rpc/enrol_service.h"
#include "server/rpc/event_service.h"
#include "server/rpc/in_process.h"
#include "server/rpc/node_service.h"
#include "server/rpc/session_service.h"
#include "server/rpc/tls_alerts.h"
#include "server/rpc/token_service.h"
#include "server/rpc/usage_service.h"

namespace imgd {
namespace {

constexpr int kMostMessageBytes = 32 << 20;

/// Why the address can't be listened on: gRPC itself only says that it can't.
Error WhyNot(const std::string& address) {
  const auto colon = address.rfind(':');
  std::string host = colon == std::string::npos ? address : address.substr(0, colon);
  const std::string port = colon == std::string::npos ? "" : address.substr(colon + 1);
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  const std::string what = fmt::format("cannot listen on {}", address);
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  addrinfo* found = nullptr;
  if (const int error = ::getaddrinfo(host.c_str(), port.c_str(), &hints, &found); error != 0) {
    return {.code = ErrorCode::kInvalidArgument,
            .message = fmt::format("{}: {}; HOST:PORT is expected", what, ::gai_strerror(error))};
  }
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(found, &::freeaddrinfo);
  const UniqueFd fd(::socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int on = 1;
  ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (::bind(fd.get(), found->ai_addr, found->ai_addrlen) != 0 || ::listen(fd.get(), 1) != 0) {
    // It may be one of an interface that comes up later.
    if (errno == EADDRNOTAVAIL) {
      return {.code = ErrorCode::kUnavailable, .message = what + ": it is no address of this machine"};
    }
    if (errno == EADDRINUSE) {
      return {.code = ErrorCode::kAlreadyExists, .message = what + ": the port is in use by another program"};
    }
    return FailErrno(errno, what).value();
  }
  return {.code = ErrorCode::kInternal, .message = what};
}

std::shared_ptr<grpc::ServerCredentials> CredentialsOf(const RpcServer::Door& door, const Gate* gate) {
  switch (door.security) {
    case RpcServer::Security::kTls:
      return TlsPort(*door.authority, gate);
    case RpcServer::Security::kLocal:
      return LocalPort(gate);
    case RpcServer::Security::kNone:
      return grpc::InsecureServerCredentials();
  }
  return nullptr;
}

/// Once an hour: who meets it tries again every few seconds.
void WarnRarely(std::string_view words) {
  static std::mutex mutex;
  static std::map<std::string_view, Instant> said;  // guarded by mutex
  const std::lock_guard lock(mutex);
  const Instant now = std::chrono::steady_clock::now();
  const auto [last, is_new] = said.try_emplace(words, now);
  if (!is_new && now < last->second + std::chrono::hours(1)) return;
  last->second = now;
  spdlog::warn("msg=\"{}\"", words);
}

/// gRPC and protobuf write to standard error by themselves; what matters of it comes back as errors of ours.
void QuietLibraries() {
  google::protobuf::SetLogHandler([](google::protobuf::LogLevel, const char*, int, const std::string& text) {
    spdlog::debug("protobuf=\"{}\"", text);
  });
  gpr_set_log_function([](gpr_log_func_args* args) {
    spdlog::debug("grpc=\"{}\"", args->message);
    if (const auto words = WordsOfTlsAlert(args->message)) WarnRarely(*words);
  });
}

void SetChannelArguments(grpc::ServerBuilder& builder) {
  // Without this a second daemon on the port would silently take half of the connections.
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  // An agent whose machine vanished is noticed, and its stream ended.
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, 20'000);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 10'000);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  // Clients may ask as often for signs of life as they like.
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 1'000);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PING_STRIKES, 0);
  builder.SetMaxReceiveMessageSize(kMostMessageBytes);
}

}  // namespace

/// The health service for as long as there is one; the engine outlives the server.
struct HealthSwitch {
  std::mutex mutex;
  grpc::HealthCheckServiceInterface* service = nullptr;  // guarded by mutex
};

struct RpcServer::Parts {
  Parts(const Door& door, Engine* the_engine, ReadPool* pool, const Clock* the_clock, JobRules rules,
        ReloadFunction reload)
      : engine(the_engine),
        clock(the_clock),
        gate(the_engine, clock, door.security == Security::kLocal, Scope::kAdmin),
        callers(the_engine),
        jobs(the_engine, &callers, pool, clock, std::move(rules)),
        nodes(the_engine, pool),
        events(the_engine, pool, clock),
        datasets(the_engine, pool),
        tokens(the_engine,
               [this](const std::string& revoked) {
                 EndStreamsOf([&revoked](const std::string& token) { return token == revoked; });
               }),
        usage(the_engine, pool, clock),
        admin(the_engine, pool, &gate, clock, std::move(reload)),
        agents(the_engine, door.security == Security::kTls),
        sessions(the_engine, &callers, door.security == Security::kTls),
        enrol(the_engine, door.security == Security::kTls ? door.authority : nullptr, clock) {}

  void EndStreamsOf(const IsTokenOver& is_over) {
    callers.EndStreamsOf(is_over);
    if (on_tokens_over) on_tokens_over(is_over);
  }

  Engine* engine;
  const Clock* clock;
  Gate gate;
  Callers callers;
  std::function<void(const IsTokenOver&)> on_tokens_over;
  CallTimes calls;
  JobServiceImpl jobs;
  NodeServiceImpl nodes;
  EventServiceImpl events;
  DatasetServiceImpl datasets;
  TokenServiceImpl tokens;
  UsageServiceImpl usage;
  AdminServiceImpl admin;
  AgentServiceImpl agents;
  SessionServiceImpl sessions;
  EnrolServiceImpl enrol;
  std::shared_ptr<HealthSwitch> health = std::make_shared<HealthSwitch>();
  std::unique_ptr<grpc::Server> server;
  std::unique_ptr<InProcessCaller> caller;
  int port = 0;
  bool stopped = false;
};

RpcServer::RpcServer(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}
RpcServer::~RpcServer() { Stop(Duration::zero()); }

Result<std::unique_ptr<RpcServer>> RpcServer::Start(const Door& door, JobRules rules, Engine* engine,
                                                    ReadPool* pool, const Clock* clock,
                                                    ReloadFunction reload) {
  QuietLibraries();
  grpc::EnableDefaultHealthCheckService(true);
  // Reflection tells of what is linked in: without being named here, this descriptor would not be.
  (void)grpc::health::v1::HealthCheckRequest::descriptor();
  grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  auto parts = std::make_unique<Parts>(door, engine, pool, clock, std::move(rules), std::move(reload));
  grpc::ServerBuilder builder;
  SetChannelArguments(builder);
  builder.AddListeningPort(door.address, CredentialsOf(door, &parts->gate), &parts->port);
  std::vector<std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface>> interceptors;
  interceptors.push_back(TimingOf(&parts->calls));
  interceptors.push_back(NamingBy(&parts->callers));
  builder.experimental().SetInterceptorCreators(std::move(interceptors));
  builder.RegisterService(&parts->jobs);
  builder.RegisterService(&parts->nodes);
  builder.RegisterService(&parts->events);
  builder.RegisterService(&parts->datasets);
  builder.RegisterService(&parts->tokens);
  builder.RegisterService(&parts->usage);
  builder.RegisterService(&parts->admin);
  builder.RegisterService(&parts->agents);
  builder.RegisterService(&parts->sessions);
  builder.RegisterService(&parts->enrol);
  parts->server = builder.BuildAndStart();
  if (!parts->server || parts->port == 0) return tl::unexpected(WhyNot(door.address));
  parts->caller = std::make_unique<InProcessCaller>(*parts->server, &parts->callers);
  if (auto* health = parts->server->GetHealthCheckService()) {
    // Of each service by name too, which is how gRPC's clients and probes ask.
    for (const char* name :
         {v1::JobService::service_full_name(), v1::NodeService::service_full_name(),
          v1::EventService::service_full_name(), v1::DatasetService::service_full_name(),
          v1::TokenService::service_full_name(), v1::UsageService::service_full_name(),
          v1::AdminService::service_full_name(), v1::AgentService::service_full_name(),
          v1::EnrolService::service_full_name(), v1::SessionService::service_full_name()}) {
      health->SetServingStatus(name, true);
    }
    parts->health->service = health;
  }
  engine->OnTroubleChanged([health = parts->health](bool in_trouble) {
    const std::lock_guard lock(health->mutex);
    if (health->service != nullptr) health->service->SetServingStatus(!in_trouble);
  });
  return std::unique_ptr<RpcServer>(new RpcServer(std::move(parts)));
}

int RpcServer::port() const { return parts_->port; }
const CallTimes& RpcServer::calls() const { return parts_->calls; }
web::ApiCaller& RpcServer::caller() { return *parts_->caller; }
void RpcServer::OnTokensOver(std::function<void(const IsTokenOver&)> call) {
  parts_->on_tokens_over = std::move(call);
}

void RpcServer::EndStreamsOfExpired() {
  const auto tokens = parts_->engine->View()->tokens;
  const WallTime now = parts_->clock->Wall();
  const auto has_expired = [now](const auto& token) { return HasExpired(token.second, now); };
  if (std::none_of(tokens->begin(), tokens->end(), has_expired)) return;
  parts_->EndStreamsOf([&](const std::string& name) {
    const auto token = tokens->find(name);
    return token != tokens->end() && has_expired(*token);
  });
}

void RpcServer::SetRules(JobRules rules) { parts_->jobs.SetRules(std::move(rules)); }
void RpcServer::EndSessionsOfBefore(ReadPool& pool) { parts_->sessions.relay().EndThoseOfBefore(pool); }
void RpcServer::SetRules(SessionRules rules) { parts_->sessions.relay().SetRules(rules); }
void RpcServer::SetRules(RetentionRules rules) { parts_->admin.SetRules(rules); }

void RpcServer::SetEc2Rules(std::shared_ptr<const Ec2Rules> rules) {
  parts_->enrol.SetEc2Rules(std::move(rules));
}

void RpcServer::Stop(Duration patience) {
  if (std::exchange(parts_->stopped, true)) return;
  parts_->sessions.relay().Close();
  parts_->engine->CloseAgents();
  {
    const std::lock_guard lock(parts_->health->mutex);
    parts_->health->service = nullptr;
  }
  // Watchers wait on the hubs; closing these ends them with words.
  parts_->engine->events().Close();
  parts_->engine->logs().Close();
  parts_->caller->Close();
  parts_->server->Shutdown(std::chrono::system_clock::now() +
                           std::chrono::duration_cast<std::chrono::system_clock::duration>(patience));
}

}  // namespace imgd
