#include <algorithm>

#include "server/engine/dataset_facts.h"
#include "server/engine/engine.h"

namespace imgd {

void Engine::ChangeDataset(DatasetOrder order, std::function<void(Result<DatasetAnswer>)> done) {
  if (Full()) {
    done(Fail(ErrorCode::kResourceExhausted, "too many requests wait already; try again"));
    return;
  }
  Push(DatasetInput{std::move(order), std::move(done)});
}

Result<DatasetAnswer> Engine::Change(DatasetOrder& order) {
  if (order.facts) return TakeFacts(order);
  auto& record = order.record;
  const auto known = datasets_.find(record.name);
  if (order.remove) {
    if (known == datasets_.end()) return Fail(ErrorCode::kNotFound, "there is no data set '{}'", record.name);
    datasets_.erase(known);
    state_.RemoveDataset(record.name);
    return DatasetAnswer{};
  }
  const bool same = known != datasets_.end() && known->second.address == record.address;
  if (known != datasets_.end() && !same && !order.replace) {
    return tl::unexpected(
        Error{.code = ErrorCode::kAlreadyExists,
              .message = fmt::format("name: '{}' stands for {} already", record.name, known->second.address),
              .hint = "imgcli dataset register --replace gives it the new address; jobs that were submitted "
                      "keep theirs"});
  }
  if (same && record.images == 0) {  // nobody looked this time
    record.images = known->second.images;
    record.classes = known->second.classes;
  }
  if (same) {
    record.made_by = known->second.made_by;
    record.progress = known->second.progress;
    record.described = known->second.described;
    record.verified = known->second.verified;
    record.broken = known->second.broken;
  } else {
    state_.RemoveDatasetFacts(record.name);
  }
  record.registered = now_.wall;
  datasets_[record.name] = record;
  state_.SaveDataset(record);
  return DatasetAnswer{.record = record, .existed = same};
}

std::optional<Error> Engine::RefusalOfSets(const SubmitOrder& order) const {
  for (const auto& set : order.unmade) {
    const auto known = datasets_.find(set.name);
    if (known != datasets_.end() && known->second.made_by == JobId()) continue;  // by now it is there
    const bool comes_after = std::any_of(
        order.submission.after.begin(), order.submission.after.end(),
        [&set](const auto& after) { return after.job == set.made_by && after.when == AfterEnd::kOk; });
    if (comes_after) continue;
    return Error{
        .code = ErrorCode::kFailedPrecondition,
        .message = fmt::format("{}: data set '{}' is still to be made by job {}, and this job does not come "
                               "after that one",
                               set.field, set.name, set.made_by),
        .hint = fmt::format("set after: [{}]", set.made_by)};
  }
  if (!order.makes) return std::nullopt;
  const auto known = datasets_.find(order.makes->name);
  if (known == datasets_.end()) return std::nullopt;
  const auto& [name, there] = *known;
  if (there.made_by != JobId()) {
    return Error{.code = ErrorCode::kAlreadyExists,
                 .message = fmt::format("convert.register: data set '{}' is to be made by job {} already",
                                        name, there.made_by)};
  }
  if (there.address == order.makes->address) return std::nullopt;
  return Error{.code = ErrorCode::kAlreadyExists,
               .message = fmt::format("convert.register: '{}' stands for {} already", name, there.address),
               .hint = "take another name, or imgcli dataset forget that one"};
}

/// The name is known from now on, so that jobs can be submitted that come after the conversion.
void Engine::Promise(DatasetRecord record, JobId maker) {
  if (datasets_.contains(record.name)) return;  // what is there is only made again
  record.registered = now_.wall;
  record.made_by = maker;
  view_urgent_ = true;
  state_.SaveDataset(record);
  datasets_[record.name] = std::move(record);
}

void Engine::SettlePromise(JobId maker, JobState ended) {
  for (auto& [name, set] : datasets_) {
    if (set.progress.empty() || ProgressOf(set).job_id() != maker.value()) continue;
    set.progress.clear();
    state_.SaveDataset(set);
    view_urgent_ = true;
  }
  const auto promised = std::find_if(datasets_.begin(), datasets_.end(),
                                     [maker](const auto& set) { return set.second.made_by == maker; });
  if (promised == datasets_.end()) return;
  view_urgent_ = true;
  if (ended == JobState::kCompleted) {
    promised->second.made_by = JobId();
    promised->second.registered = now_.wall;
    state_.SaveDataset(promised->second);
  } else {
    state_.RemoveDataset(promised->first);
    datasets_.erase(promised);
  }
}

void Engine::Handle(DatasetInput& input) {
  view_changed_ = view_urgent_ = true;
  auto answer = Change(input.order);
  done_.push_back([done = std::move(input.done), answer = std::move(answer)](const Status& status) {
    if (status) {
      done(answer);
    } else {
      done(tl::unexpected(status.error()));
    }
  });
}

}  // namespace imgd
