#include "server/rpc/session_relay.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <future>
#include <utility>

#include "common/utf8.h"
#include "server/auth/tokens.h"
#include "server/core/explain.h"
#include "server/rpc/errors.h"
#include "server/rpc/limits.h"

namespace imgd {
namespace {

using namespace std::chrono_literals;

constexpr Duration kServePatience = 20s;  ///< for the agent to call
constexpr Duration kOpenPatience = 120s;  ///< for it to begin: TensorBoard loads for long
constexpr Duration kLookForOverdue = 1s;
constexpr size_t kMostOfBefore = 10'000;  ///< events that are looked through for sessions without an end
constexpr size_t kMostConnections = 128;  ///< of one session that forwards

grpc::Status StatusOf(ErrorCode code, std::string message, std::string hint = "") {
  return ToStatus({.code = code, .message = std::move(message), .hint = std::move(hint)});
}

}  // namespace

SessionRelay::SessionRelay(Engine* engine) : engine_(engine), watcher_([this] { Watch(); }) {}

SessionRelay::~SessionRelay() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
    changed_.notify_all();
  }
  watcher_.join();
}

void SessionRelay::SetRules(SessionRules rules) {
  const std::lock_guard lock(mutex_);
  rules_ = rules;
}

SessionRelay::Session* SessionRelay::Find(uint64_t number) {
  const auto found = sessions_.find(number);
  return found == sessions_.end() || found->second.phase == Phase::kOver ? nullptr : &found->second;
}

// --- the person's side ---

uint64_t SessionRelay::AddPerson(std::shared_ptr<PersonPort> port, std::string token_owner) {
  const std::lock_guard lock(mutex_);
  Session& session = sessions_[++last_number_];
  session.person = std::move(port);
  session.actor = std::move(token_owner);
  session.begun = session.heard = std::chrono::steady_clock::now();
  session.deadline = session.begun + kServePatience;  // it has to say what it wants
  changed_.notify_all();
  return last_number_;
}

void SessionRelay::OnPersonMessage(uint64_t number, v1::OpenSessionRequest message) {
  Lock lock(mutex_);
  Session* session = Find(number);
  if (session == nullptr) return;
  if (session->phase == Phase::kNew) {
    const Status admitted = Admit(message, *session);
    lock.unlock();
    if (!admitted) return Refuse(number, admitted.error());
    return Begin(number, message.begin());
  }
  if (session->phase != Phase::kOpen || !message.has_frame() || message.frame().has_end()) {
    lock.unlock();
    return Refuse(number, {.code = ErrorCode::kInvalidArgument, .message = "a frame of input was expected"});
  }
  if (const auto good = CheckLimits(message.frame()); !good) {
    lock.unlock();
    return Refuse(number, good.error());
  }
  session->heard = std::chrono::steady_clock::now();
  if (Session* parent = Find(session->parent)) parent->heard = session->heard;
  const auto agent = session->agent;
  const auto person = session->person;
  lock.unlock();
  v1::ServeSessionResponse out;
  *out.mutable_frame() = std::move(*message.mutable_frame());
  agent->Send(std::move(out), [person] { person->ReadNext(); });
}

Status SessionRelay::Admit(const v1::OpenSessionRequest& message, Session& session) {
  if (closed_) return Fail(ErrorCode::kUnavailable, "imgd is stopping");
  if (!rules_.allowed) {
    return tl::unexpected(Error{.code = ErrorCode::kFailedPrecondition,
                                .message = "sessions on nodes are not allowed here",
                                .hint = "whoever runs imgd allows them: shell: true in imgd.yaml"});
  }
  if (!message.has_begin()) return Fail(ErrorCode::kInvalidArgument, "begin: missing; it comes first");
  const auto& begin = message.begin();
  IMGD_TRY(CheckLimits(begin));
  if (session.actor.empty()) session.actor = begin.actor().empty() ? "unknown" : begin.actor();
  IMGD_ASSIGN(session.id, NewSecret());
  if (begin.has_parent()) return AdmitChild(begin.parent(), session);
  if (begin.has_command()) *session.task.mutable_command() = begin.command();
  if (begin.has_forward()) *session.task.mutable_forward() = begin.forward();
  if (begin.has_node()) session.node = NodeId(begin.node());
  if (begin.has_rank()) {
    session.job = JobId(begin.rank().job_id());
    session.task.set_rank(begin.rank().rank());
    session.task.mutable_run()->set_job_id(begin.rank().job_id());
  }
  session.what = WhatOf(begin);
  return {};
}

Status SessionRelay::AdmitChild(const std::string& id, Session& session) {
  size_t siblings = 0;
  uint64_t number = 0;
  for (const auto& [other, candidate] : sessions_) {
    if (candidate.phase == Phase::kOpen && candidate.id == id && candidate.port != 0) number = other;
  }
  const Session* parent = Find(number);
  if (parent == nullptr) return Fail(ErrorCode::kNotFound, "the session that forwards is over");
  for (const auto& [other, candidate] : sessions_) siblings += candidate.parent == number ? 1 : 0;
  if (siblings >= kMostConnections) {
    return Fail(ErrorCode::kResourceExhausted, "no more than {} connections are forwarded at once",
                kMostConnections);
  }
  session.parent = number;
  session.node = parent->node;
  session.task.set_connect_port(parent->port);
  return {};
}

void SessionRelay::Begin(uint64_t number, const v1::SessionBegin& begin) {
  if (begin.has_parent()) return AskNode(number);
  if (begin.has_rank()) {
    engine_->FindRank(JobId(begin.rank().job_id()), begin.rank().rank(),
                      [this, number](const Result<RankSite>& site) { OnPlace(number, site); });
    return;
  }
  const auto view = engine_->View();
  const bool known = std::any_of(view->nodes.begin(), view->nodes.end(),
                                 [&](const NodeRecord& node) { return node.id.name() == begin.node(); });
  if (!known)
    return Refuse(number, {.code = ErrorCode::kNotFound, .message = "there is no node " + begin.node()});
  Record(number);
}

void SessionRelay::OnPlace(uint64_t number, const Result<RankSite>& site) {
  if (!site) return Refuse(number, site.error());
  {
    const std::lock_guard lock(mutex_);
    Session* session = Find(number);
    if (session == nullptr) return;
    session->node = site->node;
    session->task.mutable_run()->set_generation(site->generation.value());
  }
  Record(number);
}

/// Before anything of it happens.
void SessionRelay::Record(uint64_t number) {
  Lock lock(mutex_);
  Session* session = Find(number);
  if (session == nullptr) return;
  const auto view = engine_->View();
  const bool reached = std::any_of(view->nodes.begin(), view->nodes.end(), [&](const NodeRecord& node) {
    return node.id == session->node && node.Connected();
  });
  if (!reached) {  // nothing begins, and so there is nothing to record
    const NodeId node = session->node;
    lock.unlock();
    return Refuse(number,
                  {.code = ErrorCode::kUnavailable, .message = fmt::format("node {} is out of reach", node)});
  }
  const auto there = std::count_if(sessions_.begin(), sessions_.end(), [&](const auto& other) {
    return other.second.recorded && other.second.phase != Phase::kOver && other.second.node == session->node;
  });
  if (there >= static_cast<int64_t>(rules_.most_per_node)) {
    const Error why{
        .code = ErrorCode::kResourceExhausted,
        .message = fmt::format("node {} has {} sessions already, and may have no more", session->node, there),
        .hint = "shell_sessions_per_node in imgd.yaml"};
    lock.unlock();
    return Refuse(number, why);
  }
  session->recorded = true;
  imgd::AppendDecision note{.job = session->job,
                            .node = session->node,
                            .reason = {ReasonCode::kSessionBegun, NoteOf(*session).Begun()},
                            .actor = fmt::format("user:{}", session->actor),
                            .time = {}};
  lock.unlock();
  engine_->Note(std::move(note), [this, number](const Status& status) {
    if (!status) return Refuse(number, status.error());
    AskNode(number);
  });
}

void SessionRelay::AskNode(uint64_t number) {
  Lock lock(mutex_);
  Session* session = Find(number);
  if (session == nullptr) return;
  session->phase = Phase::kAsked;
  session->deadline = std::chrono::steady_clock::now() + kServePatience;
  v1::ConnectResponse message;
  message.mutable_open_session()->set_id(session->id);
  const NodeId node = session->node;
  lock.unlock();
  engine_->Tell(node, std::move(message), [this, number](const Result<std::string>& told) {
    if (!told) Refuse(number, told.error());
  });
}

void SessionRelay::Refuse(uint64_t number, const Error& why) {
  Finish(Lock(mutex_), number, ToStatus(why), why.message);
}

void SessionRelay::OnPersonGone(uint64_t number) {
  Finish(Lock(mutex_), number, grpc::Status::CANCELLED, "its person has gone");
  std::vector<uint64_t> children;
  {
    const std::lock_guard lock(mutex_);
    sessions_.erase(number);
    for (const auto& [other, session] : sessions_) {
      if (session.parent == number) children.push_back(other);
    }
  }
  for (const uint64_t child : children)
    Refuse(child, {.code = ErrorCode::kCancelled, .message = "the session that forwards is over"});
}

// --- the agent's side ---

uint64_t SessionRelay::AddNode(std::shared_ptr<NodePort> port, std::string node) {
  const std::lock_guard lock(mutex_);
  nodes_[++last_number_] = {.port = std::move(port), .name = std::move(node)};
  return last_number_;
}

void SessionRelay::OnNodeMessage(uint64_t agent_number, v1::ServeSessionRequest message) {
  uint64_t number = 0;
  {
    const std::lock_guard lock(mutex_);
    const auto node = nodes_.find(agent_number);
    if (node == nodes_.end()) return;
    number = node->second.session;
  }
  if (number == 0) return Attach(agent_number, message.id());
  if (message.has_opened()) return OnOpened(number, std::move(*message.mutable_opened()));
  if (message.has_frame()) return OnNodeFrame(number, std::move(*message.mutable_frame()));
}

void SessionRelay::Attach(uint64_t agent_number, const std::string& id) {
  Lock lock(mutex_);
  Node& node = nodes_[agent_number];
  const auto found = std::find_if(sessions_.begin(), sessions_.end(), [&](const auto& session) {
    return session.second.phase == Phase::kAsked && session.second.id == id;
  });
  const bool right = found != sessions_.end() && !id.empty() &&
                     (node.name.empty() || node.name == found->second.node.name());
  const auto port = node.port;
  if (!right) {
    lock.unlock();
    port->End(StatusOf(ErrorCode::kNotFound, "there is no such session"));
    return;
  }
  Session& session = found->second;
  node.session = found->first;
  session.phase = Phase::kServed;
  session.agent = port;
  session.agent_number = agent_number;
  session.deadline = std::chrono::steady_clock::now() + kOpenPatience;
  v1::ServeSessionResponse response;
  *response.mutable_task() = session.task;
  lock.unlock();
  port->Send(std::move(response), {});
  port->ReadNext();
}

void SessionRelay::OnOpened(uint64_t number, v1::SessionOpened opened) {
  Lock lock(mutex_);
  Session* session = Find(number);
  if (session == nullptr || session->phase != Phase::kServed) return;
  session->phase = Phase::kOpen;
  session->heard = std::chrono::steady_clock::now();
  session->port = opened.port();
  opened.set_id(session->id);
  opened.set_node(session->node.name());
  opened.set_generation(session->task.run().generation());
  const auto person = session->person;
  const auto agent = session->agent;
  lock.unlock();
  v1::OpenSessionResponse response;
  *response.mutable_opened() = std::move(opened);
  person->Send(std::move(response), [agent] { agent->ReadNext(); });
  person->ReadNext();
}

void SessionRelay::OnNodeFrame(uint64_t number, v1::SessionFrame frame) {
  if (frame.has_end()) return OnEnd(number, std::move(*frame.mutable_end()));
  Lock lock(mutex_);
  Session* session = Find(number);
  if (session == nullptr || session->phase != Phase::kOpen) return;
  const auto person = session->person;
  const auto agent = session->agent;
  if (frame.frame_case() == v1::SessionFrame::FRAME_NOT_SET) {  // it asks whether we are still there
    lock.unlock();
    agent->ReadNext();
    return;
  }
  if (const auto good = CheckLimits(frame); !good) {
    lock.unlock();
    return Refuse(number, good.error());
  }
  session->heard = std::chrono::steady_clock::now();
  if (Session* parent = Find(session->parent)) parent->heard = session->heard;
  lock.unlock();
  v1::OpenSessionResponse response;
  *response.mutable_frame() = std::move(frame);
  person->Send(std::move(response), [agent] { agent->ReadNext(); });
}

void SessionRelay::OnEnd(uint64_t number, v1::SessionEnd end) {
  Lock lock(mutex_);
  Session* session = Find(number);
  if (session == nullptr) return;
  if (session->phase != Phase::kOpen) {
    lock.unlock();
    return Refuse(number, {.code = ErrorCode::kFailedPrecondition, .message = ToUtf8(end.error())});
  }
  const auto person = session->person;
  const std::string how = HowOf(end);
  v1::OpenSessionResponse response;
  *response.mutable_frame()->mutable_end() = std::move(end);
  person->Send(std::move(response), {});
  Finish(std::move(lock), number, grpc::Status::OK, how);
}

void SessionRelay::OnNodeGone(uint64_t agent_number) {
  Lock lock(mutex_);
  const auto node = nodes_.find(agent_number);
  if (node == nodes_.end()) return;
  const uint64_t number = node->second.session;
  nodes_.erase(node);
  const Session* session = Find(number);
  if (session == nullptr) return;
  const std::string how =
      fmt::format("the agent of node {} has gone, and with it what ran there for you", session->node);
  Finish(std::move(lock), number, StatusOf(ErrorCode::kUnavailable, how), "the node's agent has gone");
}

// --- the end ---

void SessionRelay::Finish(Lock lock, uint64_t number, const grpc::Status& status, const std::string& how) {
  Session* session = Find(number);
  if (session == nullptr) return;
  session->phase = Phase::kOver;
  if (session->recorded) RecordEnd(*session, how);
  const auto person = session->person;
  const auto agent = session->agent;
  if (const auto node = nodes_.find(session->agent_number); node != nodes_.end()) nodes_.erase(node);
  lock.unlock();
  if (agent != nullptr) agent->Break();
  person->End(status);
}

SessionNote SessionRelay::NoteOf(const Session& session) {
  return {.job = session.job, .node = session.node, .actor = session.actor, .what = session.what};
}

void SessionRelay::EndThoseOfBefore(ReadPool& pool) {
  std::promise<std::vector<StoredDecision>> read;
  pool.Post([&read](Reader& reader) {
    auto found = reader.Decisions(
        {.last = INT64_MAX, .job = JobId(), .node = "", .most = kMostOfBefore, .newest = true});
    read.set_value(found ? std::move(*found) : std::vector<StoredDecision>{});
  });
  for (const auto& open : LeftOpen(read.get_future().get())) {
    engine_->Note({.job = open.job,
                   .node = open.node,
                   .reason = {ReasonCode::kSessionEnded, open.Over() + ": imgd was ended while it went on"},
                   .actor = fmt::format("user:{}", open.actor),
                   .time = {}},
                  [](const Status&) {});
  }
}

void SessionRelay::RecordEnd(const Session& session, const std::string& how) {
  const Duration took = std::chrono::steady_clock::now() - session.begun;
  engine_->Note({.job = session.job,
                 .node = session.node,
                 .reason = {ReasonCode::kSessionEnded,
                            fmt::format("{} after {}: {}", NoteOf(session).Over(), TimeText(took), how)},
                 .actor = fmt::format("user:{}", session.actor),
                 .time = {}},
                [](const Status&) {});
}

void SessionRelay::Close() {
  std::vector<uint64_t> open;
  {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    for (const auto& [number, session] : sessions_) open.push_back(number);
  }
  for (const uint64_t number : open)
    Refuse(number, {.code = ErrorCode::kUnavailable, .message = "imgd stops, and the session with it"});
}

void SessionRelay::Watch() {
  Lock lock(mutex_);
  while (!ends_) {
    changed_.wait(lock, [this] { return ends_ || !sessions_.empty(); });
    if (changed_.wait_for(lock, kLookForOverdue, [this] { return ends_; })) return;
    lock.unlock();
    EndOverdue(std::chrono::steady_clock::now());
    lock.lock();
  }
}

void SessionRelay::EndOverdue(Instant now) {
  std::vector<std::pair<uint64_t, Error>> overdue;
  const auto admissions = engine_->View()->admissions;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [number, session] : sessions_) {
      const auto agent = nodes_.find(session.agent_number);
      const auto key =
          agent == nodes_.end() ? admissions->nodes.end() : admissions->nodes.find(agent->second.name);
      if (key != admissions->nodes.end() && key->second.revoked) {
        overdue.push_back(
            {number,
             {.code = ErrorCode::kPermissionDenied,
              .message = fmt::format("node {} was revoked: the session is ended", session.node)}});
        continue;
      }
      const bool waits = session.phase != Phase::kOpen && session.phase != Phase::kOver;
      const bool idles = session.phase == Phase::kOpen && session.parent == 0 &&
                         rules_.idle_limit > Duration::zero() && now - session.heard > rules_.idle_limit;
      if (waits && now > session.deadline) {
        overdue.push_back({number,
                           {.code = ErrorCode::kUnavailable,
                            .message = fmt::format("node {} did not answer in time", session.node),
                            .hint = "is its agent older than imgd?"}});
      } else if (idles) {
        overdue.push_back(
            {number,
             {.code = ErrorCode::kFailedPrecondition,
              .message = fmt::format("nothing was typed or printed for {}: the session is ended",
                                     TimeText(rules_.idle_limit)),
              .hint = "shell_idle_limit in imgd.yaml"}});
      }
    }
  }
  for (const auto& [number, why] : overdue) Refuse(number, why);
}

}  // namespace imgd
