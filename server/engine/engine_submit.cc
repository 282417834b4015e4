#include <algorithm>
#include <charconv>
#include <set>

#include "server/engine/engine.h"
#include "server/notify/notices.h"

/// Submitting jobs and sweeps, and ending them.
namespace imgd {

void Engine::Submit(SubmitOrder order, std::function<void(Result<SubmitAnswer>)> done) {
  PushOrRefuse<SubmitInput>(std::move(order), std::move(done));
}

void Engine::Cancel(JobId job, bool checkpoint_first, std::string actor, std::function<void(Status)> done) {
  if (Full()) {
    done(Fail(ErrorCode::kResourceExhausted, "too many requests wait already; try again"));
    return;
  }
  Push(CancelInput{job, checkpoint_first, std::move(actor), std::move(done)});
}

void Engine::CancelSweep(JobId sweep, bool checkpoint_first, std::string actor,
                         std::function<void(Result<uint32_t>)> done) {
  if (Full()) {
    done(Fail(ErrorCode::kResourceExhausted, "too many requests wait already; try again"));
    return;
  }
  Push(SweepCancelInput{sweep, checkpoint_first, std::move(actor), std::move(done)});
}

bool Engine::IsStoredFile(JobId job, const std::string& yaml) {
  std::string file = OrFail(state_.SweepFile(job));
  if (file.empty()) file = OrFail(state_.JobFile(job));
  return file == yaml;
}

std::optional<Error> Engine::OtherContent(const KeyRecord& known, const std::string& key,
                                          const std::string& content, const std::string& yaml,
                                          const std::string& owner) {
  const JobId job = known.job;
  // One that came just before is not in the database yet; one that ended is no longer in memory.
  std::optional<JobRecord> first;
  if (const JobRecord* record = reactor_.state().FindJob(job)) {
    first = *record;
  } else {
    first = OrFail(state_.FindJob(job));
  }
  const bool other_file = known.content.empty() ? !IsStoredFile(job, yaml) : known.content != content;
  if (failed_ || !first || (!other_file && first->owner == owner)) return std::nullopt;
  return Error{.code = ErrorCode::kAlreadyExists,
               .message = fmt::format(
                   "idempotency_key: '{}' belongs to job {} ({}), which was submitted with another {}", key,
                   job, first->name, other_file ? "job file" : "owner"),
               .hint = "take a new key for a new job"};
}

/// One that came just before is not in the database yet.
std::optional<JobId> Engine::NewestNamed(const std::string& name, const std::string& owner) {
  auto newest = OrFail(state_.NewestJobNamed(name, owner));
  for (const JobId id : reactor_.state().TouchedJobs()) {
    const JobRecord& job = *reactor_.state().FindJob(id);
    if (job.name == name && job.owner == owner) newest = std::max(newest, std::optional(id));
  }
  return newest;
}

/// Has it in memory, also where it ended so long ago that only the database knows; false where there is none.
bool Engine::Recall(JobId id) {
  if (reactor_.state().FindJob(id) != nullptr) return true;
  auto stored = OrFail(state_.FindJob(id));
  if (!stored) return false;
  reactor_.Recall(std::move(*stored));
  return true;
}

/// The newest job of this name, or all that are left of the newest sweep where that is newer.
Result<std::vector<JobId>> Engine::FindByName(const std::string& name, const std::string& owner) {
  constexpr uint32_t kMost = 1000;
  const auto job = NewestNamed(name, owner);
  const auto first = OrFail(state_.NewestSweepNamed(name, owner));
  if (first && first > job) {
    const SweepRecord* known = reactor_.state().FindSweep(*first);
    const auto sweep = known != nullptr ? std::optional(*known) : OrFail(state_.FindSweep(*first));
    if (sweep && sweep->members > kMost) {
      return Fail(ErrorCode::kInvalidArgument,
                  "after: sweep {} ({}) has {} jobs; those of a sweep with at most {} can be waited for",
                  sweep->id, name, sweep->members, kMost);
    }
    std::vector<JobId> members;
    for (uint32_t i = 0; sweep && i < sweep->members; ++i) {
      if (Recall(sweep->Member(i))) members.push_back(sweep->Member(i));
    }
    if (!members.empty()) return members;
  }
  if (job) return std::vector{*job};
  Error error{.code = ErrorCode::kNotFound,
              .message = fmt::format("after: {} has no job or sweep named '{}'", owner, name),
              .hint = "imgcli jobs shows what there is"};
  if (const auto others = OrFail(state_.NewestJobNamed(name, "")))
    error.hint = fmt::format("somebody else's job {} is called so; name it by its number", *others);
  return tl::unexpected(std::move(error));
}

Result<std::vector<Dependency>> Engine::FindAfter(const std::vector<AfterOrder>& wanted,
                                                  const std::string& owner) {
  std::vector<Dependency> out;
  std::set<JobId> named;
  for (const auto& [name, when] : wanted) {
    uint64_t number = 0;
    const char* end = name.data() + name.size();
    const auto parsed = std::from_chars(name.data(), end, number);
    std::vector<JobId> ids{JobId(number)};
    if (parsed.ec != std::errc() || parsed.ptr != end) {
      IMGD_ASSIGN(ids, FindByName(name, owner));
    }
    for (const JobId id : ids) {
      if (!Recall(id)) return Fail(ErrorCode::kNotFound, "after: there is no job {}", name);
      if (!named.insert(id).second)
        return Fail(ErrorCode::kInvalidArgument, "after: job {} is named twice; once is allowed", id);
      const JobRecord& job = *reactor_.state().FindJob(id);
      const auto ended = IsFinal(job.state) ? std::optional(job.state) : std::nullopt;
      out.push_back({.job = id, .name = job.name, .when = when, .ended = ended});
    }
  }
  return out;
}

std::optional<Error> Engine::Refusal(SubmitOrder& order) {
  if (order.refusal) return order.refusal;
  if (order.submission.rerun_of != JobId()) {
    if (auto refusal = CheckRerun(order.submission)) return refusal;
  }
  auto after = FindAfter(order.after, order.submission.owner);
  if (!after) return after.error();
  order.submission.after = *after;
  const std::vector<Submission> none;
  const auto& members = order.sweep ? order.sweep->submission.members : none;
  if (const auto may = reactor_.MaySubmit(order.submission, members); !may) return may.error();
  if (order.sweep) {
    for (auto& member : order.sweep->submission.members) member.after = *after;
  }
  return RefusalOfSets(order);
}

SubmitAnswer Engine::Store(SubmitOrder& order) {
  SubmitAnswer answer;
  Actions actions;
  const auto store_file = [this, &order](JobId job, const std::string& yaml) {
    event_numbers_.emplace(job, 0);  // a new job has none in either file
    state_.SaveJobFile(job, yaml);
    if (order.notify) state_.SaveNotify(job, EncodeRules(*order.notify));
  };
  if (order.sweep) {
    answer.job = reactor_.OnSubmitSweep(order.sweep->submission, now_, actions);
    answer.sweep = *reactor_.state().FindSweep(answer.job);
    state_.SaveSweep(*answer.sweep, order.yaml);
    for (uint32_t i = 0; i < answer.sweep->members; ++i)
      store_file(answer.sweep->Member(i), order.sweep->files[i]);
  } else {
    answer.job = reactor_.OnSubmit(order.submission, now_, actions);
    store_file(answer.job, order.yaml);
  }
  if (order.makes) Promise(*order.makes, answer.job);
  if (!order.idempotency_key.empty())
    state_.SaveKey(order.idempotency_key, {.job = answer.job, .content = order.content});
  Record(actions);
  return answer;
}

void Engine::Handle(SubmitInput& input) {
  view_changed_ = true;
  auto& order = input.order;
  std::optional<KeyRecord> known;
  if (!order.idempotency_key.empty() && !order.dry_run) known = OrFail(state_.FindKey(order.idempotency_key));
  auto refusal =
      known ? OtherContent(*known, order.idempotency_key, order.content, order.yaml, order.submission.owner)
            : Refusal(order);
  if (refusal) {
    done_.push_back([done = std::move(input.done), refusal = std::move(*refusal)](const Status&) {
      done(tl::unexpected(refusal));
    });
    return;
  }
  SubmitAnswer answer{.job = known ? known->job : JobId(), .existed = known.has_value()};
  if (order.dry_run) {
    answer.name = order.sweep ? order.sweep->submission.members.front().name : order.submission.name;
    answer.after = order.submission.after;
  } else if (!known) {
    answer = Store(order);
  }
  done_.push_back([this, done = std::move(input.done), answer](const Status& status) mutable {
    if (!status) {
      done(tl::unexpected(status.error()));
      return;
    }
    const JobRecord* record = answer.existed ? nullptr : reactor_.state().FindJob(answer.job);
    if (record != nullptr) {
      answer.record = *record;
      answer.last_event = event_numbers_.at(answer.job);
    }
    done(std::move(answer));
  });
}

void Engine::Handle(CancelInput& input) {
  view_changed_ = true;
  Actions actions;
  Status result = reactor_.OnCancel(input.job, input.checkpoint_first, input.actor, now_, actions);
  if (!result && result.error().code == ErrorCode::kNotFound) {
    // It may have ended too long ago to be remembered here.
    const auto stored = OrFail(state_.FindJob(input.job));
    if (stored && stored->state == JobState::kCancelled) {
      result = {};
    } else if (stored) {
      result = Fail(ErrorCode::kFailedPrecondition, "job {} cannot be cancelled: it has ended already ({})",
                    input.job, NameOf(stored->state));
    }
  }
  Record(actions);
  done_.push_back(
      [done = std::move(input.done), result](const Status& status) { done(status ? result : status); });
}

Result<bool> Engine::CancelSome(SweepCancelInput& input, Actions& actions) {
  constexpr uint32_t kAtOnce = 500;
  const SweepRecord* sweep = reactor_.state().FindSweep(input.sweep);
  if (sweep == nullptr) {
    // It is forgotten when the last of its jobs has ended.
    if (input.next > 0 || !OrFail(state_.SweepFile(input.sweep)).empty()) return false;
    return tl::unexpected(Error{.code = ErrorCode::kNotFound,
                                .message = fmt::format("there is no sweep {}", input.sweep),
                                .hint = "a sweep has the number of its first job"});
  }
  const uint32_t end = std::min(input.next + kAtOnce, sweep->members);
  // From the last one on: else those that wait would start in place of those that are cancelled first.
  for (; input.next < end; ++input.next) {
    const JobRecord* job = reactor_.state().FindJob(sweep->Member(sweep->members - 1 - input.next));
    if (job == nullptr || IsFinal(job->state)) continue;
    if (reactor_.OnCancel(job->id, input.checkpoint_first, input.actor, now_, actions)) ++input.cancelled;
  }
  return end < sweep->members;
}

void Engine::Handle(SweepCancelInput& input) {
  view_changed_ = true;
  Actions actions;
  const auto more = CancelSome(input, actions);
  Record(actions);
  if (more && *more) {
    done_.push_back([this, input = std::move(input)](const Status& status) mutable {
      if (status) {
        Push(std::move(input));
      } else {
        input.done(tl::unexpected(status.error()));
      }
    });
    return;
  }
  AnswerLater<uint32_t>(std::move(input.done),
                        more ? Result<uint32_t>(input.cancelled) : tl::unexpected(more.error()));
}

}  // namespace imgd
