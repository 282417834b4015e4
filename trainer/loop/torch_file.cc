#include "trainer/loop/torch_file.h"

#include <caffe2/serialize/inline_container.h>

#include <cstring>
#include <sstream>

#include "trainer/loop/pickle.h"

namespace imgd::trainer {
namespace {

using Tensors = std::map<std::string, at::Tensor>;

std::optional<at::ScalarType> StorageType(std::string_view storage) {
  if (storage == "torch.FloatStorage") return at::kFloat;
  if (storage == "torch.HalfStorage") return at::kHalf;
  if (storage == "torch.BFloat16Storage") return at::kBFloat16;
  if (storage == "torch.DoubleStorage") return at::kDouble;
  if (storage == "torch.LongStorage") return at::kLong;
  if (storage == "torch.IntStorage") return at::kInt;
  return std::nullopt;
}

std::optional<std::vector<int64_t>> Numbers(const PickleValue& value) {
  if (value.List() == nullptr) return std::nullopt;
  std::vector<int64_t> out;
  for (const auto& item : *value.List()) {
    const auto* number = item.As<int64_t>();
    if (number == nullptr || *number < 0) return std::nullopt;
    out.push_back(*number);
  }
  return out;
}

/// One past the last element that a view touches; nothing where that is more than can be.
std::optional<int64_t> EndOf(int64_t offset, const std::vector<int64_t>& sizes,
                             const std::vector<int64_t>& strides) {
  int64_t end = offset + 1;
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] == 0) return offset;
    int64_t step = 0;
    if (__builtin_mul_overflow(sizes[i] - 1, strides[i], &step) || __builtin_add_overflow(end, step, &end))
      return std::nullopt;
  }
  return end;
}

class Archive {
 public:
  explicit Archive(const std::string& text) : stream_(text), reader_(&stream_) {}

  std::string Record(const std::string& name) {
    auto [data, size] = reader_.getRecord(name);
    return {static_cast<const char*>(data.get()), size};
  }

  /// The tensor that a call of one of torch._utils' functions makes; nothing for other calls.
  Result<std::optional<at::Tensor>> TensorOf(const PickleCall& call) {
    const PickleList& arguments = *call.arguments;
    if (call.function == "torch._utils._rebuild_parameter" && !arguments.empty()) {
      const auto* inner = arguments[0].As<PickleCall>();
      if (inner != nullptr && inner->function == "torch._utils._rebuild_tensor_v2") return TensorOf(*inner);
    }
    if (call.function != "torch._utils._rebuild_tensor_v2") return std::optional<at::Tensor>();
    if (arguments.size() < 4) return Damaged();
    const auto* storage = arguments[0].As<PicklePersistent>();
    const auto* offset = arguments[1].As<int64_t>();
    const auto sizes = Numbers(arguments[2]);
    const auto strides = Numbers(arguments[3]);
    if (storage == nullptr || offset == nullptr || *offset < 0 || !sizes || !strides ||
        sizes->size() != strides->size())
      return Damaged();
    IMGD_ASSIGN(const auto flat, StorageOf(*storage));
    const auto end = EndOf(*offset, *sizes, *strides);
    if (!end || *end > flat.numel()) return Damaged();
    return std::optional(flat.as_strided(*sizes, *strides, *offset));
  }

 private:
  static tl::unexpected<Error> Damaged() {
    return Fail(ErrorCode::kInvalidArgument, "a tensor in it is not described as torch.save() does");
  }

  /// ("storage", type, key, device, elements); each is read once.
  Result<at::Tensor> StorageOf(const PicklePersistent& persistent) {
    const PickleList& id = *persistent.id;
    if (id.size() < 5 || id[1].As<PickleGlobal>() == nullptr || id[2].Text() == nullptr) return Damaged();
    const auto& type_name = id[1].As<PickleGlobal>()->name;
    const auto type = StorageType(type_name);
    if (!type) return Fail(ErrorCode::kInvalidArgument, "it has tensors of type {}", type_name);
    const std::string& key = *id[2].Text();
    if (const auto known = storages_.find(key); known != storages_.end()) return known->second;
    const std::string bytes = Record("data/" + key);
    auto flat = at::empty({static_cast<int64_t>(bytes.size() / c10::elementSize(*type))}, *type);
    std::memcpy(flat.data_ptr(), bytes.data(), flat.nbytes());
    return storages_[key] = flat;
  }

  std::istringstream stream_;
  caffe2::serialize::PyTorchStreamReader reader_;
  Tensors storages_;
};

/// The dict, or the one in it that is called so.
const PickleDict* StateDictIn(const PickleDict& dict) {
  for (const auto& [key, value] : dict) {
    if (key.Text() != nullptr && (*key.Text() == "state_dict" || *key.Text() == "model") &&
        value.Dict() != nullptr)
      return value.Dict();
  }
  return &dict;
}

Result<Tensors> ReadAll(const std::string& text) {
  Archive archive(text);
  IMGD_ASSIGN(const auto pickle, ReadPickle(archive.Record("data.pkl")));
  if (pickle.root.Dict() == nullptr) return Fail(ErrorCode::kInvalidArgument, "it holds no state dict");
  Tensors out;
  for (const auto& [key, value] : *StateDictIn(*pickle.root.Dict())) {
    const auto* call = value.As<PickleCall>();
    if (key.Text() == nullptr || call == nullptr) continue;
    IMGD_ASSIGN(auto tensor, archive.TensorOf(*call));
    if (tensor) out[*key.Text()] = std::move(*tensor);
  }
  if (out.empty()) return Fail(ErrorCode::kInvalidArgument, "it holds no tensors");
  return out;
}

}  // namespace

bool IsTorchFile(std::string_view text) { return text.starts_with("PK\x03\x04"); }

Result<std::map<std::string, at::Tensor>> ReadTorchFile(const std::string& text) {
  try {
    return ReadAll(text);
  } catch (const c10::Error& e) {
    const std::string what = e.what_without_backtrace();
    return Fail(ErrorCode::kInvalidArgument, "LibTorch can't read it: {}", what.substr(0, what.find('\n')));
  }
}

std::string TorchFileRecord(const std::string& text, const std::string& name) {
  try {
    std::istringstream stream(text);
    caffe2::serialize::PyTorchStreamReader reader(&stream);
    if (!reader.hasRecord(name)) return "";
    const auto [data, size] = reader.getRecord(name);
    return {static_cast<const char*>(data.get()), size};
  } catch (const c10::Error&) {
    return "";
  }
}

}  // namespace imgd::trainer
