#include "trainer/torch.h"
//
#include <fmt/ranges.h>

#include <cmath>
#include <cstring>
#include <map>
#include <set>

#include "common/checkpoint/lineage.h"
#include "common/checkpoint/safetensors.h"
#include "common/remote/s3_folder.h"
#include "trainer/loop/init_from.h"
#include "trainer/loop/run.h"
#include "trainer/loop/timm_names.h"
#include "trainer/loop/torch_file.h"

namespace imgd::trainer {
namespace {

struct Weights {
  std::map<std::string, at::Tensor> tensors;
  Metadata metadata;  ///< of safetensors, or the model of a lineage
};

std::optional<at::ScalarType> TypeOf(const std::string& dtype) {
  if (dtype == "F32") return at::kFloat;
  if (dtype == "F16") return at::kHalf;
  if (dtype == "BF16") return at::kBFloat16;
  if (dtype == "F64") return at::kDouble;
  if (dtype == "I64") return at::kLong;
  return std::nullopt;
}

Result<Weights> FromSafetensors(const std::string& text) {
  if (text.starts_with("\x80\x02")) {
    return Fail(ErrorCode::kInvalidArgument,
                "it was saved by a PyTorch before 1.6; load it there and save it again");
  }
  IMGD_ASSIGN(const auto content, ParseSafetensors(text));
  Weights out;
  for (const auto& view : content.tensors) {
    const auto type = TypeOf(view.dtype);
    if (!type) return Fail(ErrorCode::kInvalidArgument, "tensor '{}' is of type {}", view.name, view.dtype);
    auto tensor = at::empty(view.shape, *type);
    std::memcpy(tensor.data_ptr(), view.bytes.data(), view.bytes.size());
    out.tensors[view.name] = tensor;
  }
  out.metadata = content.metadata;
  return out;
}

Metadata TorchFileMetadata(const std::string& text) {
  const auto lineage = LineageFromJson(TorchFileRecord(text, "lineage.json"));
  return lineage ? ModelMetadata(*lineage) : Metadata();
}

Result<Weights> FromTorchFile(const std::string& text) {
  IMGD_ASSIGN(auto tensors, ReadTorchFile(text));
  return Weights{std::move(tensors), TorchFileMetadata(text)};
}

Result<Weights> Read(const std::string& path) {
  IMGD_ASSIGN(const std::string text, ReadFileOrObject(path));
  auto weights = IsTorchFile(text) ? FromTorchFile(text) : FromSafetensors(text);
  if (!weights) return weights;
  static constexpr std::string_view kWrapper = "module.";
  Weights out{.metadata = std::move(weights->metadata)};
  for (auto& [name, tensor] : weights->tensors)
    out.tensors[name.starts_with(kWrapper) ? name.substr(kWrapper.size()) : name] = std::move(tensor);
  return out;
}

int64_t SideOf(int64_t patches) {
  return static_cast<int64_t>(std::lround(std::sqrt(static_cast<double>(patches))));
}

/// A square of patches and a class token, of another number than the model's; as it is where it is none.
at::Tensor FittingPositions(const at::Tensor& found, const at::Tensor& wanted) {
  const int64_t side = SideOf(wanted.size(1) - 1);
  const int64_t old = SideOf(found.size(1) - 1);
  if (found.size(1) < 2 || old * old != found.size(1) - 1 || found.size(2) != wanted.size(2)) return found;
  return ResizedPositions(found.to(at::kFloat), side, side);
}

/// By our names; a scale of channels as our shape has it.
std::map<std::string, at::Tensor> FromTimm(const std::map<std::string, at::Tensor>& weights) {
  std::map<std::string, at::Tensor> out;
  for (const auto& [name, tensor] : weights) {
    const std::string ours = ConvNeXtNameOfTimm(name);
    out[ours] = ours != name && ours.ends_with(".layer_scale") ? tensor.reshape({-1, 1, 1}) : tensor;
  }
  return out;
}

Result<std::string> CopyWeights(Model& model, const std::map<std::string, at::Tensor>& weights,
                                NewHead allowed) {
  const std::string head = model.head() + ".";
  std::set<std::string> names;
  size_t taken = 0;
  bool new_head = false;
  for (auto& [name, tensor] : StateDict(model)) {
    names.insert(name);
    const auto found = weights.find(name);
    if (found == weights.end() && name.ends_with(".num_batches_tracked")) continue;  // old files lack them
    if (found == weights.end() && name.starts_with(head)) {
      new_head = true;
      continue;
    }
    if (found == weights.end()) {
      return Fail(ErrorCode::kInvalidArgument, "it has no tensor '{}'; it seems to be of another model",
                  name);
    }
    auto value = found->second;
    if (name == "pos_embed" && value.dim() == 3 && value.sizes() != tensor.sizes())
      value = FittingPositions(value, tensor);
    if (value.sizes() != tensor.sizes() && name.starts_with(head)) {
      new_head = true;
      continue;
    }
    if (value.sizes() != tensor.sizes()) {
      return Fail(ErrorCode::kInvalidArgument, "its tensor '{}' has the shape {}, but the model's has {}",
                  name, fmt::join(value.sizes(), " x "), fmt::join(tensor.sizes(), " x "));
    }
    tensor.copy_(value);
    ++taken;
  }
  for (const auto& [name, tensor] : weights) {
    if (!names.contains(name) && !name.starts_with(head)) {
      return Fail(ErrorCode::kInvalidArgument,
                  "it has a tensor '{}', which the model lacks; it seems to be of another model", name);
    }
  }
  if (new_head && allowed == NewHead::kRefused) {
    return Fail(ErrorCode::kInvalidArgument,
                "its last layer, {}, is not for as many classes as the data have", model.head());
  }
  return fmt::format("begins with {} tensors of it{}", taken,
                     new_head ? "; the last layer is new, since the file has none for as many classes" : "");
}

}  // namespace

Result<Metadata> MetadataOfWeights(const std::string& path) {
  const auto text = ReadFileOrObject(path);
  if (!text) return Fail(ErrorCode::kInvalidArgument, "{}", text.error().message);
  if (IsTorchFile(*text)) return TorchFileMetadata(*text);
  const auto content = ParseSafetensors(*text);
  if (!content) return Fail(ErrorCode::kInvalidArgument, "{}: {}", path, content.error().message);
  return content->metadata;
}

Result<std::string> InitFrom(Model& model, const JobSpec& job, NewHead new_head) {
  torch::NoGradGuard no_grad;
  const JobSpec::Model& spec = job.model;
  const std::string& path = spec.init_from;
  const auto named = [&path](const Error& error) {
    return Fail(ErrorCode::kInvalidArgument, "model.init_from: {}: {}", path, error.message);
  };
  auto weights = Read(path);
  if (!weights) return named(weights.error());
  if (ModelFamily(spec.name) == "ConvNeXt") weights->tensors = FromTimm(weights->tensors);
  if (const auto fits = CheckModel(weights->metadata, spec); !fits) return named(fits.error());
  const auto done = CopyWeights(model, weights->tensors, new_head);
  if (!done) return named(done.error());
  const auto theirs = NormalisationIn(weights->metadata);
  const bool others = theirs && *theirs != job.data.normalisation;
  return fmt::format("model.init_from: {}: {}{}", path, *done,
                     others ? "; its images were normalised by another data.mean or data.std" : "");
}

}  // namespace imgd::trainer
