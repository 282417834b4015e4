#include "trainer/loop/run_state.h"

#include <nlohmann/json.hpp>

#include "trainer/loop/sha256.h"

namespace imgd::trainer {
namespace {
using Json = nlohmann::ordered_json;
constexpr int kFormat = 1;
}  // namespace

std::string ToJson(const RunState& state) {
  const Json json = {{"format", kFormat},
                     {"step", state.step},
                     {"epoch", state.epoch},
                     {"validated_epochs", state.validated_epochs},
                     {"seed", state.seed},
                     {"world_size", state.world_size},
                     {"generation", state.generation},
                     {"global_batch", state.global_batch},
                     {"train_images", state.train_images},
                     {"model", state.model},
                     {"job_digest", state.job_digest},
                     {"loss_scale", state.loss_scale},
                     {"loss_scale_streak", state.loss_scale_streak},
                     {"last_loss", state.last_loss},
                     {"val_loss", state.val_loss},
                     {"val_top1", state.val_top1},
                     {"val_top5", state.val_top5},
                     {"class_names", state.class_names}};
  // Folder names need not be UTF-8.
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

Result<RunState> RunStateFromJson(std::string_view text) {
  const Json json = Json::parse(text, nullptr, false);
  if (!json.is_object() || json.value("format", 0) != kFormat) {
    return Fail(ErrorCode::kDataLoss, "state.json is not of format {}", kFormat);
  }
  try {
    RunState state;
    json.at("step").get_to(state.step);
    json.at("epoch").get_to(state.epoch);
    json.at("validated_epochs").get_to(state.validated_epochs);
    json.at("seed").get_to(state.seed);
    json.at("world_size").get_to(state.world_size);
    json.at("generation").get_to(state.generation);
    json.at("global_batch").get_to(state.global_batch);
    json.at("train_images").get_to(state.train_images);
    json.at("model").get_to(state.model);
    json.at("job_digest").get_to(state.job_digest);
    json.at("loss_scale").get_to(state.loss_scale);
    json.at("loss_scale_streak").get_to(state.loss_scale_streak);
    json.at("last_loss").get_to(state.last_loss);
    json.at("val_loss").get_to(state.val_loss);
    json.at("val_top1").get_to(state.val_top1);
    json.at("val_top5").get_to(state.val_top5);
    json.at("class_names").get_to(state.class_names);
    return state;
  } catch (const Json::exception& e) {
    return Fail(ErrorCode::kDataLoss, "state.json: {}", e.what());
  }
}

std::string JobDigest(const JobSpec& spec) {
  const Json json = {{"seed", spec.seed},
                     {"model", spec.model.name},
                     {"image_size", spec.data.image_size},
                     {"min_scale", spec.data.min_scale},
                     {"flip", spec.data.flip},
                     {"segments", spec.data.segments},
                     {"epochs", spec.train.epochs},
                     {"global_batch", spec.train.global_batch},
                     {"precision", spec.train.precision},
                     {"freeze_batch_norm", spec.train.freeze_batch_norm},
                     {"lr", spec.optimizer.lr},
                     {"momentum", spec.optimizer.momentum},
                     {"nesterov", spec.optimizer.nesterov},
                     {"weight_decay", spec.optimizer.weight_decay},
                     {"warmup_epochs", spec.schedule.warmup_epochs},
                     {"label_smoothing", spec.schedule.label_smoothing}};
  return Sha256Of(json.dump());
}

}  // namespace imgd::trainer
