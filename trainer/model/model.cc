#include "trainer/model/model.h"

#include <fmt/format.h>

#include <functional>

#include "common/job_file.h"
#include "trainer/model/layers.h"

namespace imgd::trainer {

#define IMGD_MODEL(name, family) \
  std::shared_ptr<Model> Make##family(const JobSpec::Model& asked, const ModelShape& shape);
#include "common/models.def"
#undef IMGD_MODEL

namespace {

struct Entry {
  const char* name;
  std::shared_ptr<Model> (*make)(const JobSpec::Model& asked, const ModelShape& shape);
};

constexpr Entry kModels[] = {
#define IMGD_MODEL(name, family) {#name, Make##family},
#include "common/models.def"
#undef IMGD_MODEL
};

/// Copies into true channels_last strides. contiguous() would leave a 1x1 kernel as it is, since its order in
/// memory is the same either way; then its gradient's strides would differ and the Reducer would copy.
void MakeChannelsLast(Model& model) {
  torch::NoGradGuard no_grad;
  for (auto& parameter : model.parameters()) {
    if (parameter.dim() != 4) continue;
    auto data =
        at::empty(parameter.sizes(), parameter.options().memory_format(at::MemoryFormat::ChannelsLast));
    data.copy_(parameter);
    parameter.set_data(data);
  }
}

void Visit(const torch::nn::Module& module, const std::string& prefix,
           const std::function<void(const torch::nn::Module&, const std::string&)>& visit) {
  visit(module, prefix);
  for (const auto& child : module.named_children()) Visit(*child.value(), prefix + child.key() + ".", visit);
}

NamedTensors Collect(const Model& model, bool parameters, bool buffers) {
  NamedTensors out;
  Visit(model, "", [&](const torch::nn::Module& module, const std::string& prefix) {
    if (parameters) {
      for (const auto& p : module.named_parameters(false)) out.emplace_back(prefix + p.key(), p.value());
    }
    if (buffers) {
      for (const auto& b : module.named_buffers(false)) out.emplace_back(prefix + b.key(), b.value());
    }
  });
  return out;
}

}  // namespace

Result<std::shared_ptr<Model>> MakeModel(const JobSpec::Model& asked, const ModelShape& shape) {
  for (const auto& [name, make] : kModels) {
    if (name != asked.name) continue;
    auto model = make(asked, shape);
    MakeChannelsLast(*model);
    return model;
  }
  return Fail(ErrorCode::kInvalidArgument, "model.name: found '{}'; allowed: {}", asked.name,
              fmt::join(ModelNames(), ", "));
}

NamedTensors Parameters(const Model& model) { return Collect(model, true, false); }

NamedTensors Buffers(const Model& model) { return Collect(model, false, true); }

NamedTensors StateDict(const Model& model) { return Collect(model, true, true); }

void SetBatchNormTraining(Model& model, bool training) {
  for (const auto& module : model.modules()) {
    if (auto* norm = module->as<torch::nn::BatchNorm2d>()) norm->train(training);
  }
}

void SynchronizeBatchNorm(Model& model, const std::shared_ptr<const SumOverRanks>& over_ranks) {
  for (const auto& module : model.modules()) {
    if (auto* norm = module->as<BatchNorm>()) norm->SetSum(over_ranks);
  }
}

bool IsNormOrBias(const std::string& name, const at::Tensor& parameter) {
  // Weights are matrices and kernels; a class token, position embeddings and scales of channels have three
  // axes.
  return (parameter.dim() != 2 && parameter.dim() != 4) || name.ends_with(".bias");
}

}  // namespace imgd::trainer
