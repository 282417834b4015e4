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
    for (const auto& id : removed) settled_.erase(id);
    notices_pending_ -= std::min(notices_pending_, removed.size());
  });
}

void Engine::TellPeople(const AppendEvent& event, uint64_t number) {
  const NotifyConfig& config = settings_.notifications;
  const auto what = NoticeEventOf(event);
  const JobRecord* job = reactor_.state().FindJob(event.job);
  if (!what || job == nullptr || config.targets.empty() || !notice_sink_.add) return;
  const auto own = OrFail(state_.NotifyOf(event.job));
  for (const auto& target : TargetsOf(config, own, *job, *what)) {
    if (notices_pending_ + notices_new_ >= static_cast<size_t>(config.most_pending)) {
      spdlog::error("job={} target={} msg=\"not told that it {}: {} notifications wait already\"", event.job,
                    target, NameOf(*what), notices_pending_);
      notice_sink_.dropped(target);
      continue;
    }
    Notification notice = MakeNotice(config, cluster_id_, *job, event, number, target);
    state_.SaveNotice(notice);
    ++notices_new_;
    done_.push_back([this, notice = std::move(notice)](const Status& status) mutable {
      --notices_new_;
      if (!status) return;
      ++notices_pending_;
      notice_sink_.add(std::move(notice));
    });
  }
}

}  // namespace imgd
