#include "server/rpc/job_service.h"

#include <charconv>

#include "common/job_file.h"
#include "server/core/explain.h"
#include "server/core/folders.h"
#include "server/rpc/convert.h"
#include "server/rpc/dataset_service.h"
#include "server/rpc/errors.h"
#include "server/rpc/limits.h"
#include "server/rpc/streams.h"

namespace imgd {
namespace {

Error Busy() {
  return {.code = ErrorCode::kResourceExhausted, .message = "too many requests wait already; try again"};
}

Error NoJob(JobId id) {
  return {.code = ErrorCode::kNotFound, .message = fmt::format("there is no job {}", id)};
}

Needs NeedsOf(const JobSpec::Resources& resources) {
  return {.gpu = resources.gpu,
          .models = resources.gpu_models,
          .memory_bytes = static_cast<uint64_t>(resources.gpu_memory_gib) << 30,
          .whole_nodes = resources.whole_nodes,
          .labels = resources.labels,
          .not_labels = resources.not_labels};
}

Submission SubmissionOf(const JobSpec& spec, const v1::SubmitJobRequest& request,
                        const std::string& checkpoint_dir) {
  return {.name = spec.name,
          .owner = request.owner().empty() ? "unknown" : request.owner(),
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
          .rerun_of = JobId(request.rerun_of()),
          .checkpoint_parent = spec.checkpoint.dir.empty() ? checkpoint_dir : spec.checkpoint.dir};
}

/// `request` is within its limits.
JobOrder OrderOf(const v1::ChangeJobRequest& request) {
  JobOrder order{.job = JobId(request.id()), .actor = request.actor().empty() ? "unknown" : request.actor()};
  switch (request.change_case()) {
    case v1::ChangeJobRequest::kResume:
      order.what = JobOrder::What::kResume;
      break;
    case v1::ChangeJobRequest::kMove:
      order.what = JobOrder::What::kMove;
      break;
    case v1::ChangeJobRequest::kPriority:
      order.what = JobOrder::What::kPriority;
      order.priority = request.priority();
      break;
    case v1::ChangeJobRequest::kTimeLimitMs:
      order.what = JobOrder::What::kTimeLimit;
      order.time_limit.to_ms = request.time_limit_ms();
      break;
    case v1::ChangeJobRequest::kMoreTimeMs:
      order.what = JobOrder::What::kTimeLimit;
      order.time_limit.by_ms = request.more_time_ms();
      break;
    default:
      order.what = JobOrder::What::kPause;
  }
  return order;
}

/// A gang that no known nodes could hold is stored all the same: nodes may join.
void WarnIfItNeverFits(const Submission& job, const ClusterView& view, v1::SubmitJobResponse& response) {
  const QueuedJob gang{.nodes = job.nodes,
                       .max_nodes = job.max_nodes,
                       .ranks_per_node = job.ranks_per_node,
                       .needs = job.needs};
  if (view.nodes.empty() || FitOf(view.snapshot.nodes, gang).with_lost >= job.nodes) return;
  response.add_warnings(ExplainWait(view.snapshot, {.job = gang, .code = ReasonCode::kNeverFits}));
}

void FillDryRun(const Submission& job, const std::string& yaml, v1::Job& out) {
  out.set_name(job.name);
  out.set_owner(job.owner);
  out.set_state(v1::JOB_STATE_QUEUED);
  out.set_reason(v1::REASON_CODE_SUBMITTED);
  out.set_priority(job.priority);
  out.set_nodes(job.nodes);
  out.set_max_nodes(std::max(job.nodes, job.max_nodes));
  out.set_ranks_per_node(job.ranks_per_node);
  out.set_job_yaml(yaml);
  out.set_checkpoint_dir(job.checkpoint_parent);
}

Result<JobFilter> FilterOf(const v1::ListJobsRequest& request) {
  IMGD_TRY(CheckLimits(request));
  JobFilter filter{.owner = request.owner(), .name_contains = request.name_contains()};
  constexpr uint32_t kMostOfPage = 1000;
  if (request.page_size() > kMostOfPage) {
    return Fail(ErrorCode::kInvalidArgument, "page_size: found {}; at most {} is allowed",
                request.page_size(), kMostOfPage);
  }
  if (request.page_size() != 0) filter.most = request.page_size();
  for (const int state : request.states()) {
    if (state < v1::JOB_STATE_QUEUED || state > v1::JOB_STATE_CANCELLED) {
      return Fail(ErrorCode::kInvalidArgument, "states: {} is no state of a job", state);
    }
    filter.states.push_back(static_cast<JobState>(state));
  }
  const std::string& token = request.page_token();
  if (token.empty()) return filter;
  uint64_t before = 0;
  const auto [end, error] = std::from_chars(token.data(), token.data() + token.size(), before);
  if (error != std::errc() || end != token.data() + token.size() || before == 0) {
    return Fail(ErrorCode::kInvalidArgument, "page_token: '{}' is not from an earlier answer", token);
  }
  filter.before = JobId(before);
  return filter;
}

Status FillPage(const JobFilter& filter, const ClusterView& view, Reader& reader, v1::ListJobsResponse& out) {
  JobFilter one_more = filter;
  one_more.most = filter.most + 1;
  IMGD_ASSIGN(auto rows, reader.Jobs(one_more));
  const bool last = rows.size() <= filter.most;
  if (!last) rows.resize(filter.most);
  for (const auto& row : rows) {
    IMGD_ASSIGN(*out.add_jobs(), FullJob(row, view, reader));
  }
  out.set_warning(view.trouble);
  if (!last) out.set_next_page_token(fmt::format("{}", rows.back().job.id));
  return {};
}

Status FillJob(JobId id, bool with_yaml, const ClusterView& view, Reader& reader, v1::Job& out) {
  IMGD_ASSIGN(const auto row, reader.Job(id, with_yaml));
  if (!row) return tl::unexpected(NoJob(id));
  IMGD_ASSIGN(out, FullJob(*row, view, reader));
  return {};
}

grpc::Status StatusOf(const Status& status) { return status ? grpc::Status::OK : ToStatus(status.error()); }

}  // namespace

JobServiceImpl::JobServiceImpl(Engine* engine, ReadPool* pool, const Clock* clock, std::string checkpoint_dir)
    : engine_(engine), pool_(pool), clock_(clock), checkpoint_dir_(std::move(checkpoint_dir)) {}

void JobServiceImpl::AnswerWithJob(JobId id, v1::Job* job, grpc::ServerUnaryReactor* reactor) {
  pool_->Post([this, id, job, reactor](Reader& reader) {
    reactor->Finish(StatusOf(FillJob(id, true, *engine_->View(), reader, *job)));
  });
}

grpc::ServerUnaryReactor* JobServiceImpl::SubmitJob(grpc::CallbackServerContext* context,
                                                    const v1::SubmitJobRequest* request,
                                                    v1::SubmitJobResponse* response) {
  auto* reactor = context->DefaultReactor();
  if (const auto checked = CheckLimits(*request); !checked) {
    reactor->Finish(ToStatus(checked.error()));
    return reactor;
  }
  const std::string file = request->file_name().empty() ? "job.yaml" : request->file_name();
  const auto spec = ParseJobFile(request->job_yaml(), file);
  if (!spec) {
    reactor->Finish(ToStatus(spec.error()));
    return reactor;
  }
  const auto view = engine_->View();
  const auto yaml = ResolveDatasets(request->job_yaml(), file, *spec, *view->datasets);
  if (!yaml) {
    reactor->Finish(ToStatus(yaml.error()));
    return reactor;
  }
  SubmitOrder order{.submission = SubmissionOf(*spec, *request, checkpoint_dir_),
                    .yaml = *yaml,
                    .idempotency_key = request->idempotency_key()};
  const auto& job = order.submission;
  // What may grow has to see its checkpoints from more than one node.
  const uint32_t nodes = std::max(job.nodes, std::min(job.max_nodes, 2U));
  if (const auto warnings = CheckFolders(view->nodes, nodes, job.ranks_per_node, job.checkpoint_parent)) {
    for (const auto& warning : *warnings) response->add_warnings(warning);
  } else {
    order.refusal = warnings.error();
    order.refusal->file = file;
  }
  WarnIfItNeverFits(job, *view, *response);
  if (request->dry_run()) {
    FillDryRun(job, *yaml, *response->mutable_job());
    reactor->Finish(order.refusal ? ToStatus(*order.refusal) : grpc::Status::OK);
    return reactor;
  }
  engine_->Submit(std::move(order), [this, yaml = *yaml, response, reactor](Result<SubmitAnswer> answer) {
    if (!answer) {
      reactor->Finish(ToStatus(answer.error()));
      return;
    }
    response->set_existed(answer->existed);
    if (!answer->record) {
      AnswerWithJob(answer->job, response->mutable_job(), reactor);
      return;
    }
    // Without a look at the databases, which would cost as much as storing it; but not on the core's thread.
    pool_->Post([this, answer = std::move(*answer), yaml, response, reactor](Reader&) {
      v1::Job& out = *response->mutable_job() = ToProto(*answer.record, *engine_->View());
      out.set_job_yaml(yaml);
      out.set_last_event_number(answer.last_event);
      reactor->Finish(grpc::Status::OK);
    });
  });
  return reactor;
}

grpc::ServerUnaryReactor* JobServiceImpl::GetJob(grpc::CallbackServerContext* context,
                                                 const v1::GetJobRequest* request,
                                                 v1::GetJobResponse* response) {
  auto* reactor = context->DefaultReactor();
  const bool posted = pool_->TryPost([this, request, response, reactor](Reader& reader) {
    const JobId id(request->id());
    const auto fill = [&]() -> Status {
      IMGD_TRY(FillJob(id, true, *engine_->View(), reader, *response->mutable_job()));
      IMGD_ASSIGN(const auto history, reader.History(id));
      for (const auto& event : history) *response->add_history() = ToProto(event);
      response->set_warning(engine_->View()->trouble);
      return {};
    };
    reactor->Finish(StatusOf(fill()));
  });
  if (!posted) reactor->Finish(ToStatus(Busy()));
  return reactor;
}

grpc::ServerUnaryReactor* JobServiceImpl::ListJobs(grpc::CallbackServerContext* context,
                                                   const v1::ListJobsRequest* request,
                                                   v1::ListJobsResponse* response) {
  auto* reactor = context->DefaultReactor();
  auto filter = FilterOf(*request);
  if (!filter) {
    reactor->Finish(ToStatus(filter.error()));
    return reactor;
  }
  const bool posted = pool_->TryPost([this, filter = std::move(*filter), response, reactor](Reader& reader) {
    reactor->Finish(StatusOf(FillPage(filter, *engine_->View(), reader, *response)));
  });
  if (!posted) reactor->Finish(ToStatus(Busy()));
  return reactor;
}

grpc::ServerUnaryReactor* JobServiceImpl::CancelJob(grpc::CallbackServerContext* context,
                                                    const v1::CancelJobRequest* request,
                                                    v1::CancelJobResponse* response) {
  auto* reactor = context->DefaultReactor();
  if (const auto checked = CheckLimits(*request); !checked) {
    reactor->Finish(ToStatus(checked.error()));
    return reactor;
  }
  const JobId id(request->id());
  const std::string actor = request->actor().empty() ? "unknown" : request->actor();
  engine_->Cancel(id, request->checkpoint(), actor, [this, id, response, reactor](const Status& status) {
    if (!status) {
      reactor->Finish(ToStatus(status.error()));
    } else {
      AnswerWithJob(id, response->mutable_job(), reactor);
    }
  });
  return reactor;
}

grpc::ServerUnaryReactor* JobServiceImpl::ChangeJob(grpc::CallbackServerContext* context,
                                                    const v1::ChangeJobRequest* request,
                                                    v1::ChangeJobResponse* response) {
  auto* reactor = context->DefaultReactor();
  if (const auto checked = CheckLimits(*request); !checked) {
    reactor->Finish(ToStatus(checked.error()));
    return reactor;
  }
  engine_->ChangeJob(OrderOf(*request),
                     [this, id = JobId(request->id()), response, reactor](const Status& status) {
                       if (!status) {
                         reactor->Finish(ToStatus(status.error()));
                       } else {
                         AnswerWithJob(id, response->mutable_job(), reactor);
                       }
                     });
  return reactor;
}

grpc::ServerUnaryReactor* JobServiceImpl::ProfileJob(grpc::CallbackServerContext* context,
                                                     const v1::ProfileJobRequest* request,
                                                     v1::ProfileJobResponse* response) {
  auto* reactor = context->DefaultReactor();
  if (const auto checked = CheckLimits(*request); !checked) {
    reactor->Finish(ToStatus(checked.error()));
    return reactor;
  }
  engine_->Profile(JobId(request->id()), request->rank(), request->steps(),
                   [response, reactor](const Result<std::string>& node) {
                     if (node) response->set_node(*node);
                     reactor->Finish(node ? grpc::Status::OK : ToStatus(node.error()));
                   });
  return reactor;
}

grpc::ServerWriteReactor<v1::WatchJobResponse>* JobServiceImpl::WatchJob(grpc::CallbackServerContext*,
                                                                         const v1::WatchJobRequest* request) {
  return WatchStream::Start(*request, engine_, pool_, clock_);
}

grpc::ServerWriteReactor<v1::ReadLogsResponse>* JobServiceImpl::ReadLogs(grpc::CallbackServerContext*,
                                                                         const v1::ReadLogsRequest* request) {
  return LogStreamReader::Start(*request, engine_, pool_, clock_);
}

}  // namespace imgd
