#include <spdlog/spdlog.h>

#include "server/engine/engine.h"
#include "server/notify/notices.h"

/// What people are told of jobs: written with the change that it tells of, handed over once that is stored.
namespace imgd {

void Engine::TellBy(NoticeSink sink) {
  notice_sink_ = std::move(sink);
  for (auto& notice : std::exchange(notices_left_, {})) notice_sink_.add(std::move(notice));
}

void Engine::OnSettled(std::vector<std::string> notices) { Push(SettledInput{std::move(notices)}); }

void Engine::Handle(SettledInput& input) { settled_.insert(input.notices.begin(), input.notices.end()); }

/// Until they are gone for good: a commit may fail.
void Engine::RemoveSettled() {
  for (const auto& id : settled_) state_.RemoveNotice(id);
  if (settled_.empty()) return;
  done_.push_back([this, removed = settled_](const Status& status) {
    if (!status) return;
    for (const auto& id : removed) {
      settled_.erase(id);
      for (auto& [target, waiting] : notices_waiting_) waiting.erase(id);
    }
  });
}

void Engine::TellPeople(const AppendEvent& event, uint64_t number) {
  const NotifyConfig& config = settings_.notifications;
  const auto what = NoticeEventOf(event);
  const JobRecord* job = reactor_.state().FindJob(event.job);
  if (!what || job == nullptr || config.targets.empty() || !notice_sink_.add) return;
  const auto own = OrFail(state_.NotifyOf(event.job));
  for (const auto& target : TargetsOf(config, own, *job, *what)) {
    auto& waiting = notices_waiting_[target];
    if (waiting.size() >= static_cast<size_t>(config.most_pending)) {
      spdlog::error("job={} target={} msg=\"not told that it {}: {} notifications wait for it already\"",
                    event.job, target, NameOf(*what), waiting.size());
      notice_sink_.dropped(target);
      continue;
    }
    Notification notice = MakeNotice(config, cluster_id_, *job, event, number, target);
    if (!waiting.insert(notice.id).second) continue;  // two of the rules name the target
    state_.SaveNotice(notice);
    done_.push_back([this, notice = std::move(notice)](const Status& status) mutable {
      if (status) {
        notice_sink_.add(std::move(notice));
      } else {
        notices_waiting_[notice.target].erase(notice.id);
      }
    });
  }
}

}  // namespace imgd
