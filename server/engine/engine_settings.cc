#include <spdlog/spdlog.h>

#include "server/engine/engine.h"

/// What somebody does to imgd itself while it runs.
namespace imgd {

void Engine::ChangeSettings(SettingsOrder order, std::function<void(Status)> done) {
  PushOrRefuse<SettingsInput>(std::move(order), std::move(done));
}

void Engine::NoteAdministered(std::string actor, std::string text, std::function<void(Status)> done) {
  Note({.reason = {ReasonCode::kAdministered, std::move(text)}, .actor = std::move(actor)}, std::move(done));
}

void Engine::Handle(SettingsInput& input) {
  EngineSettings& fresh = input.order.settings;
  fresh.state_dir = settings_.state_dir;
  fresh.log_kept_bytes = settings_.log_kept_bytes;
  fresh.core.heartbeat = settings_.core.heartbeat;
  fresh.tick = settings_.tick;
  fresh.version = settings_.version;
  fresh.on_tick = settings_.on_tick;
  if (!stored_settings_) stored_settings_ = std::move(settings_);
  UseSettings(std::move(fresh));
  done_.push_back([this](const Status& status) {
    auto before = std::exchange(stored_settings_, std::nullopt);
    if (before && !status) UseSettings(std::move(*before));
  });
  NoteInput note{{.reason = {ReasonCode::kAdministered, std::move(input.order.text)},
                  .actor = std::move(input.order.actor)},
                 std::move(input.done)};
  view_changed_ = view_urgent_ = true;
  Handle(note);
}

void Engine::UseSettings(EngineSettings settings) {
  settings_ = std::move(settings);
  log_matcher_ = std::make_unique<LogMatcher>(settings_.log_patterns);
  quotas_ = std::make_shared<const Quotas>(settings_.core.quotas);
  reactor_.SetSettings(settings_.core);
  trim_at_ = remove_at_ = {};
}

}  // namespace imgd
