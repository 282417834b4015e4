// What a job file says about the model and how it learns.
#include <fmt/ranges.h>

#include <algorithm>
#include <initializer_list>

#include "common/job_file_parts.h"

namespace imgd::job_file_parts {
namespace {

/// The end of a phase that begins at epoch `start`; the last may leave it out.
int ReadPhaseEnd(YamlMap& phase, int start, bool last, std::optional<int64_t> epochs) {
  const auto length = phase.Int("epochs", 1, 1'000'000);
  const auto until = phase.Int("until", 1, 1'000'000);
  if (phase.Has("epochs") && phase.Has("until")) {
    phase.AddError("until", "a phase has either epochs, its length, or until, the epochs done at its end");
  } else if (length) {
    return start + static_cast<int>(*length);
  } else if (until) {
    if (*until <= start) {
      phase.AddError("until", fmt::format("{} is no later than the phase's start, {}", *until, start));
    }
    return static_cast<int>(*until);
  } else if (!phase.Has("epochs") && !phase.Has("until") && last && epochs && *epochs > start) {
    return static_cast<int>(*epochs);
  } else if (!phase.Has("epochs") && !phase.Has("until")) {
    phase.AddError("epochs", "missing; a phase has epochs, its length, or until, the epochs done at its end");
  }
  return start + 1;
}

void ReadElastic(YamlMap& root, JobSpec& spec) {
  auto map = root.Child("elastic");
  auto& elastic = spec.elastic;
  elastic.ranks = spec.WorldSize();
  // What is learnt, and the memory that it takes, should not hang on how many nodes are free.
  if (spec.IsElastic()) elastic.rule = "keep_global_batch";
  Set(elastic.rule, map.Choice("rule", {"keep_global_batch", "linear_scaling"}));
  Set(elastic.ranks, map.Int("ranks", 1, 1'000'000));
  if (root.Has("elastic") && !map.Has("rule") && !spec.IsElastic())
    map.AddError("rule", "missing; keep_global_batch or linear_scaling");
  if (spec.IsElastic() && elastic.rule == "linear_scaling" && !map.Has("ranks")) {
    map.AddError("ranks",
                 "missing; how many ranks train.global_batch and the learning rates are for, since "
                 "resources.nodes is not one number");
  }
  map.Finish();
}

void CheckBatch(YamlMap& map, int batch, const JobSpec& spec) {
  // What scales must do so to any number of ranks.
  const bool scales = spec.elastic.rule == "linear_scaling";
  const int ranks = scales ? spec.elastic.ranks : spec.WorldSize();
  if (batch % ranks != 0) {
    const bool most = !scales && spec.IsElastic();
    map.AddError("global_batch",
                 fmt::format("{} images can't be divided among {} ranks{}", batch, ranks,
                             most ? ", the most that resources.nodes allows" : ""),
                 fmt::format("take a multiple of {}", ranks));
  } else if (scales && batch / ranks % spec.data.segments != 0) {
    map.AddError("global_batch", fmt::format("{} images for each of {} ranks (elastic) are no multiple of "
                                             "data.segments, {}",
                                             batch / ranks, ranks, spec.data.segments));
  } else if (batch % spec.data.segments != 0) {
    map.AddError("global_batch",
                 fmt::format("{} is no multiple of data.segments, {}", batch, spec.data.segments));
  }
}

/// Sets the run's epochs where nothing else does.
void ReadPhases(YamlMap& root, std::optional<int64_t> epochs, JobSpec& spec) {
  auto list = root.Children("phases");
  int start = 0;
  for (size_t i = 0; i < list.size(); ++i) {
    auto& map = list[i];
    JobSpec::Phase phase{.until = ReadPhaseEnd(map, start, i + 1 == list.size(), epochs),
                         .image_size = spec.data.image_size,
                         .global_batch = spec.train.global_batch,
                         .min_scale = spec.data.min_scale};
    Set(phase.image_size, map.Int("image_size", 8, 4096));
    Set(phase.global_batch, map.Int("global_batch", 1, 10'000'000));
    Set(phase.min_scale, map.Double("min_scale", 0.001, 1));
    Set(phase.train, map.String("train"));
    Set(phase.lr, map.Double("lr", 0, 1e6));
    Set(phase.lr_end, map.Double("lr_end", 0, 1e6));
    if (phase.lr_end && !phase.lr) map.AddError("lr_end", "needs lr, the rate at the phase's start");
    if (i > 0 && phase.lr.has_value() != spec.phases.front().lr.has_value()) {
      map.AddError("lr", "either all phases have a learning rate or none has");
    }
    if (map.Has("global_batch")) CheckBatch(map, phase.global_batch, spec);
    start = phase.until;
    map.Finish();
    spec.phases.push_back(std::move(phase));
  }
  if (list.empty()) return;
  if (epochs && start != *epochs) {
    root.AddError("phases", fmt::format("they end after epoch {}, but train.epochs is {}", start, *epochs),
                  "leave train.epochs out");
  }
  spec.train.epochs = start;
}

/// Settings of one kind are errors with another, since they would do nothing.
void OnlyFor(YamlMap& map, const std::string& kind, std::initializer_list<const char*> keys,
             std::initializer_list<const char*> kinds) {
  for (const char* wanted : kinds) {
    if (kind == wanted) return;
  }
  for (const char* key : keys) {
    if (map.Has(key)) {
      map.AddError(key, fmt::format("is no setting of {}, but of {}", kind, fmt::join(kinds, ", ")));
    }
  }
}

void ReadOptimizer(YamlMap& root, JobSpec& spec) {
  auto map = root.Child("optimizer");
  auto& optimizer = spec.optimizer;
  Set(optimizer.kind, map.Choice("kind", {"sgd", "lars", "adamw"}));
  Set(optimizer.lr, map.Double("lr", 0, 1e6));
  Set(optimizer.momentum, map.Double("momentum", 0, 1));
  Set(optimizer.nesterov, map.Bool("nesterov"));
  Set(optimizer.beta1, map.Double("beta1", 0, 0.999999));
  Set(optimizer.beta2, map.Double("beta2", 0, 0.999999));
  Set(optimizer.epsilon, map.Double("epsilon", 0, 1));
  Set(optimizer.trust, map.Double("trust", 0, 1e6));
  Set(optimizer.weight_decay, map.Double("weight_decay", 0, 1e6));
  Set(optimizer.norm_weight_decay, map.Double("norm_weight_decay", 0, 1e6));
  Set(optimizer.bias_weight_decay, map.Double("bias_weight_decay", 0, 1e6));
  Set(optimizer.layer_decay, map.Double("layer_decay", 0.001, 1));
  Set(optimizer.clip_norm, map.Double("clip_norm", 0, 1e9));
  OnlyFor(map, optimizer.kind, {"momentum", "nesterov"}, {"sgd", "lars"});
  OnlyFor(map, optimizer.kind, {"beta1", "beta2", "epsilon"}, {"adamw"});
  OnlyFor(map, optimizer.kind, {"trust"}, {"lars"});
  if (optimizer.nesterov && optimizer.momentum == 0) {
    map.AddError("nesterov", "needs a momentum above 0", "set nesterov: false");
  }
  if (map.Has("lr") && !spec.phases.empty() && spec.phases.front().lr) {
    map.AddError("lr", "the phases have their own learning rates", "leave it out");
  }
  map.Finish();
}

void ReadMilestones(YamlMap& map, JobSpec& spec) {
  auto& schedule = spec.schedule;
  if (const auto milestones = map.Doubles("milestones", 0, 1e6)) schedule.milestones = *milestones;
  if (!std::is_sorted(schedule.milestones.begin(), schedule.milestones.end())) {
    map.AddError("milestones", "must rise");
  } else if (!schedule.milestones.empty() && schedule.milestones.back() >= spec.train.epochs) {
    map.AddError("milestones", fmt::format("{} is not before the run's end, {} epochs",
                                           schedule.milestones.back(), spec.train.epochs));
  }
  if (schedule.kind == "step" && !map.Has("milestones")) {
    map.AddError("milestones",
                 "missing; the epochs after which the rate is multiplied by gamma, as [30, 60, 80]");
  }
}

void ReadSchedule(YamlMap& root, JobSpec& spec) {
  if (root.Has("schedule") && !root.IsMap("schedule")) {
    root.AddError("schedule", "a mapping (key: value), such as {kind: cosine}, is expected",
                  kScheduleIsNoTime);
    root.Value("schedule");
    return;
  }
  auto map = root.Child("schedule");
  auto& schedule = spec.schedule;
  Set(schedule.kind, map.Choice("kind", {"cosine", "polynomial", "step", "one_cycle"}));
  // What torch.optim.lr_scheduler.OneCycleLR does.
  if (schedule.kind == "one_cycle") {
    schedule.warmup_epochs = 0.3 * spec.train.epochs;
    schedule.warmup_start = 1.0 / 25;
    schedule.end_lr = spec.optimizer.lr / 25 / 1e4;
  }
  Set(schedule.warmup_epochs, map.Double("warmup_epochs", 0, 1e6));
  Set(schedule.warmup_start, map.Double("warmup_start", 0, 1));
  Set(schedule.end_lr, map.Double("end_lr", 0, 1e6));
  Set(schedule.power, map.Double("power", 0, 100));
  Set(schedule.gamma, map.Double("gamma", 0, 1));
  ReadMilestones(map, spec);
  if (map.Has("warmup_start") && schedule.warmup_epochs == 0)
    map.AddError("warmup_start", "there is no warm-up", "set warmup_epochs");
  OnlyFor(map, schedule.kind, {"power"}, {"polynomial"});
  OnlyFor(map, schedule.kind, {"milestones", "gamma"}, {"step"});
  OnlyFor(map, schedule.kind, {"end_lr"}, {"cosine", "polynomial", "one_cycle"});
  if (map.Has("warmup_epochs") && schedule.warmup_epochs >= spec.train.epochs) {
    map.AddError("warmup_epochs", fmt::format("{} leaves nothing of the run's {} epochs",
                                              schedule.warmup_epochs, spec.train.epochs));
  }
  if (!map.Has("warmup_epochs"))
    schedule.warmup_epochs = std::min(schedule.warmup_epochs, spec.train.epochs / 2.0);
  if (!spec.phases.empty() && spec.phases.front().lr && root.Has("schedule")) {
    root.AddError("schedule", "the phases have their own learning rates", "leave it out");
  }
  map.Finish(kScheduleIsNoTime);
}

void ReadGuard(YamlMap& root, JobSpec& spec) {
  auto map = root.Child("guard");
  auto& guard = spec.guard;
  Set(guard.action, map.Choice("action", {"stop", "skip", "rollback"}));
  Set(guard.loss_factor, map.Double("loss_factor", 0, 1e6));
  Set(guard.every_steps, map.Int("every_steps", 1, kMaxInt));
  Set(guard.max_times, map.Int("max_times", 1, kMaxInt));
  OnlyFor(map, guard.action, {"max_times"}, {"skip", "rollback"});
  if (guard.loss_factor > 0 && guard.loss_factor <= 1) {
    map.AddError("loss_factor", "a loss is never far below its running mean; 0 or more than 1 is allowed");
  }
  if (guard.action == "skip" && guard.loss_factor > 0) {
    map.AddError("loss_factor", "skip leaves out single steps whose gradients are no finite numbers",
                 "set action: rollback");
  }
  if (guard.action == "skip" && spec.train.precision == "fp16") {
    map.AddError("action", "fp16 leaves such steps out by itself", "leave it out");
  }
  if (!guard.on() && map.Has("every_steps"))
    map.AddError("every_steps", "needs action: rollback or skip, or loss_factor");
  map.Finish();
}

void ReadEarlyStop(YamlMap& root, JobSpec& spec) {
  auto map = root.Child("early_stop");
  auto& stop = spec.early_stop;
  Set(stop.patience, map.Int("patience", 1, kMaxInt));
  Set(stop.metric, map.Choice("metric", {"top1", "loss"}));
  Set(stop.min_delta, map.Double("min_delta", 0, 1e6));
  if (root.Has("early_stop") && !map.Has("patience"))
    map.AddError("patience", "missing; validation passes without a better result after which the run ends");
  if (stop.patience > 0 && spec.data.val.empty()) map.AddError("patience", "needs data.val");
  map.Finish();
}

}  // namespace

void ReadModel(YamlMap& root, JobSpec& spec) {
  auto map = root.Child("model");
  auto& model = spec.model;
  Set(model.name, map.Choice("name", ModelNames()));
  Set(model.classes, map.Int("classes", 1, 1'000'000));
  Set(model.zero_init_residual, map.Bool("zero_init_residual"));
  Set(model.deep_stem, map.Bool("deep_stem"));
  Set(model.average_shortcut, map.Bool("average_shortcut"));
  Set(model.blurpool, map.Bool("blurpool"));
  Set(model.drop_path, map.Double("drop_path", 0, 0.999));
  Set(model.init_from, map.String("init_from"));
  Set(model.freeze, map.StringList("freeze"));
  const auto family = ModelFamily(model.name);
  OnlyFor(map, std::string(family), {"zero_init_residual", "deep_stem", "average_shortcut", "blurpool"},
          {"ResNet"});
  map.Finish();
}

void ReadTraining(YamlMap& root, JobSpec& spec) {
  ReadElastic(root, spec);
  auto train = root.Child("train");
  const auto epochs = train.Int("epochs", 1, 1'000'000);
  Set(spec.train.epochs, epochs);
  Set(spec.train.global_batch, train.Int("global_batch", 1, 10'000'000));
  Set(spec.train.precision, train.Choice("precision", {"fp32", "tf32", "bf16", "fp16"}));
  Set(spec.train.device, train.Choice("device", {"auto", "cpu", "cuda"}));
  Set(spec.train.log_every_steps, train.Int("log_every_steps", 1, kMaxInt));
  Set(spec.train.threads, train.Int("threads", 1, 1024));
  Set(spec.train.bind_numa, train.Bool("bind_numa"));
  Set(spec.train.max_steps, train.Int("max_steps", 1, kMaxInt));
  Set(spec.train.freeze_batch_norm, train.Bool("freeze_batch_norm"));
  Set(spec.train.sync_batch_norm, train.Bool("sync_batch_norm"));
  Set(spec.train.cuda_graph, train.Bool("cuda_graph"));
  Set(spec.train.eval_every_epochs, train.Int("eval_every_epochs", 1, kMaxInt));
  Set(spec.train.accumulate, train.Int("accumulate", 1, 10'000));
  CheckBatch(train, spec.train.global_batch, spec);
  OnlyFor(train, std::string(ModelFamily(spec.model.name)), {"freeze_batch_norm", "sync_batch_norm"},
          {"ResNet"});
  if (spec.train.sync_batch_norm && spec.train.freeze_batch_norm)
    train.AddError("sync_batch_norm", "is of no use with freeze_batch_norm, which gathers no statistics");
  if (spec.train.device == "cpu" && spec.resources.gpu)
    train.AddError("device", "is cpu where resources.gpu asks for GPUs");
  if (spec.train.device == "cuda" && spec.resources.cpu)
    train.AddError("device", "is cuda where resources.gpu is none");
  if (spec.train.device == "cpu" && spec.data.decoder == "nvjpeg") {
    train.AddError("device", "is cpu, but data.decoder: nvjpeg needs a GPU", "set data.decoder: cpu");
  }
  if (spec.train.cuda_graph && spec.train.device == "cpu")
    train.AddError("cuda_graph", "needs a GPU, but train.device is cpu");
  train.Finish();
  ReadPhases(root, epochs, spec);
}

void ReadLearning(YamlMap& root, JobSpec& spec) {
  ReadOptimizer(root, spec);
  auto loss = root.Child("loss");
  Set(spec.loss.kind, loss.Choice("kind", {"cross_entropy", "bce"}));
  Set(spec.loss.label_smoothing, loss.Double("label_smoothing", 0, 0.999));
  loss.Finish();
  ReadSchedule(root, spec);
  auto ema = root.Child("ema");
  Set(spec.ema.decay, ema.Double("decay", 0, 0.9999999));
  Set(spec.ema.every_steps, ema.Int("every_steps", 1, kMaxInt));
  if (ema.Has("every_steps") && spec.ema.decay == 0) ema.AddError("every_steps", "needs ema.decay");
  ema.Finish();
  ReadGuard(root, spec);
  ReadEarlyStop(root, spec);
}

}  // namespace imgd::job_file_parts
