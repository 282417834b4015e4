#include "agent/supervisor.h"

#include <spdlog/spdlog.h>
#include <sys/epoll.h>
#include <sys/inotify.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "agent/network.h"
#include "agent/program.h"
#include "agent/trainer_client.h"

namespace imgd {
namespace {

/// Changes of files that come close together are looked at together.
constexpr auto kGather = std::chrono::milliseconds(50);
/// How often files are looked at though nothing said that they changed.
constexpr auto kLookAnyway = std::chrono::milliseconds(1000);
constexpr auto kPulsePeriod = std::chrono::milliseconds(1000);

Generation After(Generation generation) { return Generation(generation.value() + 1); }

}  // namespace

Result<std::unique_ptr<Supervisor>> Supervisor::Create(EventLoop* loop, SupervisorOptions options,
                                                       Send send) {
  IMGD_TRY(MakeFolders(options.state_dir / "runs"));
  IMGD_TRY(OpenTo(options.projects, options.state_dir));
  IMGD_ASSIGN(auto generations, Generations::Load(options.state_dir / "generations.json"));
  std::unique_ptr<Supervisor> supervisor(
      new Supervisor(loop, std::move(options), std::move(generations), std::move(send)));
  IMGD_TRY(supervisor->FindRuns());
  return supervisor;
}

Supervisor::Supervisor(EventLoop* loop, SupervisorOptions options, Generations generations, Send send)
    : loop_(loop),
      options_(std::move(options)),
      generations_(std::move(generations)),
      send_(std::move(send)),
      inotify_(::inotify_init1(IN_CLOEXEC | IN_NONBLOCK)) {
  if (!inotify_.valid() || !loop_->Watch(inotify_.get(), EPOLLIN, [this](uint32_t) { OnFilesChanged(); })) {
    spdlog::warn("msg=\"no inotify: the ranks' output is looked at every second\"");
  }
  SendPulses();
}

Supervisor::~Supervisor() {
  loop_->Cancel(pump_timer_);
  loop_->Cancel(pulse_timer_);
  loop_->Unwatch(inotify_.get());
}

Status Supervisor::FindRuns() {
  std::error_code error;
  const auto folder = options_.state_dir / "runs";
  std::vector<std::filesystem::path> paths;
  for (std::filesystem::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    paths.push_back(it->path());
  }
  if (error) return FailErrno(error.value(), fmt::format("cannot read folder {}", folder.native()));
  for (const auto& path : paths) {
    if (path.filename().native().starts_with(".new-")) {
      std::filesystem::remove_all(path, error);  // an agent ended while it made it
      continue;
    }
    auto spec = LoadRunSpec(RunDir{path});
    if (!spec || spec->key.FolderName() != path.filename()) {
      spdlog::error("folder={} msg=\"not a run's folder, left alone: {}\"", path.native(),
                    spec ? "its name is another run's" : spec.error().ToString());
      continue;
    }
    Run& run = Add(spec->key);
    spdlog::info("run={} msg=\"found; taking it up again\"", spec->key.ToString());
    run.Attach(RunDir{path}, std::move(*spec));
    WatchFolder(run);
  }
  return {};
}

// --- commands ---

void Supervisor::Handle(const v1::ConnectResponse& response) {
  using Response = v1::ConnectResponse;
  switch (response.message_case()) {
    case Response::kPrepareRun:
      return Prepare(response.prepare_run());
    case Response::kStartRun:
      return Start(response.start_run());
    case Response::kStopRun:
      return Stop(response.stop_run());
    case Response::kProfileRun:
      return Profile(response.profile_run());
    case Response::kForgetRun:
      return Forget(response.forget_run());
    case Response::kEventsAck:
      if (Run* run = Find(KeyOf(response.events_ack().run())); run != nullptr && run->relay() != nullptr) {
        run->relay()->Acknowledge(response.events_ack());
        PumpSoon(Duration::zero());
      }
      return;
    case Response::kLogsAck:
      if (Run* run = Find(KeyOf(response.logs_ack().run())); run != nullptr && run->relay() != nullptr) {
        run->relay()->Acknowledge(response.logs_ack());
        PumpSoon(Duration::zero());
      }
      return;
    case Response::kShowMetrics:  // these are the agent's own, like the Welcome
    case Response::kOpenSession:
    case Response::kWelcome:
    case Response::MESSAGE_NOT_SET:
      return;
  }
}

RunKey Supervisor::KeyOf(const v1::RunId& run) const {
  return {JobId(run.job_id()), Generation(run.generation()), cluster_};
}

bool Supervisor::MayStart(const RunKey& key) const {
  return generations_.MayStart(key.cluster, key.job, key.generation);
}

std::string Supervisor::TooOld(const RunKey& key) const {
  return fmt::format("run {} is older than generation {}, the oldest of its job that this node takes",
                     key.ToString(), generations_.Oldest(key.cluster, key.job));
}

void Supervisor::Prepare(const v1::PrepareRun& command) {
  const RunKey key = KeyOf(command.run());
  v1::ConnectRequest answer;
  auto* prepared = answer.mutable_run_prepared();
  *prepared->mutable_run() = command.run();
  Run* run = Find(key);
  if (run == nullptr && !MayStart(key)) {
    prepared->set_error(TooOld(key));
  } else if (run == nullptr) {
    EndOlderPrepared(key);
    Remember(key, key.generation);
    run = &Add(key);
    if (const auto held = run->HoldPort(address_); !held) {
      prepared->set_error(held.error().ToString());
      runs_.erase(key);
      run = nullptr;
    }
  }
  if (run != nullptr && run->phase() == v1::RUN_PHASE_GONE) {
    prepared->set_error(fmt::format("run {} has ended here already", key.ToString()));
  } else if (run != nullptr && run->port() == 0) {
    prepared->set_error(fmt::format("run {} was prepared by an earlier agent process", key.ToString()));
  } else if (run != nullptr) {
    prepared->set_address(run->port_address());
    prepared->set_port(run->port());
  }
  spdlog::info(
      "run={} msg=\"{}\"", key.ToString(),
      prepared->error().empty() ? fmt::format("holds port {}", prepared->port()) : prepared->error());
  if (connected_) send_(std::move(answer));
}

std::string Supervisor::WhyNot(const v1::StartRun& command) const {
  const RunKey key = KeyOf(command.run());
  if (!MayStart(key)) return TooOld(key);
  if (command.devices().empty()) return "no device is named to run on";
  for (const uint32_t device : command.devices()) {
    if (FindDevice(device) == nullptr) return fmt::format("this node has no device {}", device);
    for (const auto& [other, run] : runs_) {
      if (other != key && run->HoldsDevice(device)) {
        return fmt::format("device {} is still held by run {}", device, other.ToString());
      }
    }
  }
  return "";
}

void Supervisor::Start(const v1::StartRun& command) {
  const RunKey key = KeyOf(command.run());
  Run* run = Find(key);
  if (run != nullptr && (run->dir() || run->phase() == v1::RUN_PHASE_GONE)) {
    SendStatus(run->StatusMessage());  // said twice
    return;
  }
  if (auto why_not = WhyNot(command); !why_not.empty()) {
    if (run != nullptr) {
      run->Refuse(std::move(why_not));
    } else {
      SendGone(key, std::move(why_not));
    }
    return;
  }
  EndOlderPrepared(key);
  Remember(key, key.generation);
  if (run == nullptr) run = &Add(key);
  const auto start = MakeStart(command);
  if (!start) {
    run->Refuse(start.error().ToString());
    return;
  }
  const uint32_t ranks = start->spec.local_world_size;
  spdlog::info("run={} msg=\"starting {} rank{} from {} of {}\"", key.ToString(), ranks,
               ranks == 1 ? "" : "s", command.first_rank(), command.world_size());
  run->Start(*start);
  WatchFolder(*run);
}

Result<RunStart> Supervisor::MakeStart(const v1::StartRun& command) const {
  RunStart start;
  RunSpec& spec = start.spec;
  IMGD_ASSIGN(spec.program, ProgramOf(command.kind(), command.job_yaml(), options_.converter));
  IMGD_ASSIGN(auto claims, ClaimsOf(command.job_yaml()));
  IMGD_TRY(CheckClaims(options_.projects, claims));
  const ProjectRules& rules = options_.projects.Of(claims.project);
  spec.user = rules.user;
  spec.paths = rules.paths;
  spec.secrets = std::move(claims.secrets);
  spec.secrets_dir = options_.projects.secrets_dir;
  spec.key = KeyOf(command.run());
  spec.job_name = command.job_name();
  spec.trainer = options_.trainer;
  spec.first_rank = command.first_rank();
  const auto devices = static_cast<uint32_t>(command.devices_size());
  spec.local_world_size = command.ranks() > 0 ? command.ranks() : devices;
  spec.world_size = command.world_size();
  spec.node_rank = command.node_rank();
  spec.node_count = command.node_count();
  spec.devices.assign(command.devices().begin(), command.devices().end());
  spec.visible_devices = VisibleDevices(spec.devices);
  spec.master_address = command.master_address();
  spec.master_port = command.master_port();
  spec.host_address = address_;
  spec.interface = InterfaceOf(address_);
  spec.checkpoint_dir = command.checkpoint_dir();
  spec.grace_ms = command.grace_ms();
  spec.log_limit_bytes = options_.run_log_limit_bytes;
  spec.use_cgroup = options_.use_cgroup;
  start.job_yaml = command.job_yaml();
  start.resume_from.assign(command.resume_from().begin(), command.resume_from().end());
  start.last_generation = Generation(command.last_generation());
  start.runs = options_.state_dir / "runs";
  start.shim_program = options_.shim_program;
  return start;
}

void Supervisor::Stop(const v1::StopRun& command) {
  const RunKey key = KeyOf(command.run());
  spdlog::info("run={} msg=\"asked to stop{}\"", key.ToString(),
               command.checkpoint_first() ? " after a checkpoint" : "");
  // Whatever its generation: an old run that still lives is the one that must go.
  if (Run* run = Find(key)) {
    run->Stop(command.grace_ms(), command.checkpoint_first());
  } else {
    SendGone(key, "");
  }
  // A start of it that is still on its way comes too late.
  Remember(key, After(key.generation));
}

void Supervisor::Profile(const v1::ProfileRun& command) {
  const RunKey key = KeyOf(command.run());
  const Run* run = Find(key);
  if (run == nullptr || !run->dir()) return;
  const uint32_t first = run->spec().first_rank;
  if (command.rank() < first || command.rank() - first >= run->spec().local_world_size) return;
  v1::TrainerCommand profile;
  profile.mutable_profile()->set_steps(command.steps());
  const auto sent = SendToTrainer(*run->dir(), command.rank() - first, profile);
  spdlog::info("run={} rank={} msg=\"asked for a profile of {} steps{}\"", key.ToString(), command.rank(),
               command.steps(), sent ? "" : ", but: " + sent.error().ToString());
}

void Supervisor::Forget(const v1::ForgetRun& command) {
  const RunKey key = KeyOf(command.run());
  Remember(key, After(key.generation));
  if (Find(key) == nullptr) return;
  forgotten_.insert(key);
  PumpSoon(Duration::zero());
}

void Supervisor::StopAll(const std::string& cluster) {
  for (auto& [key, run] : runs_) {
    if (key.cluster == cluster && run->phase() != v1::RUN_PHASE_GONE) run->Stop(run->grace_ms(), false);
  }
}

void Supervisor::EndOlderPrepared(const RunKey& key) {
  for (auto& [other, run] : runs_) {
    if (other.cluster == key.cluster && other.job == key.job && other.generation < key.generation &&
        !run->dir() && run->phase() == v1::RUN_PHASE_PREPARED) {
      run->Stop(0, false);
    }
  }
}

// --- devices ---

const v1::Device* Supervisor::FindDevice(uint32_t index) const {
  const auto it = std::find_if(options_.devices.begin(), options_.devices.end(),
                               [&](const v1::Device& device) { return device.index() == index; });
  return it == options_.devices.end() ? nullptr : &*it;
}

std::string Supervisor::VisibleDevices(const std::vector<uint32_t>& indices) const {
  std::vector<std::string> uuids;
  for (const uint32_t index : indices) {
    const v1::Device* device = FindDevice(index);
    // By uuid: an index means different GPUs to NVML and to CUDA.
    if (device != nullptr && !device->uuid().empty()) uuids.push_back(device->uuid());
  }
  return fmt::format("{}", fmt::join(uuids, ","));
}

// --- runs ---

Run* Supervisor::Find(const RunKey& key) {
  const auto it = runs_.find(key);
  return it == runs_.end() ? nullptr : it->second.get();
}

const Run* Supervisor::RunOf(const v1::RunId& run) const {
  const auto it = runs_.find(KeyOf(run));
  return it == runs_.end() ? nullptr : it->second.get();
}

Run& Supervisor::Add(const RunKey& key) {
  auto& run = runs_[key];
  run = std::make_unique<Run>(loop_, key, [this](Run& changed) { OnChange(changed); });
  return *run;
}

void Supervisor::Remember(const RunKey& key, Generation oldest) {
  if (const auto remembered = generations_.AllowFrom(key.cluster, key.job, oldest); !remembered) {
    spdlog::error("job={} msg=\"{}\"", key.job, remembered.error().ToString());
  }
}

std::vector<v1::RunStatus> Supervisor::Statuses() const {
  std::vector<v1::RunStatus> statuses;
  for (const auto& [key, run] : runs_) statuses.push_back(run->StatusMessage());
  return statuses;
}

std::vector<const Run*> Supervisor::LiveRuns() const {
  std::vector<const Run*> live;
  for (const auto& [key, run] : runs_) {
    if (run->dir() && run->phase() != v1::RUN_PHASE_GONE) live.push_back(run.get());
  }
  return live;
}

std::set<std::string> Supervisor::LiveClusters() const {
  std::set<std::string> clusters;
  for (const auto& [key, run] : runs_) {
    if (run->phase() != v1::RUN_PHASE_GONE) clusters.insert(key.cluster);
  }
  return clusters;
}

void Supervisor::OnChange(Run& run) {
  // What the ranks said last is on its way before the daemon hears that they are gone.
  if (welcomed_ && run.key().cluster == cluster_ && run.phase() == v1::RUN_PHASE_GONE &&
      run.relay() != nullptr) {
    if (run.relay()->Pump(send_)) PumpSoon(Duration::zero());
  }
  SendPulse(run);
  SendStatus(run.StatusMessage());
  if (forgotten_.contains(run.key())) PumpSoon(Duration::zero());
}

void Supervisor::SendStatus(v1::RunStatus status) {
  if (!connected_) return;
  v1::ConnectRequest request;
  *request.mutable_run_status() = std::move(status);
  send_(std::move(request));
}

void Supervisor::SendGone(const RunKey& key, std::string error) {
  v1::RunStatus status;
  status.mutable_run()->set_job_id(key.job.value());
  status.mutable_run()->set_generation(key.generation.value());
  status.set_cluster_id(key.cluster);
  status.set_phase(v1::RUN_PHASE_GONE);
  status.set_start_error(std::move(error));
  SendStatus(std::move(status));
}

// --- relaying ---

void Supervisor::OnWelcome(const v1::Welcome& welcome) {
  welcomed_ = true;
  cluster_ = welcome.cluster_id();
  // A port that another daemon's gang was to meet at: nothing runs, and nothing is kept of it.
  std::erase_if(runs_,
                [this](const auto& run) { return run.first.cluster != cluster_ && !run.second->dir(); });
  const std::vector<v1::StreamPosition> positions(welcome.positions().begin(), welcome.positions().end());
  for (auto& [key, run] : runs_) {
    if (key.cluster == cluster_ && run->relay() != nullptr) run->relay()->GoOn(positions);
  }
  SayWhatIsOthers();
  PumpSoon(Duration::zero());
}

void Supervisor::SayWhatIsOthers() {
  told_of_.erase(cluster_);
  for (const auto& cluster : LiveClusters()) {
    if (cluster == cluster_ || !told_of_.insert(cluster).second) continue;
    std::vector<std::string> names;
    for (const auto& [key, run] : runs_) {
      if (key.cluster == cluster && run->phase() != v1::RUN_PHASE_GONE) names.push_back(key.ToString());
    }
    spdlog::warn(
        "cluster={} runs={} msg=\"these runs are of another cluster ({}) than the daemon here: they go on "
        "and keep "
        "their devices, and are reported when this agent is back with their own daemon\"",
        cluster_, fmt::join(names, ","), cluster);
  }
}

void Supervisor::OnDisconnected() {
  connected_ = false;
  welcomed_ = false;
}

void Supervisor::WatchFolder(const Run& run) {
  if (!run.dir()) return;
  for (const auto& folder : {run.dir()->path, run.dir()->Ranks()}) {
    if (::inotify_add_watch(inotify_.get(), folder.c_str(), IN_MODIFY | IN_CREATE) < 0) {
      spdlog::warn("run={} msg=\"its folder can't be watched, only looked at every second\"",
                   run.key().ToString());
    }
  }
  PumpSoon(kLookAnyway);
}

void Supervisor::OnFilesChanged() {
  char buffer[16 << 10];
  while (::read(inotify_.get(), buffer, sizeof buffer) > 0) {
  }
  PumpSoon(kGather);
}

void Supervisor::PumpSoon(Duration delay) {
  const Instant when = std::chrono::steady_clock::now() + delay;
  if (pump_timer_ != 0 && pump_at_ <= when) return;
  loop_->Cancel(pump_timer_);
  pump_at_ = when;
  pump_timer_ = loop_->After(delay, [this] {
    pump_timer_ = 0;
    Pump();
  });
}

void Supervisor::Pump() {
  bool more = false;
  if (welcomed_) {
    for (auto& [key, run] : runs_) {
      if (key.cluster == cluster_ && run->relay() != nullptr) more = run->relay()->Pump(send_) || more;
    }
  }
  RemoveForgotten();
  if (!runs_.empty()) PumpSoon(more ? Duration::zero() : kLookAnyway);
}

void Supervisor::SendPulse(Run& run) {
  // Looked at whether somebody hears it or not: the times count from the last look.
  v1::RunPulse pulse = run.LookAtPulses(std::chrono::steady_clock::now());
  if (!welcomed_ || run.key().cluster != cluster_ || pulse.ranks().empty()) return;
  v1::ConnectRequest request;
  *request.mutable_run_pulse() = std::move(pulse);
  send_(std::move(request));
}

void Supervisor::SendPulses() {
  for (auto& [key, run] : runs_) {
    if (run->phase() != v1::RUN_PHASE_GONE) SendPulse(*run);
  }
  pulse_timer_ = loop_->After(kPulsePeriod, [this] { SendPulses(); });
}

void Supervisor::RemoveForgotten() {
  for (auto it = forgotten_.begin(); it != forgotten_.end();) {
    Run* run = Find(*it);
    const bool done = run == nullptr || (run->phase() == v1::RUN_PHASE_GONE &&
                                         (run->relay() == nullptr || run->relay()->Drained()));
    if (done && run != nullptr) {
      spdlog::info("run={} msg=\"all acknowledged; its folder goes\"", it->ToString());
      run->RemoveDir();
      runs_.erase(*it);
    }
    it = done ? forgotten_.erase(it) : std::next(it);
  }
}

}  // namespace imgd
