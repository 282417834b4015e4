#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "agent/config.h"
#include "agent/event_loop.h"
#include "agent/exporter.h"
#include "agent/gpu.h"
#include "agent/health.h"
#include "agent/link.h"
#include "agent/node_key.h"
#include "agent/notice.h"
#include "agent/session/sessions.h"
#include "agent/supervisor.h"

namespace imgd {

/// The node agent: joins a link to the daemon, the node's devices and its runs. Lives on the loop's thread.
/// When it is destroyed the runs go on; the next agent on the same state folder takes them up.
class Agent {
 public:
  /// `shim_program`: imgagent-shim. Errors: another agent on the state folder, no devices, a shared
  /// folder that is not there.
  static Result<std::unique_ptr<Agent>> Create(EventLoop* loop, const Config& config,
                                               const std::filesystem::path& shim_program);
  ~Agent();

 private:
  Agent(EventLoop* loop, Config config);
  /// By which imgd knows this node; none where it is spoken to in plain text.
  void MakeNodeKey();
  Status Begin(const std::filesystem::path& shim_program);
  /// The name, and the labels, that EC2 gives this machine where it joins as an instance.
  Status BeAnInstance();
  void OnLink();
  void OnOpened(uint64_t connection);
  void OnResponse(const v1::ConnectResponse& response);
  void ShowMetrics(uint64_t number);
  void OnWelcome(const v1::Welcome& welcome);
  void OnClosed(const Link::Closed& closed);
  /// What is wrong with the node now.
  std::vector<v1::NodeProblem> Problems();
  /// Set while the machine is being taken back.
  std::optional<v1::NodeNotice> Notice() const;
  v1::ConnectRequest MakeHello(const std::string& address);
  void BeatHeart();
  /// Times how long each cluster that has runs here is without its daemon.
  void WatchDisconnection();
  void FeedWatchdog();

  EventLoop* loop_;
  Config config_;
  UniqueFd lock_;
  std::string agent_id_;
  std::string incarnation_;
  std::vector<v1::SharedFolder> shared_folders_;
  std::vector<v1::Device> devices_;
  std::unique_ptr<GpuMonitor> gpus_;  ///< null on CPU slots
  std::unique_ptr<HealthMonitor> health_;
  StrayMemory stray_memory_{config_.health.gpu_memory_free_percent};
  std::unique_ptr<NoticeMonitor> notices_;  ///< null where there are none to look for
  std::unique_ptr<Supervisor> supervisor_;
  std::unique_ptr<Exporter> exporter_;  ///< null where metrics are not served
  SystemClock clock_;
  std::unique_ptr<NodeKey> node_key_;  ///< null where imgd is spoken to in plain text
  std::unique_ptr<Sessions> sessions_;
  std::unique_ptr<Link> link_;
  uint64_t connection_ = 0;  ///< that stands now; 0 for none
  bool welcomed_ = false;
  std::string cluster_;       ///< of the daemon that welcomed last
  std::string last_trouble_;  ///< said once, not at each attempt
  Duration heartbeat_ = std::chrono::seconds(3);
  EventLoop::TimerId heartbeat_timer_ = 0;
  EventLoop::TimerId welcome_timer_ = 0;
  std::map<std::string, EventLoop::TimerId> disconnect_timers_;  ///< by cluster; see WatchDisconnection
  EventLoop::TimerId watchdog_timer_ = 0;
};

}  // namespace imgd
