#include "server/web/metrics_page.h"

#include <algorithm>
#include <cctype>
#include <filesystem>

#include "common/process_figures.h"
#include "common/version.h"
#include "imgd/v1/common.pb.h"
#include "imgd/v1/node.pb.h"
#include "server/web/errors.h"

namespace imgd::web {
namespace {

using prometheus::MetricType;

/// "REASON_CODE_NODE_LOST" is "node_lost".
std::string Word(std::string name, std::string_view prefix) {
  if (name.starts_with(prefix)) name.erase(0, prefix.size());
  std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::tolower(c); });
  return name.empty() ? "unknown" : name;
}

std::string WordOf(JobState state) { return Word(std::string(NameOf(state)), ""); }

std::string WordOf(ReasonCode code) {
  return Word(v1::ReasonCode_Name(static_cast<v1::ReasonCode>(code)), "REASON_CODE_");
}

std::string WordOf(ProblemKind kind) {
  return Word(v1::ProblemKind_Name(static_cast<v1::ProblemKind>(kind)), "PROBLEM_KIND_");
}

std::string WordOf(AgentState state) {
  switch (state) {
    case AgentState::kReady:
      return "ready";
    case AgentState::kDisconnected:
      return "disconnected";
    case AgentState::kUnreachable:
      return "unreachable";
    case AgentState::kLost:
      return "lost";
  }
  return "unknown";
}

template <typename Key, typename Value>
void AddBy(const char* label, const std::map<Key, Value>& counts, MetricFamilies& families) {
  for (const auto& [key, count] : counts) families.Add({{label, WordOf(key)}}, static_cast<double>(count));
}

void AddDevices(const Census& census, MetricFamilies& families) {
  const std::pair<const char*, const DeviceUse&> kinds[] = {{"gpu", census.gpus}, {"cpu", census.cpu_slots}};
  families.Begin(
      "imgd_devices", MetricType::Gauge,
      "GPUs and CPU slots of all nodes by what they are used for; their sum is all that there are.");
  for (const auto& [kind, use] : kinds) {
    const std::pair<const char*, uint32_t> uses[] = {{"allocated", use.allocated},
                                                     {"idle", use.idle},
                                                     {"set_aside", use.set_aside},
                                                     {"unavailable", use.unavailable}};
    for (const auto& [word, count] : uses) families.Add({{"kind", kind}, {"use", word}}, count);
  }
}

void AddNodes(const Census& census, MetricFamilies& families) {
  families.Begin("imgd_agents", MetricType::Gauge, "Agents by how well imgd reaches them.");
  AddBy("state", census.agents, families);
  families.Begin("imgd_nodes_set_aside", MetricType::Gauge, "Nodes that get nothing new, by who decided it.");
  families.Add({{"by", "user"}}, census.set_aside_by_user);
  families.Add({{"by", "imgd"}}, census.set_aside_by_imgd);
  families.Begin("imgd_nodes_noticed", MetricType::Gauge, "Nodes whose owner takes them back.");
  families.Add({}, census.noticed);
  families.Begin("imgd_nodes_sick", MetricType::Gauge, "Nodes by the health check that fails there.");
  AddBy("problem", census.problems, families);
  AddDevices(census, families);
}

void AddJobs(const EngineFigures& figures, MetricFamilies& families) {
  const EngineCounts& counts = figures.counts;
  families.Begin("imgd_jobs", MetricType::Gauge, "Jobs that have not ended, by state.");
  AddBy("state", figures.census.jobs, families);
  families.Begin("imgd_jobs_held_back", MetricType::Gauge,
                 "Queued jobs that wait for other jobs, a time or a place in their sweep, not for devices.");
  families.Add({}, figures.census.held_back);
  families.Begin("imgd_jobs_submitted_total", MetricType::Counter, "Jobs submitted since imgd began.");
  families.Add({}, counts.jobs_submitted);
  families.Begin("imgd_jobs_ended_total", MetricType::Counter, "Jobs that have ended since then, by how.");
  AddBy("state", counts.jobs_ended, families);
  families.Begin("imgd_job_restarts_total", MetricType::Counter,
                 "Times that a job's run ended and it went back to the queue, by why.");
  AddBy("reason", counts.restarts, families);
  families.Begin("imgd_queue_wait_seconds", MetricType::Histogram,
                 "From when a job could start if there was room, to its start; of each start.");
  families.AddHistogram({}, counts.queue_wait);
  families.Begin("imgd_job_device_seconds_total", MetricType::Counter,
                 "Time that jobs held devices, times their number.");
  families.Add({}, counts.device_seconds);
  families.Begin("imgd_spend_total", MetricType::Counter,
                 "What that cost by the prices that the agents declare, in the operator's currency.");
  families.Add(figures.currency.empty() ? MetricLabels() : MetricLabels{{"currency", figures.currency}},
               counts.spend);
}

void AddDaemon(const EngineFigures& figures, MetricFamilies& families) {
  const EngineCounts& counts = figures.counts;
  families.Begin("imgd_spot_notices_total", MetricType::Counter,
                 "Notices that a node is being taken back, and changes of such.");
  families.Add({}, counts.spot_notices);
  families.Begin("imgd_nodes_lost_total", MetricType::Counter,
                 "Times that a node was lost without a notice that it was to go.");
  families.Add({}, counts.nodes_lost);
  families.Begin("imgd_stale_reports_total", MetricType::Counter,
                 "Reports refused since they were of an older start of their job.");
  families.Add({}, static_cast<double>(figures.stale_reports));
  families.Begin("imgd_scheduling_pass_seconds", MetricType::Histogram, "Time that making a plan took.");
  families.AddHistogram({}, counts.scheduling);
  families.Begin("imgd_commit_seconds", MetricType::Histogram,
                 "Time that storing a batch durably took, in both databases.");
  families.AddHistogram({}, counts.commit);
  families.Begin("imgd_store_failing", MetricType::Gauge, "1 while nothing can be stored, else 0.");
  families.Add({}, figures.in_trouble ? 1 : 0);
}

void AddProgram(const std::filesystem::path& folder, MetricFamilies& families) {
  families.Begin("imgd_build_info", MetricType::Gauge, "1; its label is the program's version.");
  families.Add({{"version", kVersion}}, 1);
  std::error_code error;
  const auto space = std::filesystem::space(folder, error);
  families.Begin("imgd_state_free_bytes", MetricType::Gauge, "Free space where the state folder is.");
  if (!error) families.Add({}, static_cast<double>(space.available));
  families.Begin("imgd_state_size_bytes", MetricType::Gauge, "Size of the disk that it is on.");
  if (!error) families.Add({}, static_cast<double>(space.capacity));
  AddProcess(families);
}

/// Prometheus may have several clusters' series, of which those of agents bear it too.
void NameCluster(const std::string& id, std::vector<prometheus::MetricFamily>& families) {
  for (auto& family : families) {
    for (auto& metric : family.metric) metric.label.insert(metric.label.begin(), {"cluster", id});
  }
}

}  // namespace

void AddFigures(const EngineFigures& figures, MetricFamilies& families) {
  AddJobs(figures, families);
  AddNodes(figures.census, families);
  AddDaemon(figures, families);
}

void AddNotifications(const std::map<std::string, NotifyCounts>& targets, MetricFamilies& families) {
  const auto add = [&targets, &families](uint64_t NotifyCounts::*count) {
    for (const auto& [name, counts] : targets)
      families.Add({{"target", name}}, static_cast<double>(counts.*count));
  };
  families.Begin("imgd_notifications_sent_total", MetricType::Counter, "Notifications delivered, by target.");
  add(&NotifyCounts::sent);
  families.Begin("imgd_notification_failures_total", MetricType::Counter,
                 "Tries to deliver one that failed; they are made again.");
  add(&NotifyCounts::failed_tries);
  families.Begin("imgd_notifications_lost_total", MetricType::Counter,
                 "Notifications that nobody gets: given up as too old, or left out since too many waited.");
  for (const auto& [name, counts] : targets) {
    families.Add({{"target", name}, {"reason", "given_up"}}, static_cast<double>(counts.given_up));
    families.Add({{"target", name}, {"reason", "too_many"}}, static_cast<double>(counts.dropped));
  }
  families.Begin("imgd_notifications_pending", MetricType::Gauge,
                 "Notifications that wait, with those under way.");
  add(&NotifyCounts::pending);
}

Handler MetricsPage(Engine* engine, const CallTimes* calls, const Notifier* notifier, ReadPool* pool) {
  return [engine, calls, notifier, pool](const Request&, const Answer& answer) {
    // Here, since a task of the pool may outlive what counts them.
    MetricFamilies counted;
    calls->AddTo(counted);
    AddNotifications(notifier->Counts(), counted);
    engine->Measure([engine, pool, answer, of_calls = counted.Take()](const Result<EngineFigures>& figures) {
      if (!figures) {
        answer(ErrorResponse(figures.error()));
        return;
      }
      const auto write = [answer, of_calls, figures = *figures, folder = engine->log_folder(),
                          cluster = engine->cluster_id()] {
        MetricFamilies families;
        AddFigures(figures, families);
        AddProgram(folder, families);
        auto all = families.Take();
        all.insert(all.end(), of_calls.begin(), of_calls.end());
        NameCluster(cluster, all);
        answer({.body = MetricsText(all), .content_type = kMetricsContentType});
      };
      // Not on the core's thread; but where all is busy, that is when people want to see it.
      if (!pool->TryPost([write](Reader&) { write(); })) write();
    });
  };
}

}  // namespace imgd::web
