#include "common/job_file.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <set>
#include <string_view>

#include "common/job_file_parts.h"
#include "common/labels.h"
#include "common/text.h"
#include "common/url.h"
#include "common/yaml.h"

namespace imgd {

using namespace job_file_parts;

namespace {

std::string WhatNamesAre(const std::string& found) { return fmt::format("found '{}'; {}", found, kNameRule); }

void ReadHead(YamlMap& root, JobSpec& spec) {
  Set(spec.name, root.String("name"));
  if (!root.Has("name")) {
    root.AddError("name", "missing; a job needs a name");
  } else if (!IsName(spec.name)) {
    root.AddError("name", WhatNamesAre(spec.name));
  }
  Set(spec.project, root.String("project"));
  if (!spec.project.empty() && !IsName(spec.project)) root.AddError("project", WhatNamesAre(spec.project));
  Set(spec.priority, root.Int("priority", -1000, 1000));
  if (const auto seed = root.Int("seed", 0, INT64_MAX)) spec.seed = static_cast<uint64_t>(*seed);
  Set(spec.grace_ms, root.DurationMs("grace"));
  Set(spec.max_restarts, root.Int("max_restarts", 0, 1'000'000));
  Set(spec.preemptible, root.Bool("preemptible"));
  if (const auto limit = root.DurationMs("time_limit")) {
    spec.time_limit_ms = *limit;
    if (*limit < 1000) root.AddError("time_limit", "must be at least 1s", "leave it out for no limit");
  }
  Set(spec.secrets, root.StringList("secrets"));
  std::set<std::string_view> named;
  for (const auto& name : spec.secrets) {
    if (!IsName(name)) root.AddError("secrets", WhatNamesAre(name));
    if (!named.insert(name).second) root.AddError("secrets", fmt::format("'{}' is named twice", name));
  }
  spec.notify = ReadNotifyRules(root, "notify");

  auto about = root.Child("about");
  Set(spec.about.title, about.String("title"));
  Set(spec.about.source, about.String("source"));
  Set(spec.about.result, about.String("result"));
  Set(spec.about.hardware, about.String("hardware"));
  about.Finish();
}

/// The values of "a|b".
std::vector<std::string> Alternatives(const std::string& text) {
  std::vector<std::string> out;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find('|', begin), text.size());
    out.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return out;
}

std::map<std::string, std::vector<std::string>> ReadWantedLabels(YamlMap& resources, const char* key) {
  std::map<std::string, std::vector<std::string>> labels;
  auto map = resources.Child(key);
  for (const auto& name : map.Keys()) {
    const auto text = map.String(name);
    if (!IsLabelName(name))
      map.AddError(name, fmt::format("'{}' is no name that a node's label can have", name));
    if (!text) continue;
    labels[name] = Alternatives(*text);
    for (const auto& value : labels[name]) {
      if (!IsLabelValue(value)) {
        map.AddError(name, fmt::format("'{}' is no value that a node's label can have; VALUE or VALUE|VALUE "
                                       "is expected",
                                       value));
      }
    }
  }
  map.Finish();
  return labels;
}

/// No node has a label's value and has it not.
void CheckLabels(YamlMap& resources, const JobSpec::Resources& job) {
  auto map = resources.Child("not_labels");
  for (const auto& [name, refused] : job.not_labels) {
    const auto wanted = job.labels.find(name);
    if (wanted == job.labels.end()) continue;
    const bool none_left =
        std::all_of(wanted->second.begin(), wanted->second.end(), [&refused = refused](const auto& value) {
          return std::find(refused.begin(), refused.end(), value) != refused.end();
        });
    if (!none_left) continue;
    map.AddError(name, fmt::format("refuses {}={}, which resources.labels asks for: no node could do both",
                                   name, fmt::join(wanted->second, "|")));
  }
}

void ReadGpu(YamlMap& resources, JobSpec::Resources& out) {
  if (!resources.Has("gpu")) return;
  if (!resources.IsMap("gpu")) {
    out.cpu = resources.Choice("gpu", {"none"}).has_value();
    return;
  }
  out.gpu = true;
  auto gpu = resources.Child("gpu");
  if (gpu.Has("count") && resources.Has("ranks_per_node"))
    gpu.AddError("count", "is ranks_per_node by another name; give one of them");
  Set(out.ranks_per_node, gpu.Int("count", 1, 1024));
  if (const auto model = gpu.String("model"); model && *model != "any") {
    out.gpu_models = Alternatives(*model);
    for (const auto& name : out.gpu_models) {
      if (std::none_of(name.begin(), name.end(), [](unsigned char c) { return std::isalnum(c) != 0; }))
        gpu.AddError("model",
                     fmt::format("found '{}'; words of the GPU's name are expected, such as H100, or "
                                 "H100|A100, or any",
                                 *model));
      if (!gpu.Errors().empty()) break;
    }
  }
  if (const auto memory = gpu.Int("memory_gib", 1, 1 << 20)) out.gpu_memory_gib = *memory;
  gpu.Finish();
}

/// Machines that the cloud may take back at short notice are labelled so by their agents; others may have no
/// label.
void ReadCapacity(YamlMap& resources, JobSpec::Resources& out) {
  constexpr const char* kLabel = "capacity";
  const auto capacity = resources.Choice("capacity", {"spot", "on_demand", "any"});
  if (!capacity) return;
  if (out.labels.contains(kLabel) || out.not_labels.contains(kLabel)) {
    resources.AddError("capacity", "is about the label that labels or not_labels ask for too; leave one out");
  } else if (*capacity == "spot") {
    out.labels[kLabel] = {"spot"};
  } else if (*capacity == "on_demand") {
    out.not_labels[kLabel] = {"spot"};
  }
}

/// A number, or {min: 2, max: 8}.
void ReadNodes(YamlMap& resources, JobSpec::Resources& out) {
  constexpr int64_t kMost = 100'000;
  if (resources.IsMap("nodes")) {
    auto nodes = resources.Child("nodes");
    const auto min = nodes.Int("min", 1, kMost);
    const auto max = nodes.Int("max", 1, kMost);
    Set(out.nodes, min);
    Set(out.max_nodes, max);
    for (const char* key : {"min", "max"}) {
      if (!nodes.Has(key)) nodes.AddError(key, "missing; {min: 2, max: 8} are the fewest and the most nodes");
    }
    if (min && max && *max < *min) nodes.AddError("max", fmt::format("{} is less than min, {}", *max, *min));
    nodes.Finish();
  } else {
    Set(out.nodes, resources.Int("nodes", 1, kMost));
    out.max_nodes = out.nodes;
  }
  if (const auto interval = resources.DurationMs("resize_interval")) {
    out.resize_interval_ms = *interval;
    if (*interval < 1000) resources.AddError("resize_interval", "must be at least 1s");
  }
  if (!resources.Has("resize_interval")) return;
  if (!resources.IsMap("nodes")) {
    resources.AddError("resize_interval", "is for a gang that may grow and shrink",
                       "set resources.nodes: {min: 2, max: 8}");
  }
}

void ReadResources(YamlMap& root, JobSpec& spec) {
  auto resources = root.Child("resources");
  ReadNodes(resources, spec.resources);
  Set(spec.resources.ranks_per_node, resources.Int("ranks_per_node", 1, 1024));
  ReadGpu(resources, spec.resources);
  Set(spec.resources.whole_nodes, resources.Bool("whole_nodes"));
  spec.resources.labels = ReadWantedLabels(resources, "labels");
  spec.resources.not_labels = ReadWantedLabels(resources, "not_labels");
  CheckLabels(resources, spec.resources);
  ReadCapacity(resources, spec.resources);
  resources.Finish();
}

/// A value for each of red, green and blue.
void ReadChannels(YamlMap& map, const char* key, double min, std::array<double, 3>& field) {
  const auto values = map.Doubles(key, min, 1);
  if (!values) return;
  if (values->size() == field.size()) {
    std::copy(values->begin(), values->end(), field.begin());
  } else {
    map.AddError(key,
                 fmt::format("has {} numbers where 3 are expected, for red, green and blue", values->size()));
  }
}

void ReadData(YamlMap& root, JobSpec& spec) {
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
  ReadChannels(data, "mean", 0, spec.data.normalisation.mean);
  ReadChannels(data, "std", 0.001, spec.data.normalisation.std);
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

/// A ViT cuts images into patches.
void CheckPatches(YamlMap& root, const JobSpec& spec) {
  static constexpr int kPatch = 16;
  if (ModelFamily(spec.model.name) != "ViT") return;
  const auto check = [](YamlMap& map, const char* key, int size) {
    if (size % kPatch != 0)
      map.AddError(key, fmt::format("{} is no multiple of {}, the side of a ViT's patches", size, kPatch));
  };
  auto data = root.Child("data");
  check(data, "image_size", spec.data.image_size);
  if (data.Has("val_size")) check(data, "val_size", spec.data.val_size);
  if (spec.data.val_shape == "rectangular") {
    data.AddError("val_shape", "a ViT is validated on squares of whole patches", "set val_shape: square");
  }
  auto phases = root.Children("phases");
  for (size_t i = 0; i < phases.size() && i < spec.phases.size(); ++i)
    check(phases[i], "image_size", spec.phases[i].image_size);
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
  if (augment.Has("interpolation") && spec.augment.policy == "none")
    augment.AddError("interpolation", "needs a policy, whose operations move pixels", "set augment.policy");
  augment.Finish();
}

void CheckBucket(YamlMap& map, const char* key, const std::string& where) {
  const auto url = ParseUrl(where);
  if (!url) {
    map.AddError(key, url.error().message);
  } else if (!where.starts_with("s3://")) {
    map.AddError(key, fmt::format("nothing can be written to '{}'", url->ForPeople()),
                 "an absolute path or s3://bucket/prefix");
  }
}

/// Only what is written can be kept.
void CheckKeepEvery(YamlMap& map, const char* key, int kept, const char* written_key, int written) {
  if (kept == 0 || (written > 0 && kept % written == 0)) return;
  map.AddError(key, fmt::format("{} is no multiple of checkpoint.{}, {}, after which checkpoints are written",
                                kept, written_key, written));
}

void ReadCheckpointDir(YamlMap& checkpoint, JobSpec& spec) {
  Set(spec.checkpoint.dir, checkpoint.String("dir"));
  if (IsUrl(spec.checkpoint.dir)) {
    CheckBucket(checkpoint, "dir", spec.checkpoint.dir);
  } else {
    CheckAbsolute(checkpoint, "dir", spec.checkpoint.dir);
  }
}

/// Of a job that is no training: only where its own folder is.
void ReadFolder(YamlMap& root, JobSpec& spec) {
  auto checkpoint = root.Child("checkpoint");
  ReadCheckpointDir(checkpoint, spec);
  for (const auto& key : checkpoint.Keys()) {
    if (key == "dir") continue;
    checkpoint.Value(key);
    checkpoint.AddError(
        key, "is of training; checkpoint.dir alone, below which the job has its folder, is allowed here");
  }
  checkpoint.Finish();
}

void ReadCheckpoint(YamlMap& root, JobSpec& spec) {
  auto checkpoint = root.Child("checkpoint");
  Set(spec.checkpoint.every_epochs, checkpoint.Int("every_epochs", 0, kMaxInt));
  Set(spec.checkpoint.every_steps, checkpoint.Int("every_steps", 0, kMaxInt));
  Set(spec.checkpoint.keep, checkpoint.Int("keep", 1, kMaxInt));
  Set(spec.checkpoint.keep_best, checkpoint.Int("keep_best", 0, kMaxInt));
  Set(spec.checkpoint.keep_every_epochs, checkpoint.Int("keep_every_epochs", 0, kMaxInt));
  Set(spec.checkpoint.keep_every_steps, checkpoint.Int("keep_every_steps", 0, kMaxInt));
  CheckKeepEvery(checkpoint, "keep_every_epochs", spec.checkpoint.keep_every_epochs, "every_epochs",
                 spec.checkpoint.every_epochs);
  CheckKeepEvery(checkpoint, "keep_every_steps", spec.checkpoint.keep_every_steps, "every_steps",
                 spec.checkpoint.every_steps);
  ReadCheckpointDir(checkpoint, spec);
  if (spec.guard.action == "rollback" && spec.checkpoint.keep < 2) {
    checkpoint.AddError("keep", "guard.action: rollback goes back to the one before the newest",
                        "keep at least 2");
  }
  checkpoint.Finish();
}

void ReadReport(YamlMap& root, JobSpec& spec) {
  auto report = root.Child("report");
  Set(spec.report.tensorboard, report.Bool("tensorboard"));
  Set(spec.report.json_lines, report.Bool("json_lines"));
  Set(spec.report.dir, report.String("dir"));
  CheckAbsolute(report, "dir", spec.report.dir);
  report.Finish();
}

bool IsNcclName(const std::string& name) {
  return name.starts_with("NCCL_") && name.size() > 5 && std::all_of(name.begin(), name.end(), [](char c) {
           return (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
         });
}

void ReadDist(YamlMap& root, JobSpec& spec) {
  auto dist = root.Child("dist");
  auto nccl = dist.Child("nccl");
  for (const auto& name : nccl.Keys()) {
    const auto value = nccl.String(name);
    if (!IsNcclName(name)) {
      nccl.AddError(name, "is no variable of NCCL's: NCCL_ and capital letters, digits or '_' are expected");
    } else if (value) {
      spec.dist.nccl[name] = *value;
    }
  }
  nccl.Finish();
  Set(spec.dist.gradient_compression, dist.Choice("gradient_compression", {"none", "bf16"}));
  Set(spec.dist.bucket_mb, dist.Int("bucket_mb", 1, 4096));
  Set(spec.dist.allow_tcp, dist.Bool("allow_tcp"));
  dist.Finish();
}

void ReadLimits(YamlMap& root, JobSpec& spec) {
  /// Less is within what a busy machine makes of the second between two looks at a rank.
  constexpr int64_t kLeastMs = 2'000;
  auto limits = root.Child("limits");
  const auto read = [&limits](const char* key, int64_t& field) {
    const auto value = limits.DurationMs(key);
    if (!value) return;
    field = *value;
    if (field != 0 && field < kLeastMs) limits.AddError(key, "must be at least 2s, or 0 for no limit");
  };
  read("silence", spec.limits.silence_ms);
  read("step", spec.limits.step_ms);
  read("input", spec.limits.input_ms);
  read("start", spec.limits.start_ms);
  read("autotune", spec.limits.autotune_ms);
  read("validation", spec.limits.validation_ms);
  read("checkpoint", spec.limits.checkpoint_ms);
  limits.Finish();
}

void ReadTrainingJob(YamlMap& root, JobSpec& spec) {
  ReadData(root, spec);
  ReadModel(root, spec);
  ReadAugment(root, spec);
  ReadTraining(root, spec);
  ReadLearning(root, spec);
  ReadCheckpoint(root, spec);
  ReadReport(root, spec);
  ReadDist(root, spec);
  ReadLimits(root, spec);
  CheckPatches(root, spec);
}

tl::expected<JobSpec, std::vector<Error>> ReadJob(Result<YamlMap> root, std::string text) {
  if (!root) return tl::unexpected(std::vector<Error>{root.error()});
  JobSpec spec;
  ReadHead(*root, spec);
  ReadWaits(*root, spec);
  ReadResources(*root, spec);
  ReadKind(*root, spec);
  if (spec.kind == JobKind::kTraining) {
    ReadTrainingJob(*root, spec);
  } else {
    ReadFolder(*root, spec);
  }
  ReadSweep(*root, spec);
  root->Finish();
  if (auto errors = root->Errors(); !errors.empty()) return tl::unexpected(std::move(errors));
  spec.text = std::move(text);
  return spec;
}

}  // namespace

void job_file_parts::CheckAbsolute(YamlMap& map, const char* key, const std::string& path) {
  if (!path.empty() && path.front() != '/') {
    map.AddError(key, fmt::format("'{}' is relative; nodes need an absolute path", path));
  }
}

std::vector<JobSpec::Phase> JobSpec::AllPhases() const {
  if (!phases.empty()) return phases;
  return {{.until = train.epochs,
           .image_size = data.image_size,
           .global_batch = train.global_batch,
           .min_scale = data.min_scale}};
}

const std::vector<std::string>& ModelNames() {
  static const std::vector<std::string> kNames = {
#define IMGD_MODEL(name, family) #name,
#include "common/models.def"
#undef IMGD_MODEL
  };
  return kNames;
}

std::string_view ModelFamily(std::string_view name) {
#define IMGD_MODEL(its_name, family) \
  if (name == #its_name) return #family;
#include "common/models.def"
#undef IMGD_MODEL
  return "";
}

tl::expected<JobSpec, std::vector<Error>> ParseJobFile(std::string_view text, const std::string& file) {
  return ReadJob(YamlMap::Parse(text, file), std::string(text));
}

tl::expected<JobSpec, std::vector<Error>> ParseJobFile(const YamlEditor& editor, std::string text,
                                                       const std::string& file) {
  auto spec = ReadJob(YamlMap::Of(editor, file), text);
  return spec ? std::move(spec) : ParseJobFile(text, file);
}

}  // namespace imgd
