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
  record.registered = now_.wall;
  datasets_[record.name] = record;
  state_.SaveDataset(record);
  return DatasetAnswer{.record = record, .existed = same};
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
