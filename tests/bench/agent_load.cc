#include <fmt/format.h>
#include <grpcpp/grpcpp.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <thread>

#include "common/clock.h"
#include "common/files.h"
#include "common/tls/join_token.h"
#include "common/tls/pem.h"
#include "imgd/v1/agent.grpc.pb.h"
#include "imgd/v1/enrol.grpc.pb.h"
#include "imgd/v1/node.grpc.pb.h"
#include "tests/bench/control_load.h"

namespace imgd {
namespace {

constexpr auto kHeartbeat = std::chrono::seconds(3);
constexpr uint32_t kDevices = 8;
/// How many agents at most are on their way in at a time; those of a real cluster come one by one, too.
constexpr size_t kMostJoining = 64;

/// What all agents count together.
struct Tally {
  std::mutex mutex;
  std::condition_variable changed;
  size_t welcomed = 0;
  size_t ended = 0;
  std::string first_error;  ///< all guarded by mutex
  std::atomic<bool> closing = false;
  std::atomic<uint64_t> heartbeats = 0;  ///< that were handed to the connection
  std::atomic<uint64_t> held_up = 0;     ///< heartbeats left out, since the last was still on its way
};

std::string NodeOf(size_t number) { return fmt::format("gpu-{:05}", number); }
std::string AgentIdOf(size_t number) { return fmt::format("agent-{:05}", number); }

v1::ConnectRequest HelloOf(size_t number) {
  v1::ConnectRequest request;
  auto* hello = request.mutable_hello();
  hello->set_node(NodeOf(number));
  hello->set_version("bench");
  hello->set_address(fmt::format("10.{}.{}.{}", number >> 16 & 255, number >> 8 & 255, number & 255));
  hello->set_filesystem_id(fmt::format("fs-{:05}", number));
  hello->set_incarnation("1");
  hello->set_agent_id(AgentIdOf(number));
  for (uint32_t i = 0; i < kDevices; ++i) {
    auto* device = hello->add_devices();
    device->set_index(i);
    device->set_model("NVIDIA H100 80GB HBM3");
    device->set_uuid(fmt::format("GPU-{:08x}-0000-0000-0000-{:012x}", number, i));
    device->set_memory_bytes(85'520'809'984);
  }
  return request;
}

v1::ConnectRequest HeartbeatOf(uint64_t turn) {
  v1::ConnectRequest request;
  auto* heartbeat = request.mutable_heartbeat();
  heartbeat->set_time_us(SystemClock().Wall().micros);
  for (uint32_t i = 0; i < kDevices; ++i) {
    auto* reading = heartbeat->add_readings();
    reading->set_busy_ratio(static_cast<double>((turn + i) % 100) / 100);
    reading->set_memory_used_bytes(70'000'000'000 + (turn << 20));
    reading->set_power_watts(600 + static_cast<double>(turn % 50));
    reading->set_temperature_celsius(60 + static_cast<double>(i));
    reading->set_sm_clock_hertz(1.98e9);
  }
  return request;
}

/// One agent's stream. Lives until Tally::ended counts it.
class SimulatedAgent final : public grpc::ClientBidiReactor<v1::ConnectRequest, v1::ConnectResponse> {
 public:
  SimulatedAgent(const LoadTarget& target, const NodePass& pass, size_t number, Tally* tally)
      : tally_(tally), stub_(v1::AgentService::NewStub(OwnChannel(target, pass))), request_(HelloOf(number)) {
    stub_->async()->Connect(&context_, this);
    AddHold();  // heartbeats are written from outside of the stream's reactions
    StartWrite(&request_);
    StartRead(&response_);
    StartCall();
  }

  void Beat() {
    if (writing_.exchange(true)) {
      ++tally_->held_up;
      return;
    }
    request_ = HeartbeatOf(++turn_);
    ++tally_->heartbeats;
    StartWrite(&request_);
  }

  void Close() {
    context_.TryCancel();
    RemoveHold();
  }

  void OnWriteDone(bool ok) override {
    if (ok) writing_ = false;
  }

  void OnReadDone(bool ok) override {
    if (!ok) return;
    if (response_.has_welcome()) {
      const std::lock_guard lock(tally_->mutex);
      ++tally_->welcomed;
      tally_->changed.notify_all();
    }
    StartRead(&response_);
  }

  void OnDone(const grpc::Status& status) override {
    const std::lock_guard lock(tally_->mutex);
    ++tally_->ended;
    tally_->changed.notify_all();
    if (!tally_->closing && tally_->first_error.empty()) tally_->first_error = status.error_message();
  }

 private:
  Tally* tally_;
  std::unique_ptr<v1::AgentService::Stub> stub_;
  grpc::ClientContext context_;
  v1::ConnectRequest request_;
  v1::ConnectResponse response_;
  std::atomic<bool> writing_ = true;  ///< the Hello
  uint64_t turn_ = 0;
};

/// Beats each agent's heart in its turn, until `end`.
class Heart {
 public:
  explicit Heart(std::vector<std::unique_ptr<SimulatedAgent>>* agents) : agents_(agents) {}

  void BeatUntil(Instant end) {
    const auto step = std::chrono::duration_cast<Duration>(kHeartbeat) / agents_->size();
    if (due_ == Instant{}) due_ = std::chrono::steady_clock::now();
    for (; due_ < end; due_ += step, next_ = (next_ + 1) % agents_->size()) {
      std::this_thread::sleep_until(due_);
      (*agents_)[next_]->Beat();
    }
  }

 private:
  std::vector<std::unique_ptr<SimulatedAgent>>* agents_;
  Instant due_{};
  size_t next_ = 0;
};

/// Of a process, user and system together.
double ProcessorSeconds(pid_t pid) {
  const auto stat = ReadFile(fmt::format("/proc/{}/stat", pid));
  if (!stat) return 0;
  // Fields 14 and 15, counted behind the name in brackets, which may have spaces.
  const char* at = stat->c_str() + stat->rfind(')') + 1;
  uint64_t user = 0;
  uint64_t system = 0;
  std::sscanf(at, " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &user, &system);
  return static_cast<double>(user + system) / static_cast<double>(::sysconf(_SC_CLK_TCK));
}

double MemoryMib(pid_t pid, std::string_view key) {
  const auto status = ReadFile(fmt::format("/proc/{}/status", pid));
  const size_t at = status ? status->find(key) : std::string::npos;
  return at == std::string::npos ? 0 : std::strtod(status->c_str() + at + key.size(), nullptr) / 1024;
}

Result<size_t> ReadyNodes(const LoadTarget& target) {
  const auto stub = v1::NodeService::NewStub(OwnChannel(target));
  grpc::ClientContext context;
  v1::ListNodesResponse response;
  const auto status = stub->ListNodes(&context, {}, &response);
  if (!status.ok()) return Fail(ErrorCode::kUnavailable, "ListNodes: {}", status.error_message());
  size_t ready = 0;
  for (const auto& node : response.nodes()) ready += node.state() == v1::NODE_STATE_READY ? 1 : 0;
  return ready;
}

/// Keys and certificates of all nodes, by one join token for all of them.
Result<std::vector<NodePass>> Enrol(const AgentLoad& load) {
  const auto stub = v1::EnrolService::NewStub(OwnChannel(load.target));
  v1::CreateJoinTokenRequest request;
  request.set_uses(static_cast<uint32_t>(load.agents));
  request.set_owner("bench");
  v1::CreateJoinTokenResponse response;
  grpc::ClientContext context;
  const auto made = stub->CreateJoinToken(&context, request, &response);
  if (!made.ok()) return Fail(ErrorCode::kUnavailable, "CreateJoinToken: {}", made.error_message());
  IMGD_ASSIGN(const tls::JoinToken token, tls::ParseJoinToken(response.secret()));
  std::vector<NodePass> passes;
  for (size_t i = 0; i < load.agents; ++i) {
    IMGD_ASSIGN(const std::string key, tls::NewKey());
    v1::EnrolRequest node;
    node.set_secret(token.secret);
    node.set_node(NodeOf(i));
    node.set_agent_id(AgentIdOf(i));
    IMGD_ASSIGN(*node.mutable_request_pem(), tls::MakeRequest(key));
    v1::EnrolResponse answer;
    grpc::ClientContext call;
    const auto enrolled = stub->Enrol(&call, node, &answer);
    if (!enrolled.ok()) return Fail(ErrorCode::kUnavailable, "Enrol: {}", enrolled.error_message());
    passes.push_back({.key = key, .certificate = answer.certificate_pem()});
  }
  return passes;
}

Status Join(const AgentLoad& load, const std::vector<NodePass>& passes, Tally& tally,
            std::vector<std::unique_ptr<SimulatedAgent>>& agents) {
  const auto wait = [&tally](size_t least) -> Status {
    std::unique_lock lock(tally.mutex);
    const bool there = tally.changed.wait_for(lock, std::chrono::seconds(60),
                                              [&] { return tally.welcomed >= least || tally.ended > 0; });
    if (tally.ended > 0)
      return Fail(ErrorCode::kUnavailable, "an agent's stream ended: {}", tally.first_error);
    if (!there)
      return Fail(ErrorCode::kUnavailable, "{} agents joined; {} were expected", tally.welcomed, least);
    return {};
  };
  for (size_t i = 0; i < load.agents; ++i) {
    agents.push_back(std::make_unique<SimulatedAgent>(load.target, passes[i], i, &tally));
    if (agents.size() > kMostJoining) IMGD_TRY(wait(agents.size() - kMostJoining));
  }
  return wait(load.agents);
}

void CloseAll(Tally& tally, std::vector<std::unique_ptr<SimulatedAgent>>& agents) {
  tally.closing = true;
  for (const auto& agent : agents) agent->Close();
  std::unique_lock lock(tally.mutex);
  tally.changed.wait(lock, [&] { return tally.ended == agents.size(); });
}

/// How long it took until all had a certificate, and from then on until all were welcomed, s.
struct JoinTimes {
  double enrolled;
  double joined;
};

Status Measure(const AgentLoad& load, Tally& tally, std::vector<std::unique_ptr<SimulatedAgent>>& agents,
               const JoinTimes& times) {
  Heart heart(&agents);
  if (load.seconds > 0) heart.BeatUntil(std::chrono::steady_clock::now() + 2 * kHeartbeat);
  const double before = ProcessorSeconds(load.daemon_pid);
  const uint64_t beats_before = tally.heartbeats;
  const Instant begun = std::chrono::steady_clock::now();
  heart.BeatUntil(begun + std::chrono::duration_cast<Duration>(std::chrono::duration<double>(load.seconds)));
  const double took = std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
  const double share = (ProcessorSeconds(load.daemon_pid) - before) / std::max(took, 1e-9);
  const uint64_t beats = tally.heartbeats - beats_before;
  const double rss = MemoryMib(load.daemon_pid, "VmRSS:");
  IMGD_ASSIGN(const size_t ready, ReadyNodes(load.target));
  if (ready != load.agents || tally.ended != 0) {
    return Fail(ErrorCode::kUnavailable, "{} of {} nodes are ready and {} streams ended: {}", ready,
                load.agents, tally.ended, tally.first_error);
  }
  fmt::print(
      "{{\"agents\": {}, \"enrol_seconds\": {:.3f}, \"join_seconds\": {:.3f}, \"seconds\": {:.3f}, "
      "\"cpu_cores\": {:.4f}, \"rss_mib\": {:.1f}, \"peak_rss_mib\": {:.1f}, \"heartbeats\": {}, "
      "\"held_up\": {}}}\n",
      load.agents, times.enrolled, times.joined, took, share, rss, MemoryMib(load.daemon_pid, "VmHWM:"),
      beats, tally.held_up);
  return {};
}

/// Until the standard input ends.
void Hold(std::vector<std::unique_ptr<SimulatedAgent>>& agents) {
  fmt::print("{{\"joined\": {}}}\n", agents.size());
  std::fflush(stdout);
  Heart heart(&agents);
  pollfd input{.fd = STDIN_FILENO, .events = POLLIN, .revents = 0};
  while (::poll(&input, 1, 0) == 0)
    heart.BeatUntil(std::chrono::steady_clock::now() + std::chrono::milliseconds(200));
}

}  // namespace

Status RunAgents(const AgentLoad& load) {
  Tally tally;
  std::vector<std::unique_ptr<SimulatedAgent>> agents;
  const auto since = [](Instant begun) {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
  };
  JoinTimes times{};
  Instant begun = std::chrono::steady_clock::now();
  IMGD_ASSIGN(const std::vector<NodePass> passes, Enrol(load));
  times.enrolled = since(begun);
  begun = std::chrono::steady_clock::now();
  Status status = Join(load, passes, tally, agents);
  times.joined = since(begun);
  if (status && load.hold) {
    Hold(agents);
  } else if (status) {
    status = Measure(load, tally, agents, times);
  }
  CloseAll(tally, agents);
  return status;
}

}  // namespace imgd
