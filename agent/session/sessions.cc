#include "agent/session/sessions.h"

#include <grpcpp/grpcpp.h>
#include <spdlog/spdlog.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <utility>

#include "agent/channel.h"
#include "agent/node_key.h"
#include "common/job_file.h"
#include "common/url.h"

namespace imgd {
namespace {

/// Beyond those that there may be: sessions that last for as long as it takes to say so.
constexpr size_t kMostRefusals = 64;

/// Where a job writes what TensorBoard reads: report.dir, else `logs` in its own folder, or where that is in
/// a bucket in the run's.
std::string FiguresOf(const RunDir& dir, const RunSpec& spec) {
  namespace fs = std::filesystem;
  if (!spec.Trains()) return spec.checkpoint_dir;
  if (const auto text = ReadFile(dir.JobYaml())) {
    const auto job = ParseJobFile(*text, "job.yaml");
    if (job && !job->report.dir.empty()) return (dir.Ranks() / job->report.dir).lexically_normal();
  }
  return (IsUrl(spec.checkpoint_dir) ? dir.Ranks() : fs::path(spec.checkpoint_dir)) / "logs";
}

}  // namespace

Result<std::unique_ptr<Sessions>> Sessions::Create(EventLoop* loop, SessionsOptions options,
                                                   Supervisor* supervisor) {
  std::unique_ptr<Sessions> sessions(new Sessions(loop, std::move(options), supervisor));
  if (!sessions->wake_.valid()) return FailErrno(errno, "cannot make an event descriptor");
  IMGD_TRY(loop->Watch(sessions->wake_.get(), EPOLLIN, [raw = sessions.get()](uint32_t) { raw->OnEvent(); }));
  return sessions;
}

Sessions::Sessions(EventLoop* loop, SessionsOptions options, Supervisor* supervisor)
    : loop_(loop),
      options_(std::move(options)),
      supervisor_(supervisor),
      wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  host_ = {.node = options_.node,
           .shim_program = options_.shim_program,
           .allowed = options_.allowed,
           .tensorboard = options_.tensorboard,
           .channel = [this] { return Channel(); },
           .find_rank = [this](const v1::RunId& run, uint32_t rank) { return Ask(run, rank); }};
}

Sessions::~Sessions() {
  std::vector<std::unique_ptr<Question>> left;
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
    left.swap(questions_);
  }
  for (const auto& question : left)
    question->answer.set_value(Fail(ErrorCode::kUnavailable, "the node's agent ends"));
  for (const auto& [number, session] : sessions_) session->Cancel();
  sessions_.clear();
  loop_->Unwatch(wake_.get());
}

void Sessions::Open(const v1::OpenSession& order) {
  std::string refusal;
  if (sessions_.size() >= options_.most) {
    refusal = fmt::format("node {} has {} sessions and forwarded connections at once, and takes no more",
                          options_.node, options_.most);
  }
  if (!refusal.empty() && !full_)
    spdlog::warn("node={} msg=\"a session is refused: {}\"", options_.node, refusal);
  full_ = !refusal.empty();
  if (sessions_.size() >= options_.most + kMostRefusals) return;  // imgd says that there is no answer
  const uint64_t number = ++last_number_;
  sessions_[number] =
      std::make_unique<Session>(order.id(), &host_, std::move(refusal), [this, number] { NoteDone(number); });
}

void Sessions::CancelAll() {
  for (const auto& [number, session] : sessions_) session->Cancel();
}

void Sessions::OnEvent() {
  uint64_t count = 0;
  (void)!::read(wake_.get(), &count, sizeof count);
  std::vector<std::unique_ptr<Question>> questions;
  std::vector<uint64_t> done;
  {
    const std::lock_guard lock(mutex_);
    questions.swap(questions_);
    done.swap(done_);
  }
  for (const auto& question : questions) question->answer.set_value(FindRank(question->run, question->rank));
  for (const uint64_t number : done) sessions_.erase(number);
}

Result<RankPlace> Sessions::FindRank(const v1::RunId& id, uint32_t rank) const {
  const auto none = [&] {
    return Fail(ErrorCode::kFailedPrecondition, "rank {} of job {} does not run on node {} now", rank,
                id.job_id(), options_.node);
  };
  const Run* run = supervisor_->RunOf(id);
  if (run == nullptr || !run->dir() || !run->record()) return none();
  for (const auto& record : run->record()->ranks) {
    if (record.rank != rank || record.state != RankState::kRunning) continue;
    return RankPlace{.pid = static_cast<pid_t>(record.pid),
                     .start_time = record.start_time,
                     .name = fmt::format("rank {} of job {}", rank, id.job_id()),
                     .run_dir = run->dir()->path,
                     .figures_dir = FiguresOf(*run->dir(), run->spec())};
  }
  return none();
}

Result<RankPlace> Sessions::Ask(const v1::RunId& run, uint32_t rank) {
  auto question = std::make_unique<Question>();
  question->run = run;
  question->rank = rank;
  auto answer = question->answer.get_future();
  {
    const std::lock_guard lock(mutex_);
    if (closing_) return Fail(ErrorCode::kUnavailable, "the node's agent ends");
    questions_.push_back(std::move(question));
  }
  Wake();
  return answer.get();
}

Result<std::shared_ptr<grpc::Channel>> Sessions::Channel() {
  {
    const std::lock_guard lock(mutex_);
    if (auto channel = channel_.lock()) return channel;
  }
  IMGD_ASSIGN(auto channel, ChannelToImgd(options_.server, options_.node_key));
  const std::lock_guard lock(mutex_);
  channel_ = channel;
  return channel;
}

void Sessions::NoteDone(uint64_t number) {
  {
    const std::lock_guard lock(mutex_);
    done_.push_back(number);
  }
  Wake();
}

void Sessions::Wake() {
  const uint64_t one = 1;
  (void)!::write(wake_.get(), &one, sizeof one);
}

}  // namespace imgd
