#include "trainer/loop/run_state.h"

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "common/sha256.h"

namespace imgd::trainer {
namespace {
using Json = nlohmann::ordered_json;
constexpr int kStateFormat = 1;

Json Dump(const ValidationResult& result) {
  return {{"step", result.step},
          {"images", result.images},
          {"loss", result.loss},
          {"top1", result.top1},
          {"top5", result.top5}};
}

Json Dump(const std::vector<Resize>& resizes) {
  Json json = Json::array();
  for (const auto& resize : resizes) json.push_back({{"epoch", resize.epoch}, {"ranks", resize.ranks}});
  return json;
}

std::vector<Resize> LoadResizes(const Json& json) {
  std::vector<Resize> resizes;
  for (const Json& resize : json) resizes.push_back({resize.at("epoch"), resize.at("ranks")});
  return resizes;
}

/// JSON has no word for what is no finite number; it is written as null.
double NumberOf(const Json& json) {
  return json.is_null() ? std::numeric_limits<double>::quiet_NaN() : json.get<double>();
}

Json Dump(const GuardState& guard) {
  return {{"mean_loss", guard.mean_loss},
          {"times_used", guard.times_used},
          {"good_step", guard.good_step},
          {"given_up", guard.given_up},
          {"sums", guard.sums}};
}

GuardState LoadGuard(const Json& json) {
  GuardState guard{json.at("mean_loss"), json.at("times_used"), json.at("good_step"), {}, {}};
  json.at("given_up").get_to(guard.given_up);
  for (size_t i = 0; i < guard.sums.size(); ++i) guard.sums[i] = NumberOf(json.at("sums").at(i));
  return guard;
}

Json Dump(const BestSoFar& best) {
  return {{"value", best.value},
          {"step", best.step},
          {"last_step", best.last_step},
          {"passes_since", best.passes_since}};
}

BestSoFar LoadBest(const Json& json) {
  return {json.at("value"), json.at("step"), json.at("last_step"), json.at("passes_since")};
}

ValidationResult Load(const Json& json) {
  ValidationResult result;
  json.at("step").get_to(result.step);
  json.at("images").get_to(result.images);
  result.loss = NumberOf(json.at("loss"));
  json.at("top1").get_to(result.top1);
  json.at("top5").get_to(result.top5);
  return result;
}

}  // namespace

bool IsGood(const GuardState& guard, uint64_t step) {
  bool good = step < guard.good_step;
  for (const auto& [back_to, from] : guard.given_up) {
    if (step == from) good = true;
    if (step > back_to && step < from) return false;
  }
  return good;
}

std::string ToJson(const ValidationResult& result) { return Dump(result).dump(2) + "\n"; }

Result<ValidationResult> ValidationFromJson(std::string_view text) {
  try {
    return Load(Json::parse(text));
  } catch (const Json::exception& e) {
    return Fail(ErrorCode::kDataLoss, "validation.json: {}", e.what());
  }
}

std::string ToJson(const RunState& state) {
  const Json json = {{"format", kStateFormat},
                     {"step", state.step},
                     {"epoch", state.epoch},
                     {"seed", state.seed},
                     {"world_size", state.world_size},
                     {"generation", state.generation},
                     {"global_batch", state.global_batch},
                     {"train_images", state.train_images},
                     {"model", state.model},
                     {"optimizer", state.optimizer},
                     {"job_digest", state.job_digest},
                     {"loss_scale", state.loss_scale},
                     {"loss_scale_streak", state.loss_scale_streak},
                     {"last_loss", state.last_loss},
                     {"resizes", Dump(state.resizes)},
                     {"guard", Dump(state.guard)},
                     {"best", Dump(state.best)},
                     {"validation", Dump(state.validation)},
                     {"planned", state.planned},
                     {"class_names", state.class_names}};
  // Folder names need not be UTF-8.
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

Result<RunState> RunStateFromJson(std::string_view text) {
  const Json json = Json::parse(text, nullptr, false);
  if (!json.is_object() || json.value("format", 0) != kStateFormat) {
    return Fail(ErrorCode::kDataLoss, "state.json is not of format {}", kStateFormat);
  }
  try {
    RunState state;
    json.at("step").get_to(state.step);
    json.at("epoch").get_to(state.epoch);
    json.at("seed").get_to(state.seed);
    json.at("world_size").get_to(state.world_size);
    json.at("generation").get_to(state.generation);
    json.at("global_batch").get_to(state.global_batch);
    json.at("train_images").get_to(state.train_images);
    json.at("model").get_to(state.model);
    state.optimizer = json.value("optimizer", "");
    json.at("job_digest").get_to(state.job_digest);
    json.at("loss_scale").get_to(state.loss_scale);
    json.at("loss_scale_streak").get_to(state.loss_scale_streak);
    state.last_loss = NumberOf(json.at("last_loss"));
    if (json.contains("resizes")) state.resizes = LoadResizes(json["resizes"]);
    if (json.contains("guard")) state.guard = LoadGuard(json["guard"]);
    if (json.contains("best")) state.best = LoadBest(json["best"]);
    state.validation = Load(json.at("validation"));
    state.planned = json.value("planned", false);
    json.at("class_names").get_to(state.class_names);
    return state;
  } catch (const Json::exception& e) {
    return Fail(ErrorCode::kDataLoss, "state.json: {}", e.what());
  }
}

namespace {

/// Settings that were added later are left out where they are the default, so that old digests stay what they
/// are.
struct Adder {
  Json& json;
  void operator()(const char* key, const auto& value, const auto& usual) const {
    if (value != usual) json[key] = value;
  }
};

void AddNewer(const JobSpec& spec, Json& json) {
  if (!spec.elastic.rule.empty()) json["elastic"] = {spec.elastic.rule, spec.elastic.ranks};
  const JobSpec standard;
  const Adder add{json};
  add("decode", spec.data.decode, standard.data.decode);
  add("decoder", spec.data.decoder, standard.data.decoder);
  add("epoch_mode", spec.data.epoch_mode, standard.data.epoch_mode);
  add("mean", spec.data.normalisation.mean, standard.data.normalisation.mean);
  add("std", spec.data.normalisation.std, standard.data.normalisation.std);
  add("policy", spec.augment.policy, standard.augment.policy);
  add("policy_ops", spec.augment.ops, standard.augment.ops);
  add("policy_magnitude", spec.augment.magnitude, standard.augment.magnitude);
  add("policy_interpolation", spec.augment.interpolation, standard.augment.interpolation);
  add("mixup", spec.augment.mixup, standard.augment.mixup);
  add("cutmix", spec.augment.cutmix, standard.augment.cutmix);
  add("erasing", spec.augment.erasing, standard.augment.erasing);
  for (const auto& phase : spec.phases) {
    json["phases"].push_back(
        {phase.until, phase.image_size, phase.global_batch, phase.min_scale, !phase.train.empty()});
    if (phase.lr) json["phase_rates"].push_back({*phase.lr, phase.lr_end.value_or(*phase.lr)});
  }
}

void AddNewerOfLearning(const JobSpec& spec, Json& json) {
  const JobSpec standard;
  const Adder add{json};
  const auto& model = spec.model;
  const auto& optimizer = spec.optimizer;
  const auto& schedule = spec.schedule;
  add("zero_init_residual", model.zero_init_residual, standard.model.zero_init_residual);
  add("deep_stem", model.deep_stem, standard.model.deep_stem);
  add("average_shortcut", model.average_shortcut, standard.model.average_shortcut);
  add("blurpool", model.blurpool, standard.model.blurpool);
  if (model.drop_path) json["drop_path"] = *model.drop_path;
  add("init_from", model.init_from, standard.model.init_from);
  add("freeze", model.freeze, standard.model.freeze);
  add("optimizer", optimizer.kind, standard.optimizer.kind);
  add("beta1", optimizer.beta1, standard.optimizer.beta1);
  add("beta2", optimizer.beta2, standard.optimizer.beta2);
  add("epsilon", optimizer.epsilon, standard.optimizer.epsilon);
  add("trust", optimizer.trust, standard.optimizer.trust);
  add("norm_weight_decay", optimizer.norm_weight_decay, standard.optimizer.norm_weight_decay);
  if (optimizer.bias_weight_decay) json["bias_weight_decay"] = *optimizer.bias_weight_decay;
  add("layer_decay", optimizer.layer_decay, standard.optimizer.layer_decay);
  add("clip_norm", optimizer.clip_norm, standard.optimizer.clip_norm);
  add("loss", spec.loss.kind, standard.loss.kind);
  add("schedule", schedule.kind, standard.schedule.kind);
  if (schedule.warmup_start) json["warmup_start"] = *schedule.warmup_start;
  add("end_lr", schedule.end_lr, standard.schedule.end_lr);
  add("power", schedule.power, standard.schedule.power);
  add("milestones", schedule.milestones, standard.schedule.milestones);
  add("gamma", schedule.gamma, standard.schedule.gamma);
  add("ema_decay", spec.ema.decay, standard.ema.decay);
  add("ema_every_steps", spec.ema.every_steps, standard.ema.every_steps);
  add("accumulate", spec.train.accumulate, standard.train.accumulate);
  add("sync_batch_norm", spec.train.sync_batch_norm, standard.train.sync_batch_norm);
  add("guard", spec.guard.action, standard.guard.action);
  if (spec.guard.on()) json["guard_look"] = {spec.guard.loss_factor, spec.guard.every_steps};
  if (spec.early_stop.patience > 0)
    json["early_stop"] = {spec.early_stop.patience, spec.early_stop.metric, spec.early_stop.min_delta};
  add("gradient_compression", spec.dist.gradient_compression, standard.dist.gradient_compression);
}

}  // namespace

void FollowRanks(const JobSpec& spec, uint64_t images, int ranks, RunState& state) {
  auto& resizes = state.resizes;
  const auto epoch = static_cast<uint64_t>(std::ceil(Phases(spec, images, resizes).Epochs(state.step)));
  std::erase_if(resizes, [&](const Resize& resize) { return resize.epoch >= epoch; });
  const int before = resizes.empty() ? spec.elastic.ranks : resizes.back().ranks;
  if (ranks != before) resizes.push_back({epoch, ranks});
}

std::string JobDigest(const JobSpec& spec) {
  Json json = {{"seed", spec.seed},
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
               {"label_smoothing", spec.loss.label_smoothing}};
  AddNewer(spec, json);
  AddNewerOfLearning(spec, json);
  return Sha256Of(json.dump());
}

}  // namespace imgd::trainer
