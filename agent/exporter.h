#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "agent/event_loop.h"
#include "agent/gpu.h"
#include "agent/metrics.h"
#include "agent/metrics_server.h"
#include "agent/node_figures.h"
#include "agent/run_meter.h"
#include "agent/supervisor.h"

namespace imgd {

/// In place of an address: nobody dials the agent, imgd asks it by its stream.
inline constexpr const char* kRelay = "relay";

/// Shows this node's live runs and its GPUs to Prometheus. Follows what the ranks report by itself, once a
/// second, so that a scrape only copies what is there, also while the daemon is away. Lives on the loop's
/// thread.
class Exporter {
 public:
  /// Serves on `listen` ("host:port"; port 0: a free one; kRelay: imgd asks). `supervisor` and `gpus` outlive
  /// it; `gpus` is null on CPU slots; `state_dir` is on the disk that is told of. Errors: as
  /// MetricsServer::Listen.
  static Result<std::unique_ptr<Exporter>> Create(EventLoop* loop, const std::string& listen,
                                                  const Supervisor* supervisor,
                                                  std::vector<v1::Device> devices, const GpuMonitor* gpus,
                                                  std::filesystem::path state_dir);
  ~Exporter();

  bool relayed() const { return server_ == nullptr; }
  /// 0 where nothing is served.
  uint32_t port() const { return server_ == nullptr ? 0 : server_->port(); }
  /// Where others find it, "HOST:PORT", on a node that they reach at `node_address`. Empty where it listens
  /// on the loopback and others are not on this machine.
  std::string AddressFor(const std::string& node_address) const;
  /// All that is known now. A run is in it as soon as its reports were read to the end once.
  NodeSnapshot Snapshot();
  /// The same as /metrics shows it.
  std::string Text() { return ToMetricsText(Snapshot()); }

 private:
  Exporter(EventLoop* loop, const Supervisor* supervisor, std::vector<v1::Device> devices,
           const GpuMonitor* gpus, std::filesystem::path state_dir);
  void Look();

  EventLoop* loop_;
  const Supervisor* supervisor_;
  std::vector<v1::Device> devices_;
  const GpuMonitor* gpus_;
  std::filesystem::path state_dir_;
  std::map<RunKey, RunMeter> meters_;  ///< of live runs
  NetworkMeter network_;
  EventLoop::TimerId timer_ = 0;
  std::string host_;                       ///< that it listens on
  std::unique_ptr<MetricsServer> server_;  ///< null where imgd asks instead
};

}  // namespace imgd
