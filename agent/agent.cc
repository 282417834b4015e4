#include "agent/agent.h"

#include <spdlog/spdlog.h>
#include <sys/epoll.h>

#include <algorithm>
#include <cctype>

#include "agent/ec2_identity.h"
#include "agent/identity.h"
#include "agent/network.h"
#include "common/sd_notify.h"
#include "common/version.h"

namespace imgd {
namespace {
/// How long a daemon that took the connection may take to answer a Hello.
constexpr auto kWelcomeTimeout = std::chrono::seconds(10);
constexpr auto kGpuPeriod = std::chrono::seconds(2);
constexpr auto kHealthPeriod = std::chrono::seconds(10);
/// As EC2 advises.
constexpr auto kNoticePeriod = std::chrono::seconds(5);

/// It becomes part of folders' names.
bool IsClusterId(const std::string& id) {
  return !id.empty() && id.size() <= 64 &&
         std::all_of(id.begin(), id.end(), [](unsigned char c) { return c < 0x80 && std::isalnum(c) != 0; });
}
}  // namespace

Result<std::unique_ptr<Agent>> Agent::Create(EventLoop* loop, const Config& config,
                                             const std::filesystem::path& shim_program) {
  std::unique_ptr<Agent> agent(new Agent(loop, config));
  IMGD_TRY(agent->Begin(shim_program));
  return agent;
}

Agent::Agent(EventLoop* loop, Config config)
    : loop_(loop), config_(std::move(config)), incarnation_(RandomHex(8)) {}

Agent::~Agent() {
  for (const auto timer : {heartbeat_timer_, welcome_timer_, watchdog_timer_}) loop_->Cancel(timer);
  for (const auto& [cluster, timer] : disconnect_timers_) loop_->Cancel(timer);
  if (link_ != nullptr) loop_->Unwatch(link_->event_fd());
}

void Agent::MakeNodeKey() {
  if (!config_.tls) return;
  AskEc2 ask_ec2;
  if (config_.join_as_ec2) ask_ec2 = [] { return FetchEc2Identity(Ec2MetadataAddress()); };
  node_key_ = std::make_unique<NodeKey>(NodeKey::Options{.server = config_.server,
                                                         .node = config_.node,
                                                         .agent_id = agent_id_,
                                                         .folder = config_.state_dir,
                                                         .token_file = config_.token_file,
                                                         .ca_sha256 = config_.ca_hash,
                                                         .ask_ec2 = std::move(ask_ec2)},
                                        &clock_);
}

Status Agent::Begin(const std::filesystem::path& shim_program) {
  // Before the state folder is made: who names a wrong one leaves nothing behind.
  for (const auto& folder : config_.shared_folders) {
    IMGD_ASSIGN(auto shared, IdentifySharedFolder(folder));
    shared_folders_.push_back(std::move(shared));
  }
  IMGD_ASSIGN(lock_, LockStateDir(config_.state_dir));
  IMGD_ASSIGN(agent_id_, AgentId(config_.state_dir));
  if (config_.join_as_ec2) IMGD_TRY(BeAnInstance());
  IMGD_ASSIGN(auto devices, FindDevices(config_.nvml, config_.cpu_slots));
  devices_ = std::move(devices.list);
  if (devices.nvml != nullptr) gpus_ = std::make_unique<GpuMonitor>(std::move(devices.nvml), kGpuPeriod);
  health_ = std::make_unique<HealthMonitor>(
      HealthChecks(ThisMachine(), config_.health, config_.state_dir, shared_folders_), kHealthPeriod);
  IMGD_ASSIGN(auto look_for_notice, NoticesFrom(config_.spot_notices));
  if (const std::string capacity = CapacityFrom(config_.spot_notices); !capacity.empty())
    config_.labels.try_emplace("capacity", capacity);
  if (look_for_notice) notices_ = std::make_unique<NoticeMonitor>(std::move(look_for_notice), kNoticePeriod);
  IMGD_ASSIGN(supervisor_, Supervisor::Create(loop_,
                                              {.state_dir = config_.state_dir,
                                               .shim_program = shim_program,
                                               .trainer = config_.trainer,
                                               .devices = devices_,
                                               .run_log_limit_bytes = config_.run_log_limit_bytes,
                                               .use_cgroup = config_.use_cgroup,
                                               .projects = config_.projects},
                                              [this](v1::ConnectRequest request) {
                                                link_->Send(connection_, std::move(request));
                                              }));
  MakeNodeKey();
  IMGD_ASSIGN(sessions_, Sessions::Create(loop_,
                                          {.server = config_.server,
                                           .node_key = node_key_.get(),
                                           .node = config_.node,
                                           .shim_program = shim_program,
                                           .allowed = config_.sessions,
                                           .tensorboard = config_.tensorboard},
                                          supervisor_.get()));
  if (!config_.metrics_listen.empty()) {
    IMGD_ASSIGN(exporter_, Exporter::Create(loop_, config_.metrics_listen, supervisor_.get(), devices_,
                                            gpus_.get(), config_.state_dir));
    spdlog::info("node={} listen={} port={} msg=\"serves /metrics\"", config_.node, config_.metrics_listen,
                 exporter_->port());
  }
  spdlog::info("node={} devices={} model=\"{}\" server={} state_dir={} msg=\"imgagent {} starts\"",
               config_.node, devices_.size(), devices_.front().model(), config_.server,
               config_.state_dir.native(), kVersion);
  link_ = std::make_unique<Link>(LinkOptions{.server = config_.server, .node_key = node_key_.get()});
  IMGD_TRY(loop_->Watch(link_->event_fd(), EPOLLIN, [this](uint32_t) { OnLink(); }));
  WatchDisconnection();
  FeedWatchdog();
  return {};
}

Status Agent::BeAnInstance() {
  IMGD_ASSIGN(const auto identity, OwnEc2Identity(Ec2MetadataAddress(), config_.state_dir));
  if (config_.node.empty()) config_.node = identity.instance;
  // What the operator says of the node goes before.
  for (const auto& [name, value] : identity.labels) config_.labels.try_emplace(name, value);
  return {};
}

void Agent::OnLink() {
  for (auto& event : link_->Take()) {
    if (const auto* opened = std::get_if<Link::Opened>(&event)) OnOpened(opened->connection);
    if (const auto* closed = std::get_if<Link::Closed>(&event)) OnClosed(*closed);
    const auto* message = std::get_if<Link::Message>(&event);
    if (message != nullptr && message->connection == connection_) OnResponse(message->response);
  }
}

void Agent::OnOpened(uint64_t connection) {
  connection_ = connection;
  const auto address =
      config_.address.empty() ? LocalAddressTowards(config_.server) : Result<std::string>(config_.address);
  if (!address) {
    spdlog::error("msg=\"this node's own address is not known: {}\"", address.error().ToString());
    link_->Reset(connection);
    return;
  }
  supervisor_->SetAddress(*address);
  link_->Send(connection, MakeHello(*address));
  supervisor_->OnConnected();
  loop_->Cancel(welcome_timer_);
  welcome_timer_ = loop_->After(kWelcomeTimeout, [this, connection] {
    spdlog::warn("msg=\"imgd at {} does not answer\"", config_.server);
    link_->Reset(connection);
  });
}

v1::ConnectRequest Agent::MakeHello(const std::string& address) {
  v1::ConnectRequest request;
  auto* hello = request.mutable_hello();
  hello->set_node(config_.node);
  hello->set_version(kVersion);
  for (const auto& device : devices_) *hello->add_devices() = device;
  hello->set_address(address);
  hello->set_filesystem_id(FilesystemId());
  for (const auto& folder : shared_folders_) *hello->add_shared_folders() = folder;
  for (const auto& [name, value] : config_.labels) (*hello->mutable_labels())[name] = value;
  hello->set_price_per_hour(config_.price_per_hour);
  if (exporter_ != nullptr) {
    hello->set_metrics_address(exporter_->AddressFor(address));
    hello->set_metrics_relayed(exporter_->relayed());
  }
  for (auto& status : supervisor_->Statuses()) *hello->add_runs() = std::move(status);
  hello->set_incarnation(incarnation_);
  hello->set_agent_id(agent_id_);
  hello->set_time_us(SystemClock().Wall().micros);
  for (auto& problem : Problems()) *hello->add_problems() = std::move(problem);
  if (auto notice = Notice()) *hello->mutable_notice() = std::move(*notice);
  return request;
}

std::optional<v1::NodeNotice> Agent::Notice() const {
  return notices_ != nullptr ? notices_->Latest() : std::nullopt;
}

std::vector<v1::NodeProblem> Agent::Problems() {
  auto problems = health_->Latest();
  std::string gpus;
  const auto readings = gpus_ != nullptr ? gpus_->Latest() : std::vector<GpuReading>();
  const auto runs = supervisor_->LiveRuns();
  for (size_t i = 0; i < readings.size() && i < devices_.size(); ++i) {
    const uint32_t gpu = devices_[i].index();
    const bool held =
        std::any_of(runs.begin(), runs.end(), [gpu](const Run* run) { return run->HoldsDevice(gpu); });
    std::string why = readings[i].WhyIll();
    if (std::string stray = stray_memory_.Look(devices_[i], readings[i], held, clock_.Now()); why.empty())
      why = std::move(stray);
    if (!why.empty()) gpus += fmt::format("{}GPU {} {}", gpus.empty() ? "" : "; ", gpu, why);
  }
  if (gpus.empty()) return problems;
  problems.emplace_back().set_kind(v1::PROBLEM_KIND_GPU);
  problems.back().set_text("has a GPU that can't be trained on: " + gpus);
  return problems;
}

void Agent::OnResponse(const v1::ConnectResponse& response) {
  if (response.has_welcome()) {
    OnWelcome(response.welcome());
  } else if (welcomed_ && response.has_open_session()) {
    sessions_->Open(response.open_session());
  } else if (welcomed_ && response.has_show_metrics()) {
    ShowMetrics(response.show_metrics().number());
  } else if (welcomed_) {
    supervisor_->Handle(response);
  }
}

void Agent::ShowMetrics(uint64_t number) {
  v1::ConnectRequest request;
  request.mutable_metrics_page()->set_number(number);
  if (exporter_ != nullptr) request.mutable_metrics_page()->set_text(exporter_->Text());
  link_->Send(connection_, std::move(request));
}

void Agent::OnWelcome(const v1::Welcome& welcome) {
  if (!IsClusterId(welcome.cluster_id())) {
    spdlog::error(
        "node={} msg=\"the daemon at {} names itself '{}'; 1 to 64 letters and digits are expected\"",
        config_.node, config_.server, welcome.cluster_id());
    link_->Reset(connection_);
    return;
  }
  welcomed_ = true;
  cluster_ = welcome.cluster_id();
  last_trouble_.clear();
  loop_->Cancel(std::exchange(welcome_timer_, 0));
  if (const auto timer = disconnect_timers_.extract(cluster_)) loop_->Cancel(timer.mapped());
  if (welcome.heartbeat_ms() > 0) heartbeat_ = std::chrono::milliseconds(welcome.heartbeat_ms());
  link_->Confirm(connection_);
  spdlog::info("node={} cluster={} msg=\"joined imgd {} at {}\"", config_.node, welcome.cluster_id(),
               welcome.server_version(), config_.server);
  if (const auto skew = CheckSkew(welcome, SystemClock().Wall()); !skew)
    spdlog::error("node={} msg=\"{}\"", config_.node, skew.error().ToString());
  supervisor_->OnWelcome(welcome);
  WatchDisconnection();  // of other clusters' runs, whose daemon this is not
  BeatHeart();
}

void Agent::OnClosed(const Link::Closed& closed) {
  if (closed.error.message != last_trouble_) {
    last_trouble_ = closed.error.message;
    spdlog::warn("node={} msg=\"{}; trying again, the runs go on\"", config_.node, closed.error.ToString());
  }
  if (closed.connection == 0 || closed.connection != connection_) return;
  connection_ = 0;
  welcomed_ = false;
  loop_->Cancel(std::exchange(welcome_timer_, 0));
  loop_->Cancel(std::exchange(heartbeat_timer_, 0));
  supervisor_->OnDisconnected();
  sessions_->CancelAll();
  WatchDisconnection();
}

void Agent::BeatHeart() {
  v1::ConnectRequest request;
  auto* heartbeat = request.mutable_heartbeat();
  heartbeat->set_time_us(SystemClock().Wall().micros);
  if (gpus_ != nullptr) {
    for (const auto& reading : gpus_->Latest()) *heartbeat->add_readings() = reading.ToProto();
  }
  for (auto& problem : Problems()) *heartbeat->add_problems() = std::move(problem);
  if (auto notice = Notice()) *heartbeat->mutable_notice() = std::move(*notice);
  link_->Send(connection_, std::move(request));
  loop_->Cancel(heartbeat_timer_);
  heartbeat_timer_ = loop_->After(heartbeat_, [this] { BeatHeart(); });
}

void Agent::WatchDisconnection() {
  if (config_.stop_after_disconnect_ms == 0) return;
  const auto patience = std::chrono::milliseconds(config_.stop_after_disconnect_ms);
  for (const auto& cluster : supervisor_->LiveClusters()) {
    if (disconnect_timers_.contains(cluster) || (welcomed_ && cluster == cluster_)) continue;
    disconnect_timers_[cluster] = loop_->After(patience, [this, cluster, patience] {
      disconnect_timers_.erase(cluster);
      spdlog::warn(
          "node={} cluster={} msg=\"its imgd was away for {} s (stop_after_disconnect): stopping all its "
          "runs\"",
          config_.node, cluster, std::chrono::duration_cast<std::chrono::seconds>(patience).count());
      supervisor_->StopAll(cluster);
    });
  }
}

void Agent::FeedWatchdog() {
  const auto interval = SdWatchdogInterval();
  if (!interval) return;
  SdNotify("WATCHDOG=1");
  watchdog_timer_ = loop_->After(*interval, [this] { FeedWatchdog(); });
}

}  // namespace imgd
