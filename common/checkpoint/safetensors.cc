#include "common/checkpoint/safetensors.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <utility>

namespace imgd {
namespace {

using Json = nlohmann::ordered_json;

constexpr uint64_t kMaxHeader = 100'000'000;  // the reference implementation's limit

constexpr std::pair<std::string_view, size_t> kTypes[] = {
    {"BOOL", 1}, {"U8", 1},  {"I8", 1},  {"F8_E5M2", 1}, {"F8_E4M3", 1}, {"I16", 2}, {"U16", 2}, {"F16", 2},
    {"BF16", 2}, {"I32", 4}, {"U32", 4}, {"F32", 4},     {"F64", 8},     {"I64", 8}, {"U64", 8}};

tl::unexpected<Error> Bad(std::string why) {
  return Fail(ErrorCode::kDataLoss, "not a valid safetensors file: {}", why);
}

/// Bytes of a tensor of this shape; nothing where that is no number we can hold.
std::optional<uint64_t> BytesOf(const std::vector<int64_t>& shape, size_t element) {
  uint64_t total = element;
  for (const int64_t size : shape) {
    if (size < 0) return std::nullopt;
    const auto factor = static_cast<uint64_t>(size);
    if (factor != 0 && total > std::numeric_limits<uint64_t>::max() / factor) return std::nullopt;
    total *= factor;
  }
  return total;
}

/// Parses JSON, and refuses an object that has a key twice, which the parser alone would let pass.
Result<Json> ParseHeader(std::string_view text) {
  std::vector<std::set<std::string>> keys;
  std::string twice;
  const Json::parser_callback_t watch = [&](int, Json::parse_event_t event, Json& parsed) {
    if (event == Json::parse_event_t::object_start) keys.emplace_back();
    if (event == Json::parse_event_t::object_end) keys.pop_back();
    if (event == Json::parse_event_t::key && !keys.back().insert(parsed.get<std::string>()).second) {
      twice = parsed.get<std::string>();
    }
    return true;
  };
  Json json = Json::parse(text, watch, false);
  if (json.is_discarded() || !json.is_object()) return Bad("its header is no JSON object");
  if (!twice.empty()) return Bad(fmt::format("its header has '{}' twice", twice));
  return json;
}

Result<Metadata> ReadMetadata(const Json& json) {
  Metadata metadata;
  if (!json.is_object()) return Bad("__metadata__ is no object");
  for (const auto& [key, value] : json.items()) {
    if (!value.is_string()) return Bad(fmt::format("__metadata__ '{}' is no text", key));
    metadata[key] = value.get<std::string>();
  }
  return metadata;
}

bool IsCount(const Json& json) { return json.is_number_unsigned() && json.get<uint64_t>() <= INT64_MAX; }

Result<TensorView> ReadTensor(const std::string& name, const Json& json, std::string_view data) {
  if (!json.is_object() || !json.contains("dtype") || !json["dtype"].is_string() || !json.contains("shape") ||
      !json["shape"].is_array() || !json.contains("data_offsets") || !json["data_offsets"].is_array()) {
    return Bad(fmt::format("'{}' lacks dtype, shape or data_offsets", name));
  }
  TensorView tensor{.name = name, .dtype = json["dtype"].get<std::string>()};
  const size_t element = ElementBytes(tensor.dtype);
  if (element == 0) return Bad(fmt::format("'{}' has the unknown type '{}'", name, tensor.dtype));
  for (const auto& size : json["shape"]) {
    if (!IsCount(size)) return Bad(fmt::format("'{}' has a size that is no count", name));
    tensor.shape.push_back(size.get<int64_t>());
  }
  const auto& offsets = json["data_offsets"];
  if (offsets.size() != 2 || !IsCount(offsets[0]) || !IsCount(offsets[1])) {
    return Bad(fmt::format("'{}' has no two data_offsets", name));
  }
  const auto begin = offsets[0].get<uint64_t>();
  const auto end = offsets[1].get<uint64_t>();
  if (begin > end || end > data.size()) {
    return Bad(fmt::format("'{}' lies at bytes {} to {} of {}", name, begin, end, data.size()));
  }
  if (BytesOf(tensor.shape, element) != end - begin) {
    return Bad(fmt::format("'{}' has {} bytes, which do not fit its shape", name, end - begin));
  }
  tensor.bytes = data.substr(begin, end - begin);
  return tensor;
}

}  // namespace

size_t ElementBytes(std::string_view dtype) {
  for (const auto& [name, bytes] : kTypes) {
    if (name == dtype) return bytes;
  }
  return 0;
}

Result<std::string> SafetensorsHead(const std::vector<TensorView>& tensors, const Metadata& metadata) {
  Json json = Json::object();
  if (!metadata.empty()) json["__metadata__"] = metadata;
  uint64_t at = 0;
  for (const auto& tensor : tensors) {
    const size_t element = ElementBytes(tensor.dtype);
    if (element == 0 || BytesOf(tensor.shape, element) != tensor.bytes.size()) {
      return Fail(ErrorCode::kInvalidArgument, "tensor '{}': {} bytes do not fit its type {} and shape",
                  tensor.name, tensor.bytes.size(), tensor.dtype);
    }
    if (json.contains(tensor.name)) {
      return Fail(ErrorCode::kInvalidArgument, "tensor '{}' is there twice", tensor.name);
    }
    json[tensor.name] = {
        {"dtype", tensor.dtype}, {"shape", tensor.shape}, {"data_offsets", {at, at + tensor.bytes.size()}}};
    at += tensor.bytes.size();
  }
  std::string header = json.dump();
  header.resize((header.size() + 7) / 8 * 8, ' ');
  std::string head;
  for (size_t i = 0; i < 8; ++i) head.push_back(static_cast<char>((header.size() >> (8 * i)) & 0xff));
  return head + header;
}

const TensorView* SafetensorsContent::Find(std::string_view name) const {
  const auto found =
      std::find_if(tensors.begin(), tensors.end(), [&](const TensorView& t) { return t.name == name; });
  return found == tensors.end() ? nullptr : &*found;
}

Result<SafetensorsContent> ParseSafetensors(std::string_view content) {
  if (content.size() < 8) return Bad(fmt::format("it has {} bytes only", content.size()));
  uint64_t length = 0;
  for (size_t i = 0; i < 8; ++i) {
    length |= static_cast<uint64_t>(static_cast<unsigned char>(content[i])) << (8 * i);
  }
  if (length > kMaxHeader || length > content.size() - 8) {
    return Bad(fmt::format("its header claims {} bytes of {}", length, content.size() - 8));
  }
  const std::string_view text = content.substr(8, length);
  if (!text.starts_with('{')) return Bad("its header does not begin with '{'");
  IMGD_ASSIGN(const Json json, ParseHeader(text));
  const std::string_view data = content.substr(8 + length);

  SafetensorsContent out;
  for (const auto& [name, value] : json.items()) {
    if (name == "__metadata__") {
      IMGD_ASSIGN(out.metadata, ReadMetadata(value));
      continue;
    }
    IMGD_ASSIGN(auto tensor, ReadTensor(name, value, data));
    out.tensors.push_back(std::move(tensor));
  }
  // Empty tensors may share their place with another's begin; by their end they come first.
  std::stable_sort(out.tensors.begin(), out.tensors.end(), [](const TensorView& a, const TensorView& b) {
    return std::pair(a.bytes.data(), a.bytes.size()) < std::pair(b.bytes.data(), b.bytes.size());
  });
  const char* at = data.data();
  for (const auto& tensor : out.tensors) {
    if (tensor.bytes.data() != at) return Bad(fmt::format("a hole or an overlap before '{}'", tensor.name));
    at += tensor.bytes.size();
  }
  if (at != data.data() + data.size()) return Bad("bytes after the last tensor");
  return out;
}

}  // namespace imgd
