#include "imgd/v1/job.pb.h"
#include "server/core/explain.h"
#include "server/engine/engine.h"
#include "server/notify/notices.h"
#include "server/store/log_format.h"

/// Runs that somebody started by hand, and the tokens that let them report.
namespace imgd {
namespace {

/// Such a run has one start, of which rank 0 reports for all.
constexpr Generation kOnlyStart{1};
constexpr uint32_t kReportingRank = 0;

Error OtherToken(const JobRecord& job) {
  return {.code = ErrorCode::kPermissionDenied,
          .message = fmt::format("job {} ({}) reports with another token", job.id, job.name)};
}

/// Stands for the notes `first` to `last`.
StoredLine MissingNotes(uint64_t first, uint64_t last, int64_t time_us) {
  return {.number = last,
          .time_us = time_us,
          .is_stderr = true,
          .text = fmt::format("{}{} lines are missing here ({} to {}): they could not be sent, or came after "
                              "the backup that imgd was restored from",
                              kAgentNotice, last - first + 1, first, last)};
}

}  // namespace

void Engine::ChangeToken(TokenOrder order, std::function<void(Result<TokenRecord>)> done) {
  PushOrRefuse<TokenInput>(std::move(order), std::move(done));
}

void Engine::StartByHand(HandStartOrder order, std::function<void(Result<HandAnswer>)> done) {
  PushOrRefuse<HandStartInput>(std::move(order), std::move(done));
}

void Engine::ReportByHand(HandReport report, std::function<void(Result<HandAnswer>)> done) {
  PushOrRefuse<HandReportInput>(std::move(report), std::move(done));
}

Result<TokenRecord> Engine::Change(TokenOrder& order) {
  auto& record = order.record;
  const auto known = tokens_.find(record.name);
  if (order.remove) {
    if (known == tokens_.end()) return Fail(ErrorCode::kNotFound, "there is no token '{}'", record.name);
    TokenRecord removed = known->second;
    tokens_.erase(known);
    state_.RemoveToken(record.name);
    NoteCredential(order.actor, fmt::format("took back the token {}", record.name));
    return removed;
  }
  if (known != tokens_.end()) {
    return tl::unexpected(Error{.code = ErrorCode::kAlreadyExists,
                                .message = fmt::format("name: there is a token '{}' already", record.name),
                                .hint = "imgcli token revoke takes it back"});
  }
  record.created = now_.wall;
  if (order.ttl_ms > 0) record.expires = {now_.wall.micros + order.ttl_ms * 1000};
  tokens_[record.name] = record;
  state_.SaveToken(record);
  NoteCredential(order.actor, fmt::format("made the token {} for {} ({})", record.name, record.owner,
                                          fmt::join(record.scopes, ", ")));
  return record;
}

void Engine::Handle(TokenInput& input) {
  view_changed_ = view_urgent_ = true;
  AnswerLater<TokenRecord>(std::move(input.done), Change(input.order));
}

Result<HandAnswer> Engine::TakeStart(const HandStartOrder& order) {
  Actions actions;
  const auto known = OrFail(state_.FindKey(order.idempotency_key));
  if (!known) {
    const JobId job = reactor_.OnStartedByHand(order.start, now_, actions);
    state_.SaveJobFile(job, order.yaml);
    if (order.notify) state_.SaveNotify(job, EncodeRules(*order.notify));
    state_.SaveKey(order.idempotency_key, {.job = job, .content = ""});
    Record(actions);
    return HandAnswer{.job = job};
  }
  if (auto other = OtherContent(*known, order.idempotency_key, "", order.yaml, order.start.owner))
    return tl::unexpected(std::move(*other));
  const HandReport sign_of_life{.job = known->job, .token = order.start.token, .events = {}};
  IMGD_ASSIGN(HandAnswer answer, TakeReport(sign_of_life));
  answer.existed = true;
  return answer;
}

void Engine::Handle(HandStartInput& input) {
  view_changed_ = true;
  AnswerLater<HandAnswer>(std::move(input.done), TakeStart(input.order));
}

Result<HandAnswer> Engine::TakeReport(const HandReport& report) {
  const JobRecord* job = reactor_.state().FindJob(report.job);
  if (job == nullptr) {
    auto stored = OrFail(state_.FindJob(report.job));
    if (!stored) return Fail(ErrorCode::kNotFound, "there is no job {}", report.job);
    if (stored->by_hand) reactor_.Recall(*stored);
    job = reactor_.state().FindJob(report.job);
  }
  if (job == nullptr || !job->by_hand) {
    return Fail(ErrorCode::kFailedPrecondition, "job {} was not started by hand: its agents report",
                report.job);
  }
  if (job->by_hand->token != report.token) return tl::unexpected(OtherToken(*job));
  const NodeId host(job->by_hand->hosts.front());
  Actions actions;
  reactor_.OnHeardByHand(report.job, now_, actions);
  Record(actions);
  const uint64_t last = TakeEvents({report.job, kOnlyStart}, kReportingRank, host, report.events);
  return HandAnswer{.job = report.job, .sequence = last};
}

void Engine::Handle(HandReportInput& input) {
  AnswerLater<HandAnswer>(std::move(input.done), TakeReport(input.report));
}

/// By the trainer's numbers, so that one that was stored without its event's number is not stored again.
void Engine::OnTrainerNote(RunKey run, uint32_t rank, const v1::TrainerEvent& event) {
  const JobRecord* job = reactor_.state().FindJob(run.job);
  if (job == nullptr || !job->by_hand) return;  // others' logs have every line, with numbers of their own
  const auto& note = event.note();
  const LogStream stream{run, rank};
  const uint64_t next = OrFail(log_store_.Append(stream, {})) + 1;
  std::vector<StoredLine> lines;
  if (note.line_number() > next) lines.push_back(MissingNotes(next, note.line_number() - 1, event.time_us()));
  lines.push_back({note.line_number(), event.time_us(), note.is_stderr(), note.text()});
  OrFail(log_store_.Append(stream, lines));
  new_logs_.insert(run.job);
}

}  // namespace imgd
