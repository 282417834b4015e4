#include <spdlog/spdlog.h>

#include "server/engine/engine.h"

/// What is recorded, or told to an agent, while no job and no node changes.
namespace imgd {

void Engine::Note(imgd::AppendDecision note, std::function<void(Status)> done) {
  PushOrRefuse<NoteInput>(std::move(note), std::move(done));
}

void Engine::Tell(NodeId node, v1::ConnectResponse message, std::function<void(Result<std::string>)> done) {
  PushOrRefuse<TellInput>(TellOrder{std::move(node), std::move(message)}, std::move(done));
}

void Engine::FindRank(JobId job, uint32_t rank, std::function<void(Result<RankSite>)> done) {
  PushOrRefuse<RankInput>(RankOrder{job, rank}, std::move(done));
}

void Engine::Handle(RankInput& input) {
  AnswerLater<RankSite>(std::move(input.done), [&]() -> Result<RankSite> {
    IMGD_ASSIGN(const JobRecord* const job, RunningJob(input.order.job));
    return SiteOf(*job, input.order.rank);
  }());
}

void Engine::Handle(NoteInput& input) {
  auto& note = input.order;
  if (!note.reason.text.empty()) {
    note.time = now_.wall;
    AppendDecision(note);
    spdlog::info("{}actor=\"{}\" msg=\"{}\"",
                 note.node.name().empty() ? "" : fmt::format("node={} ", note.node), note.actor,
                 note.reason.text);
  }
  done_.push_back([done = std::move(input.done)](const Status& status) {
    if (done) done(status);
  });
}

void Engine::Handle(TellInput& input) {
  auto& [node, message] = input.order;
  AnswerLater<std::string>(std::move(input.done), [&]() -> Result<std::string> {
    const NodeRecord* known = reactor_.state().FindNode(node);
    if (known == nullptr) return Fail(ErrorCode::kNotFound, "there is no node {}", node);
    if (!known->Connected()) return Fail(ErrorCode::kUnavailable, "node {} is out of reach", node);
    SendToSession(known->session, std::move(message));
    return known->agent_version;
  }());
}

}  // namespace imgd
