#include "server/rpc/submission.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <tuple>

#include "common/dataset_ref.h"
#include "common/sha256.h"
#include "common/sweep_members.h"
#include "common/yaml.h"
#include "server/core/cluster_state.h"
#include "server/core/explain.h"
#include "server/core/folders.h"
#include "server/core/room.h"
#include "server/rpc/convert.h"
#include "server/rpc/dataset_service.h"
#include "server/rpc/prospects.h"

namespace imgd {
namespace {

/// Of a sweep, a dry run shows so many jobs.
constexpr size_t kMostShown = 100;

Needs NeedsOf(const JobSpec::Resources& resources) {
  return {.gpu = resources.gpu,
          .cpu = resources.cpu,
          .models = resources.gpu_models,
          .memory_bytes = static_cast<uint64_t>(resources.gpu_memory_gib) << 30,
          .whole_nodes = resources.whole_nodes,
          .labels = resources.labels,
          .not_labels = resources.not_labels};
}

WallTime NotBeforeOf(const JobSpec& spec, WallTime now) {
  if (spec.not_before_us != 0) return {spec.not_before_us};
  return spec.not_before_delay_ms == 0 ? WallTime{} : WallTime{now.micros + spec.not_before_delay_ms * 1000};
}

AfterEnd AfterEndOf(const std::string& when) {
  if (when == "any") return AfterEnd::kAny;
  return when == "failed" ? AfterEnd::kFailed : AfterEnd::kOk;
}

Halving HalvingOf(const HalvingSpec& spec) {
  const SweepMetric metric = spec.metric == "loss"   ? SweepMetric::kLoss
                             : spec.metric == "top5" ? SweepMetric::kTop5
                                                     : SweepMetric::kTop1;
  return {.metric = metric,
          .max = metric != SweepMetric::kLoss,
          .factor = static_cast<uint32_t>(spec.factor),
          .rungs = {spec.rungs.begin(), spec.rungs.end()}};
}

/// Where it is said what nodes must share, and how many could ever hold the job: once for jobs that are
/// alike.
class Checks {
 public:
  Checks(const ClusterView& view, const std::string& file, CheckedSubmit& out)
      : view_(view), file_(file), out_(out) {}

  void Look(const Submission& job) {
    // What may grow has to see its checkpoints from more than one node.
    const uint32_t nodes = std::max(job.nodes, std::min(job.max_nodes, 2U));
    const PlaceChecks::Asked asked(job.nodes, job.max_nodes, job.ranks_per_node, job.needs,
                                   job.checkpoint_parent, AccountsInTheWay(job, view_));
    const auto found = view_.checks.Of(asked, [&] { return LookAtNodes(job, nodes); });
    for (const auto& warning : found.warnings) Warn(warning);
    if (!found.refusal || out_.order.refusal) return;
    out_.order.refusal = found.refusal;
    out_.order.refusal->file = file_;
  }

 private:
  void Warn(const std::string& text) {
    if (std::find(out_.warnings.begin(), out_.warnings.end(), text) == out_.warnings.end())
      out_.warnings.push_back(text);
  }

  PlaceChecks::Found LookAtNodes(const Submission& job, uint32_t nodes) const {
    PlaceChecks::Found found;
    auto warnings = CheckFolders(view_.nodes, nodes, job.ranks_per_node, job.needs, job.checkpoint_parent);
    if (warnings) {
      found.warnings = std::move(*warnings);
    } else {
      found.refusal = std::move(warnings).error();
    }
    // A gang that no known nodes could hold is stored all the same: nodes may join. So is one that its quota
    // forbids, which may be raised.
    const QueuedJob gang = EntryOf(NewJob(job, JobId(), "", WallTime{}));
    if (!view_.nodes.empty() && Room(view_.snapshot.nodes).FitOf(gang).with_lost < job.nodes)
      found.warnings.push_back(ExplainWait(view_.snapshot, {.job = gang, .code = ReasonCode::kNeverFits}));
    if (auto forbidden = WhyQuotaForbids(job, view_); !forbidden.empty())
      found.warnings.push_back(std::move(forbidden));
    return found;
  }

  const ClusterView& view_;
  const std::string& file_;
  CheckedSubmit& out_;
};

/// When and where a job starts depends on these.
auto WhatItAsks(const Submission& job) {
  return std::tie(job.project, job.priority, job.nodes, job.max_nodes, job.ranks_per_node, job.needs,
                  job.time_limit_ms, job.not_before, job.preemptible, job.checkpoint_parent);
}

std::string OwnerOf(const v1::SubmitJobRequest& request) {
  return request.owner().empty() ? "unknown" : request.owner();
}

/// What all jobs of a request have alike, besides their files.
struct Origin {
  const v1::SubmitJobRequest& request;
  JobRules rules;
  WallTime now;

  std::string Owner() const { return OwnerOf(request); }
};

Submission SubmissionOf(const JobSpec& spec, const Origin& origin) {
  return {
      .kind = spec.kind,
      .per_node = spec.command.per_node,
      .name = spec.name,
      .owner = origin.Owner(),
      .project = spec.project,
      .priority = spec.priority,
      .nodes = static_cast<uint32_t>(spec.resources.nodes),
      .max_nodes = spec.IsElastic() ? static_cast<uint32_t>(spec.resources.max_nodes) : 0,
      .resize_interval_ms = spec.resources.resize_interval_ms,
      .ranks_per_node = static_cast<uint32_t>(spec.resources.ranks_per_node),
      .needs = NeedsOf(spec.resources),
      .grace_ms = spec.grace_ms,
      .max_restarts = static_cast<uint32_t>(spec.max_restarts),
      .time_limit_ms = spec.time_limit_ms,
      .preemptible = spec.preemptible,
      .rerun_of = JobId(origin.request.rerun_of()),
      .not_before = NotBeforeOf(spec, origin.now),
      .checkpoint_parent = spec.checkpoint.dir.empty() ? origin.rules.checkpoint_dir : spec.checkpoint.dir};
}

/// It would be taken for a job's number wherever a job is named. Files that are stored may have such names.
bool IsNumber(const std::string& name) {
  return std::all_of(name.begin(), name.end(), [](char c) { return c >= '0' && c <= '9'; });
}

bool IsKnown(const NotifyRule& rule, const JobRules& rules) { return rules.notify_targets.contains(rule.to); }

void CheckTargets(const JobSpec& spec, const JobRules& rules, YamlMap& root) {
  const std::string hint = rules.notify_targets.empty()
                               ? "whoever runs imgd names targets under notifications in imgd.yaml"
                               : fmt::format("there are: {}", fmt::join(rules.notify_targets, ", "));
  auto items = root.Children("notify", "to");
  for (size_t i = 0; i < std::min(items.size(), spec.notify->size()); ++i) {
    const NotifyRule& rule = (*spec.notify)[i];
    if (!IsKnown(rule, rules)) items[i].AddError("to", fmt::format("there is no target '{}'", rule.to), hint);
  }
}

/// What is wrong with the file that only the daemon knows. It is read again for where that stands, and only
/// then.
std::vector<Error> CheckFile(const JobSpec& spec, const std::string& yaml, const std::string& file,
                             const JobRules& rules) {
  const bool is_number = IsNumber(spec.name);
  // A program may do on the nodes whatever the agents' user may.
  const bool forbidden = spec.kind == JobKind::kCommand && !rules.commands;
  const bool targets = !spec.notify || std::all_of(spec.notify->begin(), spec.notify->end(),
                                                   [&](const auto& rule) { return IsKnown(rule, rules); });
  if (!is_number && !forbidden && targets) return {};
  auto root = YamlMap::Parse(yaml, file);
  if (!root) return {root.error()};
  if (is_number) {
    root->AddError("name",
                   fmt::format("'{}' would be taken for the number of a job; add a letter to it", spec.name));
  }
  if (forbidden) {
    root->AddError("command",
                   "commands are not allowed here; jobs that train and conversions of data sets are",
                   "whoever runs imgd allows them by commands: true in imgd.yaml");
  }
  if (!targets) CheckTargets(spec, rules, *root);
  return root->Errors();
}

/// `datasets` must outlive it.
SetAt SetsOf(const std::map<std::string, DatasetRecord>& datasets) {
  return [&datasets](const std::string& address) -> std::optional<std::string> {
    for (const auto& [name, set] : datasets) {
      if (auto ref = RefTo(name, set.address, address)) return ref;
    }
    return std::nullopt;
  };
}

std::optional<DatasetRecord> SetMadeBy(const JobSpec& spec, const std::string& owner) {
  if (spec.convert.registers.empty()) return std::nullopt;
  return DatasetRecord{.name = spec.convert.registers, .address = spec.convert.target, .owner = owner};
}

/// All that speaks against it goes to `refused`.
void AddMember(const SweepMember& member, size_t number, const std::string& file, const Origin& origin,
               const ClusterView& view, SweepOrder& out, std::vector<UnmadeSet>& unmade,
               ErrorsOfMembers& refused) {
  refused.Add(member, number, CheckFile(member.spec, member.spec.text, file, origin.rules));
  const auto job = ApplyPolicies(origin.rules.policies, member.spec.text, member.spec, file, origin.Owner(),
                                 SetsOf(*view.datasets));
  if (!job) return refused.Add(member, number, job.error());
  auto yaml = ResolveDatasets(job->yaml, file, job->spec, *view.datasets, unmade);
  if (!yaml) return refused.Add(member, number, yaml.error());
  Submission submission = SubmissionOf(job->spec, origin);
  submission.name = fmt::format("{}[{}]", member.spec.name, number);
  for (const auto& [name, value] : member.values) submission.sweep_settings.push_back({name, value});
  out.submission.members.push_back(std::move(submission));
  out.files.push_back(std::move(*yaml));
}

/// `text` is what `spec` was read from.
tl::expected<SweepOrder, std::vector<Error>> MakeSweep(const std::string& text, const JobSpec& spec,
                                                       const std::string& file, const Origin& origin,
                                                       const ClusterView& view,
                                                       std::vector<UnmadeSet>& unmade) {
  auto members = MakeSweepMembers(text, file, spec);
  if (!members) return tl::unexpected(std::move(members).error());
  SweepOrder out{.submission = {.name = spec.name,
                                .owner = SubmissionOf(spec, origin).owner,
                                .max_running = static_cast<uint32_t>(spec.sweep->max_running)}};
  if (spec.sweep->halving) out.submission.halving = HalvingOf(*spec.sweep->halving);
  ErrorsOfMembers refused;
  for (size_t i = 0; i < members->size(); ++i)
    AddMember((*members)[i], i + 1, file, origin, view, out, unmade, refused);
  const std::string& written = origin.request.job_yaml();
  if (!refused.empty()) return tl::unexpected(refused.InTermsOf(written, file, members->size()));
  std::set<std::string> projects;
  for (const auto& member : out.submission.members) projects.insert(member.project);
  if (auto kept =
          KeepsSweepBounds(origin.rules.policies, written, spec, file, out.submission.owner, projects);
      !kept)
    return tl::unexpected(std::move(kept).error());
  return out;
}

}  // namespace

std::string FileNameOf(const v1::SubmitJobRequest& request) {
  return request.file_name().empty() ? "job.yaml" : request.file_name();
}

tl::expected<CheckedSubmit, std::vector<Error>> CheckSubmit(const v1::SubmitJobRequest& request, JobSpec spec,
                                                            const ClusterView& view, JobRules rules,
                                                            WallTime now) {
  const std::string file = FileNameOf(request);
  const Origin origin{request, rules, now};
  std::string text = request.job_yaml();
  auto errors = CheckFile(spec, text, file, rules);
  auto allowed =
      ApplyPolicies(rules.policies, text, std::move(spec), file, origin.Owner(), SetsOf(*view.datasets));
  if (!allowed) errors.insert(errors.end(), allowed.error().begin(), allowed.error().end());
  if (!errors.empty()) return tl::unexpected(InFileOrder(std::move(errors)));
  text = std::move(allowed->yaml);
  spec = std::move(allowed->spec);
  CheckedSubmit out{.order = {.submission = SubmissionOf(spec, origin),
                              .idempotency_key = request.idempotency_key(),
                              .content = Sha256Of(request.job_yaml()),
                              .notify = spec.notify,
                              .dry_run = request.dry_run()}};
  SubmitOrder& order = out.order;
  for (const auto& after : spec.after) order.after.push_back({after.job, AfterEndOf(after.when)});
  Checks checks(view, file, out);
  if (spec.sweep) {
    auto sweep = MakeSweep(text, spec, file, origin, view, order.unmade);
    if (!sweep) return tl::unexpected(std::move(sweep).error());
    order.sweep = std::move(*sweep);
    order.yaml = text;
    out.first_file = order.sweep->files.front();
    for (const auto& member : order.sweep->submission.members) checks.Look(member);
    return out;
  }
  order.makes = SetMadeBy(spec, origin.Owner());
  const auto yaml = ResolveDatasets(text, file, spec, *view.datasets, order.unmade);
  if (!yaml) return tl::unexpected(yaml.error());
  order.yaml = out.first_file = *yaml;
  checks.Look(order.submission);
  return out;
}

SubmitOrder OrderOfKnown(const v1::SubmitJobRequest& request, Error refusal) {
  SubmitOrder order;
  order.submission.owner = OwnerOf(request);
  order.yaml = request.job_yaml();
  order.idempotency_key = request.idempotency_key();
  order.content = Sha256Of(request.job_yaml());
  order.refusal = std::move(refusal);
  return order;
}

Error PlacedInFile(const v1::SubmitJobRequest& request, Error error) {
  const std::string::size_type end = error.message.find(": ");
  if (end == std::string::npos || error.line != 0) return error;
  const std::string field = error.message.substr(0, end);
  auto file = YamlMap::Parse(request.job_yaml(), FileNameOf(request));
  if (!file || !file->Has(field)) return error;
  file->AddError(field, error.message.substr(end + 2), error.hint);
  Error placed = file->Errors().back();
  placed.code = error.code;
  return placed;
}

void FillDryRun(const SubmitOrder& order, v1::SubmitJobResponse& out) {
  const Submission& job = order.sweep ? order.sweep->submission.members.front() : order.submission;
  v1::Job& shown = *out.mutable_job();
  shown.set_name(job.name);
  shown.set_owner(job.owner);
  shown.set_project(job.project);
  shown.set_state(v1::JOB_STATE_QUEUED);
  shown.set_reason(v1::REASON_CODE_SUBMITTED);
  shown.set_priority(job.priority);
  shown.set_nodes(job.nodes);
  shown.set_max_nodes(std::max(job.nodes, job.max_nodes));
  shown.set_ranks_per_node(job.ranks_per_node);
  shown.set_kind(static_cast<v1::JobKind>(job.kind));
  shown.set_per_node(job.per_node);
  shown.set_job_yaml(order.sweep ? order.sweep->files.front() : order.yaml);
  shown.set_checkpoint_dir(job.checkpoint_parent);
  shown.set_not_before_us(job.not_before.micros);
  shown.set_time_limit_ms(job.time_limit_ms);
  if (job.max_nodes > job.nodes) shown.set_resize_interval_ms(job.resize_interval_ms);
  shown.set_rerun_of(job.rerun_of.value());
  FillSettings(job.sweep_settings, *shown.mutable_sweep_settings());
  if (!order.sweep) return;
  const auto& members = order.sweep->submission.members;
  const bool alike = std::all_of(members.begin(), members.end(), [&job](const Submission& member) {
    return WhatItAsks(member) == WhatItAsks(job);
  });
  if (!alike) {
    out.add_warnings(fmt::format(
        "the jobs of the sweep do not all ask for the same: when one would start is said of {} alone",
        job.name));
  }
  v1::Sweep& sweep = *out.mutable_sweep();
  sweep.set_name(order.sweep->submission.name);
  sweep.set_owner(job.owner);
  sweep.set_members(static_cast<uint32_t>(members.size()));
  sweep.set_max_running(order.sweep->submission.max_running);
  for (size_t i = 0; i < std::min(members.size(), kMostShown); ++i) {
    FillSettings(members[i].sweep_settings, *out.add_settings()->mutable_settings());
  }
}

}  // namespace imgd
