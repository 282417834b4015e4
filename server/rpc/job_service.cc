#include "server/rpc/job_service.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <charconv>

#include "common/utf8.h"
#include "server/rpc/convert.h"
#include "server/rpc/errors.h"
#include "server/rpc/held_back.h"
#include "server/rpc/limits.h"
#include "server/rpc/log_page.h"
#include "server/rpc/metric_history.h"
#include "server/rpc/prospects.h"
#include "server/rpc/streams.h"
#include "server/rpc/submission.h"

namespace imgd {
namespace {

constexpr size_t kMostActorBytes = 256;

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

Error NoSweep(const v1::GetSweepRequest& request) {
  return {.code = ErrorCode::kNotFound,
          .message = request.id() != 0 ? fmt::format("job {} is of no sweep", request.id())
                                       : fmt::format("there is no sweep '{}'", request.name()),
          .hint = "imgcli jobs shows what there is; jobs of sweeps are called NAME[1], NAME[2] and so on"};
}

/// Of a sweep only its jobs, whose numbers follow each other.
Status NarrowToSweep(JobId id, Reader& reader, JobFilter& filter) {
  IMGD_ASSIGN(const auto sweep, reader.SweepWith(id));
  if (!sweep) return Fail(ErrorCode::kNotFound, "job {} is of no sweep", id);
  const JobId end = sweep->Member(sweep->members);
  filter.from = sweep->id;
  if (filter.before == JobId() || filter.before > end) filter.before = end;
  return {};
}

Status FillPage(const JobFilter& filter, const ClusterView& view, WallTime now, Reader& reader,
                v1::ListJobsResponse& out) {
  JobFilter one_more = filter;
  one_more.most = filter.most + 1;
  IMGD_ASSIGN(auto rows, reader.Jobs(one_more));
  const bool last = rows.size() <= filter.most;
  if (!last) rows.resize(filter.most);
  for (const auto& row : rows) {
    auto& job = *out.add_jobs();
    IMGD_ASSIGN(job, FullJob(row, view, reader));
    AddHeldSince(row.job, view, now, job);
  }
  out.set_warning(view.trouble);
  if (!last) out.set_next_page_token(fmt::format("{}", rows.back().job.id));
  return {};
}

Result<JobRecord> FillJob(JobId id, bool with_yaml, const ClusterView& view, WallTime now, Reader& reader,
                          v1::Job& out) {
  IMGD_ASSIGN(auto row, reader.Job(id, with_yaml));
  if (!row) return tl::unexpected(NoJob(id));
  IMGD_ASSIGN(out, FullJob(*row, view, reader));
  AddHeldSince(row->job, view, now, out);
  return std::move(row->job);
}

/// What a submission stored, or had stored before.
Status FillStored(const SubmitAnswer& answer, const std::string& yaml, const ClusterView& view, WallTime now,
                  Reader& reader, v1::SubmitJobResponse& out) {
  if (!answer.record) {
    IMGD_TRY(FillJob(answer.job, true, view, now, reader, *out.mutable_job()));
    IMGD_ASSIGN(const auto sweep, reader.SweepWith(answer.job));
    if (sweep) FillSweep(*sweep, *out.mutable_sweep());
    return {};
  }
  *out.mutable_job() = ToProto(*answer.record, view);
  out.mutable_job()->set_job_yaml(yaml);
  out.mutable_job()->set_last_event_number(answer.last_event);
  if (answer.sweep) FillSweep(*answer.sweep, *out.mutable_sweep());
  return {};
}

template <typename T>
grpc::Status StatusOf(const Result<T>& result) {
  return result ? grpc::Status::OK : ToStatus(result.error());
}

}  // namespace

JobServiceImpl::JobServiceImpl(Engine* engine, const Callers* callers, ReadPool* pool, const Clock* clock,
                               OwnRules rules)
    : engine_(engine), callers_(callers), pool_(pool), clock_(clock) {
  SetRules(std::move(rules));
}

void JobServiceImpl::SetRules(OwnRules rules) {
  auto fresh = std::make_shared<const OwnRules>(std::move(rules));
  const std::lock_guard lock(rules_mutex_);
  rules_ = std::move(fresh);
}

std::shared_ptr<const JobServiceImpl::OwnRules> JobServiceImpl::Rules() const {
  const std::lock_guard lock(rules_mutex_);
  return rules_;
}

void JobServiceImpl::AnswerWithJob(JobId id, v1::Job* job, grpc::ServerUnaryReactor* reactor) {
  pool_->Post([this, id, job, reactor](Reader& reader) {
    reactor->Finish(StatusOf(FillJob(id, true, *engine_->View(), clock_->Wall(), reader, *job)));
  });
}

void JobServiceImpl::SubmitChecked(const v1::SubmitJobRequest* request, CheckedSubmit submit,
                                   v1::SubmitJobResponse* response, grpc::ServerUnaryReactor* reactor) {
  for (const auto& warning : submit.warnings) response->add_warnings(warning);
  if (submit.order.dry_run) {
    FillDryRun(submit.order, *response);
    FinishDryRun(request, std::move(submit.order), response, reactor);
    return;
  }
  engine_->Submit(std::move(submit.order),
                  [this, yaml = submit.first_file, request, response, reactor](Result<SubmitAnswer> answer) {
                    if (!answer) {
                      RefuseAtItsPlace(*request, answer.error(), reactor);
                      return;
                    }
                    AnswerStored(std::move(*answer), yaml, response, reactor);
                  });
}

void JobServiceImpl::RefuseAtItsPlace(const v1::SubmitJobRequest& request, Error error,
                                      grpc::ServerUnaryReactor* reactor) {
  pool_->Post([&request, error = std::move(error), reactor](Reader&) mutable {
    reactor->Finish(ToStatus(PlacedInFile(request, std::move(error))));
  });
}

void JobServiceImpl::SubmitRefused(const v1::SubmitJobRequest* request, std::vector<Error> errors,
                                   v1::SubmitJobResponse* response, grpc::ServerUnaryReactor* reactor) {
  if (request->idempotency_key().empty() || request->dry_run()) {
    reactor->Finish(ToStatus(errors));
    return;
  }
  engine_->Submit(OrderOfKnown(*request, errors.front()),
                  [this, errors, response, reactor](Result<SubmitAnswer> answer) {
                    if (answer) {
                      AnswerStored(std::move(*answer), "", response, reactor);
                    } else if (answer.error().code == errors.front().code &&
                               answer.error().message == errors.front().message) {
                      reactor->Finish(ToStatus(errors));  // it is new
                    } else {
                      reactor->Finish(ToStatus(answer.error()));
                    }
                  });
}

/// Without a look at the databases, which would cost as much as storing it; but not on the core's thread.
void JobServiceImpl::AnswerStored(SubmitAnswer answer, const std::string& yaml,
                                  v1::SubmitJobResponse* response, grpc::ServerUnaryReactor* reactor) {
  response->set_existed(answer.existed);
  pool_->Post([this, answer = std::move(answer), yaml, response, reactor](Reader& reader) {
    reactor->Finish(StatusOf(FillStored(answer, yaml, *engine_->View(), clock_->Wall(), reader, *response)));
  });
}

/// Of a sweep the first job is looked at.
void JobServiceImpl::FinishDryRun(const v1::SubmitJobRequest* request, SubmitOrder order,
                                  v1::SubmitJobResponse* response, grpc::ServerUnaryReactor* reactor) {
  const Submission job = order.sweep ? order.sweep->submission.members.front() : order.submission;
  engine_->Submit(std::move(order), [this, job, request, response, reactor](Result<SubmitAnswer> answer) {
    if (!answer) {
      RefuseAtItsPlace(*request, answer.error(), reactor);
      return;
    }
    response->mutable_job()->set_name(answer->name);
    FillAfter(answer->after, *response->mutable_job());
    pool_->Post(
        [this, job = job, after = std::move(answer->after), response, reactor](Reader& reader) mutable {
          job.after = std::move(after);
          const auto view = engine_->View();
          const Now now{clock_->Now(), clock_->Wall()};
          const auto standing = StandingOf(job.after, reader);
          if (!standing) {
            reactor->Finish(ToStatus(standing.error()));
            return;
          }
          const bool could = FillProspect(job, *view, *view->quotas, now, *response->mutable_job());
          response->set_cannot_start(!could || standing->never);
          if (!standing->texts.empty()) AddStanding(*standing, *response->mutable_job());
          // Why it could not start is said once.
          auto& warnings = *response->mutable_warnings();
          const std::string& reason = response->job().reason_text();
          warnings.erase(std::remove_if(warnings.begin(), warnings.end(),
                                        [&reason](const std::string& warning) {
                                          return reason.find(warning) != std::string::npos;
                                        }),
                         warnings.end());
          reactor->Finish(grpc::Status::OK);
        });
  });
}

grpc::ServerUnaryReactor* JobServiceImpl::SubmitJob(grpc::CallbackServerContext* context,
                                                    const v1::SubmitJobRequest* request,
                                                    v1::SubmitJobResponse* response) {
  auto* reactor = context->DefaultReactor();
  const auto submit = [this, request, response, reactor](auto& spec) {
    const auto rules = Rules();
    auto checked = CheckSubmit(
        *request, std::move(spec), *engine_->View(),
        {rules->policies, rules->checkpoint_dir, rules->commands, rules->notify_targets}, clock_->Wall());
    if (!checked) {
      SubmitRefused(request, std::move(checked).error(), response, reactor);
      return;
    }
    SubmitChecked(request, std::move(*checked), response, reactor);
  };
  if (const auto within = CheckLimits(*request); !within) {
    reactor->Finish(ToStatus(within.error()));
    return reactor;
  }
  auto spec = files_.Parse(request->job_yaml(), FileNameOf(*request));
  if (!spec) {
    reactor->Finish(ToStatus(spec.error()));
  } else if (!spec->sweep) {
    submit(*spec);
  } else if (!pool_->TryPostSlow(ReadPool::Lane::kWork,
                                 [submit, spec = std::move(*spec)](Reader&) mutable { submit(spec); })) {
    // To make and check thousands of files takes seconds, which is why it is done there.
    reactor->Finish(ToStatus(Busy()));
  }
  return reactor;
}

grpc::ServerUnaryReactor* JobServiceImpl::GetSweep(grpc::CallbackServerContext* context,
                                                   const v1::GetSweepRequest* request,
                                                   v1::GetSweepResponse* response) {
  auto* reactor = context->DefaultReactor();
  if (const auto within = CheckLimits(*request); !within) {
    reactor->Finish(ToStatus(within.error()));
    return reactor;
  }
  const bool posted = pool_->TryPost([request, response, reactor](Reader& reader) {
    const auto found =
        request->id() != 0 ? reader.SweepWith(JobId(request->id())) : reader.SweepNamed(request->name());
    if (!found) {
      reactor->Finish(ToStatus(found.error()));
    } else if (!*found) {
      reactor->Finish(ToStatus(NoSweep(*request)));
    } else {
      FillSweep(**found, *response->mutable_sweep());
      reactor->Finish(grpc::Status::OK);
    }
  });
  if (!posted) reactor->Finish(ToStatus(Busy()));
  return reactor;
}

grpc::ServerUnaryReactor* JobServiceImpl::CancelSweep(grpc::CallbackServerContext* context,
                                                      const v1::CancelSweepRequest* request,
                                                      v1::CancelSweepResponse* response) {
  auto* reactor = context->DefaultReactor();
  if (const auto within = CheckLimits(*request); !within) {
    reactor->Finish(ToStatus(within.error()));
    return reactor;
  }
  const std::string actor = request->actor().empty() ? "unknown" : request->actor();
  engine_->CancelSweep(JobId(request->id()), request->checkpoint(), actor,
                       [response, reactor](const Result<uint32_t>& cancelled) {
                         if (cancelled) response->set_cancelled(*cancelled);
                         reactor->Finish(cancelled ? grpc::Status::OK : ToStatus(cancelled.error()));
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
      IMGD_ASSIGN(const JobRecord record,
                  FillJob(id, true, *engine_->View(), clock_->Wall(), reader, *response->mutable_job()));
      IMGD_ASSIGN(const auto history, reader.History(id));
      for (const auto& event : history) *response->add_history() = ToProto(event);
      const auto view = engine_->View();
      FillForecast(record, *view, {clock_->Now(), clock_->Wall()}, *response->mutable_job());
      IMGD_TRY(ExplainWhoHoldsItBack(record, *view, reader, *response->mutable_job()));
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
  const bool posted = pool_->TryPost([this, filter = std::move(*filter), sweep = JobId(request->sweep_id()),
                                      response, reactor](Reader& reader) mutable {
    const auto fill = [&]() -> Status {
      if (sweep != JobId()) IMGD_TRY(NarrowToSweep(sweep, reader, filter));
      return FillPage(filter, *engine_->View(), clock_->Wall(), reader, *response);
    };
    reactor->Finish(StatusOf(fill()));
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

grpc::ServerWriteReactor<v1::ReadLogsResponse>* JobServiceImpl::ReadLogs(grpc::CallbackServerContext* context,
                                                                         const v1::ReadLogsRequest* request) {
  std::string who;
  if (request->attached()) {
    who = callers_->OwnerOf(*context);
    if (who.empty()) who = OneLine(request->actor().substr(0, kMostActorBytes));
    if (who.empty()) who = "unknown";
    if (!attached_.MayNote(who, clock_->Now())) {
      spdlog::info("job={} actor=\"user:{}\" msg=\"attaches; so many do that no event says so\"",
                   request->id(), who);
      who.clear();
    }
  }
  return LogStreamReader::Start(*request, who, engine_, pool_, clock_);
}

grpc::ServerUnaryReactor* JobServiceImpl::ListLogs(grpc::CallbackServerContext* context,
                                                   const v1::ListLogsRequest* request,
                                                   v1::ListLogsResponse* response) {
  auto* reactor = context->DefaultReactor();
  const auto fill = [this, request, response, reactor](Reader& reader) {
    reactor->Finish(StatusOf(FillLogPage(*request, engine_->log_folder(), reader, *response)));
  };
  const bool posted =
      IsSearch(*request) ? pool_->TryPostSlow(ReadPool::Lane::kWork, fill) : pool_->TryPost(fill);
  if (!posted) reactor->Finish(ToStatus(Busy()));
  return reactor;
}

grpc::ServerUnaryReactor* JobServiceImpl::GetMetrics(grpc::CallbackServerContext* context,
                                                     const v1::GetMetricsRequest* request,
                                                     v1::GetMetricsResponse* response) {
  auto* reactor = context->DefaultReactor();
  const bool posted = pool_->TryPost([request, response, reactor](Reader& reader) {
    reactor->Finish(StatusOf(FillMetrics(*request, reader, *response)));
  });
  if (!posted) reactor->Finish(ToStatus(Busy()));
  return reactor;
}

}  // namespace imgd
