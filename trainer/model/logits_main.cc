// Computes a model's logits from files, for the tests that compare with torchvision:
//   model_logits NAME CLASSES SEED|MODEL.safetensors IMAGES.safetensors OUT.safetensors
// IMAGES has "images" (F32 [N, 3, H, W]); OUT gets "logits" and, from a seed, the weights too.

#include "trainer/torch.h"
//
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "common/files.h"
#include "trainer/loop/safetensors.h"
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

Status Run(char** arguments) {
  torch::NoGradGuard no_grad;
  const std::string weights = arguments[3];
  const bool seeded = weights.find_first_not_of("0123456789") == std::string::npos;
  torch::manual_seed(seeded ? std::strtoull(weights.c_str(), nullptr, 10) : 0);
  IMGD_ASSIGN(const auto model, MakeModel({.name = arguments[1]}, std::atoi(arguments[2])));
  if (!seeded) IMGD_TRY(LoadInto(*model, weights));
  IMGD_ASSIGN(const std::string text, ReadFile(arguments[4]));
  IMGD_ASSIGN(const auto content, ParseSafetensors(text));
  IMGD_ASSIGN(const auto images, Load(content, "images"));
  model->eval();
  NamedTensors out = {{"logits", model->forward(images.contiguous(at::MemoryFormat::ChannelsLast))}};
  if (seeded) {
    for (auto& entry : StateDict(*model)) out.push_back(std::move(entry));
  }
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
