#include "trainer/model/model.h"

#include <fmt/format.h>

#include <functional>

#include "common/job_file.h"
#include "trainer/model/resnet.h"

namespace imgd::trainer {
namespace {

/// The models that there are; ModelNames() of common/job_file.h has their names for programs without
/// LibTorch.
struct Entry {
  const char* name;
  ResNetBlock block;
  std::vector<int> blocks_per_layer;
};

const std::vector<Entry>& Models() {
  static const std::vector<Entry> kModels = {
      {"resnet18", ResNetBlock::kBasic, {2, 2, 2, 2}},
      {"resnet34", ResNetBlock::kBasic, {3, 4, 6, 3}},
      {"resnet50", ResNetBlock::kBottleneck, {3, 4, 6, 3}},
  };
  return kModels;
}

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

Result<std::shared_ptr<Model>> MakeModel(const JobSpec::Model& asked, int classes) {
  for (const auto& entry : Models()) {
    if (entry.name != asked.name) continue;
    auto model = MakeResNet(entry.block, entry.blocks_per_layer, classes, asked.zero_init_residual);
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

bool Decays(const std::string& name, const at::Tensor& parameter) {
  // Norm layers' weights are the only vectors apart from biases.
  return parameter.dim() > 1 && !name.ends_with(".bias");
}

}  // namespace imgd::trainer
