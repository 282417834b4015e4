#include <fmt/format.h>

#include <algorithm>

#include "server/engine/engine.h"

/// Prometheus' questions to agents that nobody but imgd reaches: they go by the agents' own streams. Nothing
/// of it is stored.
namespace imgd {
namespace {

/// One scrape a node at a time is the rule; a few Prometheus servers may ask at once.
constexpr size_t kMostScrapesOfNode = 4;

}  // namespace

void Engine::Scrape(NodeId node, Duration limit, std::function<void(Result<std::string>)> done) {
  if (Full()) {
    done(Fail(ErrorCode::kResourceExhausted, "too many requests wait already; try again"));
    return;
  }
  Push(ScrapeInput{std::move(node), limit, std::move(done)});
}

Result<uint64_t> Engine::SessionToScrape(const NodeId& name) const {
  const NodeRecord* node = reactor_.state().FindNode(name);
  if (node == nullptr) return Fail(ErrorCode::kNotFound, "there is no node {}", name);
  if (!node->Connected() || !links_.contains(node->session))
    return Fail(ErrorCode::kUnavailable, "the agent of node {} is not connected", name);
  if (!node->metrics_relayed) {
    return tl::unexpected(
        Error{.code = ErrorCode::kFailedPrecondition,
              .message = fmt::format("the agent of node {} does not show its metrics by imgd", name),
              .hint = "metrics_listen: relay in its agent.yaml"});
  }
  const auto waiting = std::ranges::count_if(
      scrapes_, [node](const auto& one) { return one.second.session == node->session; });
  if (static_cast<size_t>(waiting) >= kMostScrapesOfNode)
    return Fail(ErrorCode::kResourceExhausted, "the agent of node {} is asked {} times already", name,
                waiting);
  return node->session;
}

void Engine::Handle(ScrapeInput& input) {
  const auto session = SessionToScrape(input.node);
  if (!session) {
    input.done(tl::unexpected(session.error()));
    return;
  }
  const uint64_t number = ++last_scrape_;
  v1::ConnectResponse message;
  message.mutable_show_metrics()->set_number(number);
  SendToSession(*session, std::move(message));
  scrapes_.emplace(number, Scraping{.session = *session,
                                    .node = input.node,
                                    .deadline = now_.steady + input.limit,
                                    .done = std::move(input.done)});
}

void Engine::OnMetricsPage(const AgentInput& input) {
  const auto& page = input.message.metrics_page();
  const auto asked = scrapes_.find(page.number());
  if (asked == scrapes_.end() || asked->second.session != input.session) return;  // too late
  const auto done = std::move(asked->second.done);
  scrapes_.erase(asked);
  done(page.text());
}

template <typename Ends>
void Engine::EndScrapes(Ends ends, ErrorCode code, const char* why) {
  for (auto it = scrapes_.begin(); it != scrapes_.end();) {
    if (!ends(it->second)) {
      ++it;
      continue;
    }
    const Scraping ended = std::move(it->second);
    it = scrapes_.erase(it);
    ended.done(Fail(code, "the agent of node {} {}", ended.node, why));
  }
}

void Engine::ExpireScrapes() {
  EndScrapes([this](const Scraping& one) { return one.deadline <= now_.steady; },
             ErrorCode::kDeadlineExceeded, "was asked for its metrics and did not answer in time");
}

void Engine::EndScrapesOf(uint64_t session) {
  EndScrapes([session](const Scraping& one) { return one.session == session; }, ErrorCode::kUnavailable,
             "went away before it answered");
}

void Engine::EndAllScrapes() {
  EndScrapes([](const Scraping&) { return true; }, ErrorCode::kUnavailable,
             "was not waited for: the daemon is ending");
}

}  // namespace imgd
