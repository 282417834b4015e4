#include "agent/exporter.h"

#include <algorithm>
#include <utility>

#include "common/url.h"

namespace imgd {
namespace {
constexpr auto kLookPeriod = std::chrono::seconds(1);
/// Of one rank at a time: an agent that takes up a run of weeks must answer others meanwhile.
constexpr size_t kMostBytesALook = 1 << 20;
}  // namespace

Result<std::unique_ptr<Exporter>> Exporter::Create(EventLoop* loop, const std::string& listen,
                                                   const Supervisor* supervisor,
                                                   std::vector<v1::Device> devices, const GpuMonitor* gpus,
                                                   std::filesystem::path state_dir) {
  std::unique_ptr<Exporter> exporter(
      new Exporter(loop, supervisor, std::move(devices), gpus, std::move(state_dir)));
  if (listen != kRelay) {
    IMGD_ASSIGN(exporter->server_,
                MetricsServer::Listen(loop, listen, [raw = exporter.get()] { return raw->Text(); }));
  }
  exporter->host_ = listen.substr(0, listen.rfind(':'));
  exporter->Look();
  return exporter;
}

std::string Exporter::AddressFor(const std::string& node_address) const {
  if (relayed()) return "";
  const bool any = host_.empty() || host_ == "0.0.0.0" || host_ == "[::]" || host_ == "::" || host_ == "*";
  const std::string& host = any ? node_address : host_;
  if (host.empty() || (IsLoopbackHost(host) && !IsLoopbackHost(node_address))) return "";
  const bool needs_brackets = host.find(':') != std::string::npos && !host.starts_with('[');
  return fmt::format("{}{}{}:{}", needs_brackets ? "[" : "", host, needs_brackets ? "]" : "", port());
}

Exporter::Exporter(EventLoop* loop, const Supervisor* supervisor, std::vector<v1::Device> devices,
                   const GpuMonitor* gpus, std::filesystem::path state_dir)
    : loop_(loop),
      supervisor_(supervisor),
      devices_(std::move(devices)),
      gpus_(gpus),
      state_dir_(std::move(state_dir)) {}

Exporter::~Exporter() { loop_->Cancel(timer_); }

void Exporter::Look() {
  const auto live = supervisor_->LiveRuns();
  std::erase_if(meters_, [&](const auto& meter) {
    return std::none_of(live.begin(), live.end(), [&](const Run* run) { return run->key() == meter.first; });
  });
  bool all_read = true;
  for (const Run* run : live) {
    const auto [it, is_new] = meters_.try_emplace(run->key(), *run->dir(), run->spec().local_world_size);
    all_read = it->second.Read(kMostBytesALook) && all_read;
  }
  timer_ = loop_->After(all_read ? Duration(kLookPeriod) : Duration::zero(), [this] { Look(); });
}

NodeSnapshot Exporter::Snapshot() {
  NodeSnapshot node;
  for (const Run* run : supervisor_->LiveRuns()) {
    const auto meter = meters_.find(run->key());
    const std::set<uint32_t> devices(run->spec().devices.begin(), run->spec().devices.end());
    node.held.insert(devices.begin(), devices.end());
    if (meter == meters_.end() || !meter->second.is_complete()) continue;
    node.runs.push_back({.key = run->key(),
                         .running_ranks = run->running_ranks(),
                         .ranks = meter->second.ranks(),
                         .trains = run->spec().Trains(),
                         .devices = devices,
                         .has_rank_0 = run->spec().first_rank == 0,
                         .ranks_elsewhere = run->spec().world_size - run->spec().local_world_size});
  }
  node.machine = ReadNodeFigures(state_dir_, network_);
  if (gpus_ != nullptr) {
    node.gpus = devices_;
    node.readings = gpus_->Latest();
  }
  return node;
}

}  // namespace imgd
