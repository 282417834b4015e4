#include "common/job_file.h"

#include <algorithm>
#include <cctype>

#include "common/yaml.h"

namespace imgd {
namespace {

constexpr int64_t kMaxInt = 1'000'000'000;

void Set(int& field, std::optional<int64_t> value) {
  if (value) field = static_cast<int>(*value);
}

template <typename T>
void Set(T& field, std::optional<T> value) {
  if (value) field = std::move(*value);
}

bool IsName(std::string_view name) {
  return !name.empty() && name.size() <= 63 && name.front() != '.' && name.front() != '-' &&
         std::all_of(name.begin(), name.end(), [](unsigned char c) {
           return std::isalnum(c) != 0 || c == '.' || c == '_' || c == '-';
         });
}

void ReadHead(YamlMap& root, JobSpec& spec) {
  Set(spec.name, root.String("name"));
  if (!root.Has("name")) {
    root.AddError("name", "missing; a job needs a name");
  } else if (!IsName(spec.name)) {
    root.AddError("name",
                  fmt::format("found '{}'; 1 to 63 letters, digits, '.', '_' or '-' are allowed, the first a "
                              "letter, digit or '_'",
                              spec.name));
  }
  Set(spec.priority, root.Int("priority", -1000, 1000));
  if (const auto seed = root.Int("seed", 0, INT64_MAX)) spec.seed = static_cast<uint64_t>(*seed);
  Set(spec.grace_ms, root.DurationMs("grace"));
  Set(spec.max_restarts, root.Int("max_restarts", 0, 1'000'000));

  auto resources = root.Child("resources");
  Set(spec.resources.nodes, resources.Int("nodes", 1, 100'000));
  Set(spec.resources.ranks_per_node, resources.Int("ranks_per_node", 1, 1024));
  resources.Finish();
}

void ReadModelAndData(YamlMap& root, JobSpec& spec) {
  auto model = root.Child("model");
  Set(spec.model.name, model.Choice("name", ModelNames()));
  Set(spec.model.classes, model.Int("classes", 1, 1'000'000));
  Set(spec.model.zero_init_residual, model.Bool("zero_init_residual"));
  model.Finish();

  auto data = root.Child("data");
  Set(spec.data.train, data.String("train"));
  Set(spec.data.val, data.String("val"));
  Set(spec.data.image_size, data.Int("image_size", 8, 4096));
  Set(spec.data.val_resize, data.Int("val_resize", 8, 8192));
  Set(spec.data.val_size, data.Int("val_size", 8, 4096));
  Set(spec.data.min_scale, data.Double("min_scale", 0.001, 1));
  Set(spec.data.flip, data.Bool("flip"));
  Set(spec.data.workers, data.Int("workers", 1, 1024));
  Set(spec.data.max_bad_images, data.Int("max_bad_images", 0, kMaxInt));
  Set(spec.data.segments, data.Int("segments", 1, 65536));
  const std::vector<std::string> modes = {"exact", "fast"};
  Set(spec.data.decode, data.Choice("decode", modes));
  Set(spec.data.decoder, data.Choice("decoder", {"cpu", "nvjpeg"}));
  Set(spec.data.val_decode, data.Choice("val_decode", modes));
  Set(spec.data.epoch_mode, data.Choice("epoch_mode", {"exact", "resampled"}));
  Set(spec.data.val_shape, data.Choice("val_shape", {"square", "rectangular"}));
  Set(spec.data.prefetch, data.Int("prefetch", 1, 1024));
  Set(spec.data.memory_mib, data.Int("memory_mib", 1, 1 << 24));
  if (spec.data.train.empty()) {
    data.AddError("train", "missing; the folder of the training images, one folder below it for each class");
  }
  if (spec.data.val_size == 0) spec.data.val_size = spec.data.image_size;
  if (spec.data.val_resize == 0) spec.data.val_resize = spec.data.val_size * 256 / 224;
  if (spec.data.val_resize < spec.data.val_size) {
    data.AddError("val_resize", fmt::format("{} is less than the crop's side, {}", spec.data.val_resize,
                                            spec.data.val_size));
  }
  data.Finish();
}

void ReadAugment(YamlMap& root, JobSpec& spec) {
  auto augment = root.Child("augment");
  Set(spec.augment.policy, augment.Choice("policy", {"none", "randaugment", "trivialaugment"}));
  Set(spec.augment.ops, augment.Int("ops", 1, 14));
  Set(spec.augment.magnitude, augment.Int("magnitude", 0, 30));
  Set(spec.augment.interpolation, augment.Choice("interpolation", {"nearest", "bilinear"}));
  Set(spec.augment.mixup, augment.Double("mixup", 0, 100));
  Set(spec.augment.cutmix, augment.Double("cutmix", 0, 100));
  Set(spec.augment.erasing, augment.Double("erasing", 0, 1));
  for (const char* key : {"ops", "magnitude"}) {
    if (augment.Has(key) && spec.augment.policy != "randaugment") {
      augment.AddError(key, "is a setting of randaugment alone", "set augment.policy: randaugment");
    }
  }
  augment.Finish();
}

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

void CheckBatch(YamlMap& map, int batch, const JobSpec& spec) {
  if (batch % spec.WorldSize() != 0) {
    map.AddError("global_batch",
                 fmt::format("{} images can't be divided among {} ranks", batch, spec.WorldSize()),
                 fmt::format("take a multiple of {}", spec.WorldSize()));
  }
  if (batch % spec.data.segments != 0) {
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

void ReadTraining(YamlMap& root, JobSpec& spec) {
  auto train = root.Child("train");
  const auto epochs = train.Int("epochs", 1, 1'000'000);
  Set(spec.train.epochs, epochs);
  Set(spec.train.global_batch, train.Int("global_batch", 1, 10'000'000));
  Set(spec.train.precision, train.Choice("precision", {"fp32", "bf16", "fp16"}));
  Set(spec.train.device, train.Choice("device", {"auto", "cpu", "cuda"}));
  Set(spec.train.log_every_steps, train.Int("log_every_steps", 1, kMaxInt));
  Set(spec.train.threads, train.Int("threads", 1, 1024));
  Set(spec.train.max_steps, train.Int("max_steps", 1, kMaxInt));
  Set(spec.train.freeze_batch_norm, train.Bool("freeze_batch_norm"));
  Set(spec.train.eval_every_epochs, train.Int("eval_every_epochs", 1, kMaxInt));
  CheckBatch(train, spec.train.global_batch, spec);
  if (spec.train.device == "cpu" && spec.data.decoder == "nvjpeg") {
    train.AddError("device", "is cpu, but data.decoder: nvjpeg needs a GPU", "set data.decoder: cpu");
  }
  train.Finish();
  ReadPhases(root, epochs, spec);

  auto optimizer = root.Child("optimizer");
  Set(spec.optimizer.lr, optimizer.Double("lr", 0, 1e6));
  Set(spec.optimizer.momentum, optimizer.Double("momentum", 0, 1));
  Set(spec.optimizer.nesterov, optimizer.Bool("nesterov"));
  Set(spec.optimizer.weight_decay, optimizer.Double("weight_decay", 0, 1e6));
  Set(spec.optimizer.clip_norm, optimizer.Double("clip_norm", 0, 1e9));
  if (spec.optimizer.nesterov && spec.optimizer.momentum == 0) {
    optimizer.AddError("nesterov", "needs a momentum above 0", "set nesterov: false");
  }
  optimizer.Finish();

  auto schedule = root.Child("schedule");
  Set(spec.schedule.warmup_epochs, schedule.Double("warmup_epochs", 0, 1e6));
  Set(spec.schedule.label_smoothing, schedule.Double("label_smoothing", 0, 0.999));
  if (schedule.Has("warmup_epochs") && spec.schedule.warmup_epochs >= spec.train.epochs) {
    schedule.AddError("warmup_epochs", fmt::format("{} leaves nothing of the run's {} epochs",
                                                   spec.schedule.warmup_epochs, spec.train.epochs));
  }
  spec.schedule.warmup_epochs = std::min(spec.schedule.warmup_epochs, spec.train.epochs / 2.0);
  schedule.Finish();
}

void ReadCheckpoint(YamlMap& root, JobSpec& spec) {
  auto checkpoint = root.Child("checkpoint");
  Set(spec.checkpoint.dir, checkpoint.String("dir"));
  Set(spec.checkpoint.every_epochs, checkpoint.Int("every_epochs", 0, kMaxInt));
  Set(spec.checkpoint.every_steps, checkpoint.Int("every_steps", 0, kMaxInt));
  Set(spec.checkpoint.keep, checkpoint.Int("keep", 1, kMaxInt));
  if (!spec.checkpoint.dir.empty() && spec.checkpoint.dir.front() != '/') {
    checkpoint.AddError("dir",
                        fmt::format("'{}' is relative; nodes need an absolute path", spec.checkpoint.dir));
  }
  checkpoint.Finish();
}

}  // namespace

std::vector<JobSpec::Phase> JobSpec::AllPhases() const {
  if (!phases.empty()) return phases;
  return {{.until = train.epochs,
           .image_size = data.image_size,
           .global_batch = train.global_batch,
           .min_scale = data.min_scale}};
}

const std::vector<std::string>& ModelNames() {
  static const std::vector<std::string> kNames = {"resnet18", "resnet34", "resnet50"};
  return kNames;
}

tl::expected<JobSpec, std::vector<Error>> ParseJobFile(std::string_view text, const std::string& file) {
  auto root = YamlMap::Parse(text, file);
  if (!root) return tl::unexpected(std::vector<Error>{root.error()});
  JobSpec spec;
  ReadHead(*root, spec);
  ReadModelAndData(*root, spec);
  ReadAugment(*root, spec);
  ReadTraining(*root, spec);
  ReadCheckpoint(*root, spec);
  root->Finish();
  if (auto errors = root->Errors(); !errors.empty()) return tl::unexpected(std::move(errors));
  return spec;
}

}  // namespace imgd
