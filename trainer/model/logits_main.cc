// Computes a model's logits from files, for the tests that compare with torchvision:
//   model_logits NAME CLASSES SEED|MODEL.safetensors IMAGES.safetensors OUT.safetensors
// IMAGES has "images" (F32 [N, 3, H, W]); OUT gets "logits" and, from a seed, the weights too. Where IMAGES
// has "labels" (I64 [N]) as well, the model is in training mode, LibTorch's generator is seeded with 9 before
// the forward pass, and OUT gets the gradients of the mean cross-entropy as "gradient/NAME". NAME may be
// followed by options, as "resnet50+blurpool+deep_stem".

#include "trainer/torch.h"
//
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "common/checkpoint/safetensors.h"
#include "common/files.h"
#include "trainer/model/model.h"

namespace imgd::trainer {
namespace {

Result<at::Tensor> Load(const SafetensorsContent& content, const std::string& name) {
  const TensorView* view = content.Find(name);
  if (view == nullptr) return Fail(ErrorCode::kNotFound, "no tensor '{}'", name);
  auto out = at::empty(view->shape, view->dtype == "I64" ? at::kLong : at::kFloat);
  std::memcpy(out.data_ptr(), view->bytes.data(), view->bytes.size());
  return out;
}

Status LoadInto(Model& model, const std::string& path) {
  torch::NoGradGuard no_grad;
  IMGD_ASSIGN(const std::string text, ReadFile(path));
  IMGD_ASSIGN(const auto content, ParseSafetensors(text));
  for (auto& [name, tensor] : StateDict(model)) {
    IMGD_ASSIGN(const auto saved, Load(content, name));
    tensor.copy_(saved);
  }
  return {};
}

Status Save(const NamedTensors& named, const std::string& path) {
  std::vector<at::Tensor> copies;
  std::vector<TensorView> views;
  for (const auto& [name, tensor] : named) {
    copies.push_back(tensor.detach().contiguous());
    views.push_back({name,
                     copies.back().scalar_type() == at::kLong ? "I64" : "F32",
                     copies.back().sizes().vec(),
                     {static_cast<const char*>(copies.back().data_ptr()), copies.back().nbytes()}});
  }
  IMGD_ASSIGN(std::string file, SafetensorsHead(views, {}));
  for (const auto& view : views) file += view.bytes;
  return WriteFileAtomically(path, file);
}

/// "NAME+OPTION+OPTION".
JobSpec::Model AskedFor(const std::string& text) {
  JobSpec::Model asked{.name = text.substr(0, text.find('+'))};
  const auto has = [&text](const char* option) { return text.find(std::string("+") + option) != text.npos; };
  asked.zero_init_residual = has("zero_init_residual");
  asked.deep_stem = has("deep_stem");
  asked.average_shortcut = has("average_shortcut");
  asked.blurpool = has("blurpool");
  return asked;
}

void AddGradients(Model& model, const at::Tensor& logits, const at::Tensor& labels, NamedTensors& out) {
  torch::nn::functional::cross_entropy(logits, labels).backward();
  for (const auto& [name, parameter] : Parameters(model))
    out.emplace_back("gradient/" + name, parameter.grad());
}

Status Run(char** arguments) {
  const std::string weights = arguments[3];
  const bool seeded = weights.find_first_not_of("0123456789") == std::string::npos;
  torch::manual_seed(seeded ? std::strtoull(weights.c_str(), nullptr, 10) : 0);
  IMGD_ASSIGN(const auto model, MakeModel(AskedFor(arguments[1]), {.classes = std::atoi(arguments[2])}));
  if (!seeded) IMGD_TRY(LoadInto(*model, weights));
  IMGD_ASSIGN(const std::string text, ReadFile(arguments[4]));
  IMGD_ASSIGN(const auto content, ParseSafetensors(text));
  IMGD_ASSIGN(const auto images, Load(content, "images"));
  const auto labels = Load(content, "labels");
  NamedTensors out;
  if (seeded) {
    for (auto& [name, tensor] : StateDict(*model)) out.emplace_back(name, tensor.detach().clone());
  }
  model->train(labels.has_value());
  torch::manual_seed(9);
  const auto logits = model->forward(images.contiguous(at::MemoryFormat::ChannelsLast));
  out.insert(out.begin(), {"logits", logits});
  if (labels) AddGradients(*model, logits, *labels, out);
  return Save(out, arguments[5]);
}

}  // namespace
}  // namespace imgd::trainer

int main(int argc, char** argv) {
  if (argc != 6) {
    std::fputs("usage: model_logits NAME CLASSES SEED|MODEL.safetensors IMAGES.safetensors OUT.safetensors\n",
               stderr);
    return 2;
  }
  const auto done = imgd::trainer::Run(argv);
  if (!done) std::fprintf(stderr, "%s\n", done.error().ToString().c_str());
  return done ? 0 : 1;
}
