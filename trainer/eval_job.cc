#include "trainer/eval_job.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "common/checkpoint/lineage.h"
#include "common/job_changes.h"

namespace imgd::trainer {
namespace {

/// What changes something in an evaluation.
constexpr std::array kEvalSettings = std::to_array<std::string_view>(
    {"data.val_size", "data.val_resize", "data.val_decode", "data.val_shape", "data.image_size", "data.mean",
     "data.std", "data.workers", "data.prefetch", "data.memory_mib", "data.max_bad_images",
     "train.global_batch", "train.precision", "train.device", "train.threads", "train.bind_numa",
     "model.deep_stem", "model.average_shortcut", "model.blurpool"});

Status CheckSettings(const std::vector<std::string>& settings) {
  for (const auto& setting : settings) {
    const auto path = std::string_view(setting).substr(0, setting.find('='));
    if (std::find(kEvalSettings.begin(), kEvalSettings.end(), path) != kEvalSettings.end()) continue;
    return Fail(ErrorCode::kInvalidArgument, "--set {}: an evaluation has no use for {}; it takes {}",
                setting, path, fmt::join(kEvalSettings, ", "));
  }
  return {};
}

/// What the weights are of, as a job file has it: as they say, or else as --model says.
Result<std::string> EvalModel(const EvalArguments& arguments, Metadata metadata) {
  if (!arguments.model.empty()) {
    const auto& names = ModelNames();
    if (std::find(names.begin(), names.end(), arguments.model) == names.end()) {
      return Fail(ErrorCode::kInvalidArgument, "--model: found '{}'; allowed: {}", arguments.model,
                  fmt::join(names, ", "));
    }
    // InitFrom() compares the two.
    metadata["model"] = arguments.model;
  }
  std::string model = ModelYaml(metadata);
  if (!model.empty()) return model;
  return Fail(ErrorCode::kInvalidArgument, "{} does not say which model it is of; say it with --model NAME",
              arguments.weights);
}

std::string EvalData(const Metadata& metadata) {
  const auto by = NormalisationMetadata(NormalisationIn(metadata).value_or(JobSpec::Normalisation()));
  return fmt::format("data: {{train: none, mean: {}, std: {}}}\n", by.at("data.mean"), by.at("data.std"));
}

}  // namespace

tl::expected<JobSpec, std::vector<Error>> EvalJob(const EvalArguments& arguments, Metadata metadata) {
  const auto failed = [](Error error) { return tl::unexpected(std::vector<Error>{std::move(error)}); };
  if (const auto checked = CheckSettings(arguments.settings); !checked) return failed(checked.error());
  const std::string data = EvalData(metadata);
  const auto model = EvalModel(arguments, std::move(metadata));
  if (!model) return failed(model.error());
  auto spec = ParseChangedJobFile("name: eval\ntrain: {global_batch: 64, precision: fp32}\n" + data + *model,
                                  "imgtrain eval", arguments.settings);
  if (!spec) return spec;
  spec->report.tensorboard = false;
  spec->model.init_from = arguments.weights;
  spec->data.val = arguments.data;
  return spec;
}

}  // namespace imgd::trainer
