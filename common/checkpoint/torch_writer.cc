#include "common/checkpoint/torch_writer.h"

#include <zlib.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>

namespace imgd {
namespace {

constexpr std::string_view kFolder = "archive/";  ///< of everything in the zip file
constexpr size_t kAlignment = 64;                 ///< of each file's data, as PyTorch has it
constexpr uint16_t kPaddingId = 0x4246;           ///< "FB": PyTorch's extra field
constexpr uint16_t kDosDate = (1 << 5) | 1;       ///< 1980-01-01: no clock in what is written

std::string_view StorageName(std::string_view dtype) {
  static constexpr std::pair<std::string_view, std::string_view> kStorages[] = {
      {"F32", "FloatStorage"}, {"F64", "DoubleStorage"}, {"F16", "HalfStorage"},  {"BF16", "BFloat16Storage"},
      {"I64", "LongStorage"},  {"I32", "IntStorage"},    {"I16", "ShortStorage"}, {"I8", "CharStorage"},
      {"U8", "ByteStorage"},   {"BOOL", "BoolStorage"}};
  for (const auto& [name, storage] : kStorages) {
    if (name == dtype) return storage;
  }
  return "";
}

void Put(std::string& out, uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) out.push_back(static_cast<char>((value >> (8 * i)) & 0xff));
}

/// Opcodes by the names of CPython's Lib/pickletools.py. Nothing is memoized: the same text again is cheap.
class PickleWriter {
 public:
  PickleWriter() { out_ = "\x80\x02"; }

  void Global(std::string_view module, std::string_view name) {
    out_ += fmt::format("c{}\n{}\n", module, name);
  }
  void Text(std::string_view text) {
    out_ += 'X';
    Put(out_, text.size(), 4);
    out_ += text;
  }
  void Int(int64_t value) {
    if (value >= 0 && value <= std::numeric_limits<int32_t>::max()) {
      out_ += 'J';
      Put(out_, static_cast<uint64_t>(value), 4);
      return;
    }
    out_ += "\x8a\x08";
    Put(out_, static_cast<uint64_t>(value), 8);
  }
  void Ints(const std::vector<int64_t>& values) {
    Mark();
    for (const int64_t value : values) Int(value);
    Tuple();
  }
  void EmptyOrderedDict() {
    Global("collections", "OrderedDict");
    out_ += ")R";
  }
  void Mark() { out_ += '('; }
  void Tuple() { out_ += 't'; }
  void PersistentId() { out_ += 'Q'; }
  void Call() { out_ += 'R'; }
  void False() { out_ += '\x89'; }
  void SetItems() { out_ += 'u'; }
  std::string Finish() {
    out_ += '.';
    return std::move(out_);
  }

 private:
  std::string out_;
};

std::vector<int64_t> StridesOf(const std::vector<int64_t>& shape) {
  std::vector<int64_t> strides(shape.size(), 1);
  for (size_t i = shape.size(); i-- > 1;) strides[i - 1] = strides[i] * std::max<int64_t>(shape[i], 1);
  return strides;
}

/// {name: torch._utils._rebuild_tensor_v2(storage, 0, shape, strides, False, OrderedDict())}
Result<std::string> StateDictPickle(const std::vector<TensorView>& tensors) {
  PickleWriter pickle;
  pickle.EmptyOrderedDict();
  pickle.Mark();
  for (size_t i = 0; i < tensors.size(); ++i) {
    const TensorView& tensor = tensors[i];
    const auto storage = StorageName(tensor.dtype);
    if (storage.empty()) {
      return Fail(ErrorCode::kInvalidArgument, "tensor '{}' is of type {}, which torch.save() does not have",
                  tensor.name, tensor.dtype);
    }
    pickle.Text(tensor.name);
    pickle.Global("torch._utils", "_rebuild_tensor_v2");
    pickle.Mark();
    pickle.Mark();
    pickle.Text("storage");
    pickle.Global("torch", storage);
    pickle.Text(std::to_string(i));
    pickle.Text("cpu");
    pickle.Int(static_cast<int64_t>(tensor.bytes.size() / ElementBytes(tensor.dtype)));
    pickle.Tuple();
    pickle.PersistentId();
    pickle.Int(0);
    pickle.Ints(tensor.shape);
    pickle.Ints(StridesOf(tensor.shape));
    pickle.False();
    pickle.EmptyOrderedDict();
    pickle.Tuple();
    pickle.Call();
  }
  pickle.SetItems();
  return pickle.Finish();
}

uint32_t Crc32Of(std::string_view bytes) {
  return static_cast<uint32_t>(
      ::crc32_z(0, reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size()));
}

/// Stored files one after the other, then their directory.
class ZipWriter {
 public:
  explicit ZipWriter(const std::function<Status(std::string_view)>& write) : write_(write) {}

  Status Add(std::string_view name, std::string_view content) {
    const std::string path = std::string(kFolder) + std::string(name);
    // The padding is a field of its own, with a head of 4 bytes.
    const size_t before = at_ + kLocalBytes + path.size() + 4;
    const size_t padding = (kAlignment - before % kAlignment) % kAlignment;
    if (before + padding + content.size() > std::numeric_limits<uint32_t>::max()) {
      return Fail(ErrorCode::kInvalidArgument, "the archive would be larger than 4 GiB");
    }
    const std::string facts = Facts(content);
    std::string head = "PK\x03\x04";
    head += facts;
    Put(head, path.size(), 2);
    Put(head, padding + 4, 2);
    head += path;
    Put(head, kPaddingId, 2);
    Put(head, padding, 2);
    head.append(padding, 'Z');

    directory_ += "PK\x01\x02";
    Put(directory_, kVersion, 2);
    directory_ += facts;
    Put(directory_, path.size(), 2);
    directory_.append(12, '\0');  // no extra field, comment, disk number and attributes
    Put(directory_, at_, 4);
    directory_ += path;
    ++files_;
    IMGD_TRY(Write(head));
    return Write(content);
  }

  Status Finish() {
    const uint64_t begin = at_;
    const uint64_t size = directory_.size();
    if (begin + size > std::numeric_limits<uint32_t>::max() ||
        files_ > std::numeric_limits<uint16_t>::max()) {
      return Fail(ErrorCode::kInvalidArgument, "the archive would be larger than 4 GiB");
    }
    std::string end = "PK\x05\x06";
    Put(end, 0, 4);  // disk numbers
    Put(end, files_, 2);
    Put(end, files_, 2);
    Put(end, size, 4);
    Put(end, begin, 4);
    Put(end, 0, 2);  // no comment
    IMGD_TRY(Write(directory_));
    return Write(end);
  }

 private:
  static constexpr size_t kLocalBytes = 30;
  static constexpr uint16_t kVersion = 20;  ///< of the format that a reader must know

  /// What a file's head and the directory both say of it.
  static std::string Facts(std::string_view content) {
    std::string out;
    Put(out, kVersion, 2);
    Put(out, 0, 2);  // no flags
    Put(out, 0, 2);  // stored
    Put(out, 0, 2);  // midnight
    Put(out, kDosDate, 2);
    Put(out, Crc32Of(content), 4);
    Put(out, content.size(), 4);
    Put(out, content.size(), 4);
    return out;
  }

  Status Write(std::string_view bytes) {
    at_ += bytes.size();
    return write_(bytes);
  }

  const std::function<Status(std::string_view)>& write_;
  uint64_t at_ = 0;
  uint64_t files_ = 0;
  std::string directory_;
};

}  // namespace

Status WriteTorchFile(const std::vector<TensorView>& tensors,
                      const std::vector<std::pair<std::string, std::string_view>>& extra,
                      const std::function<Status(std::string_view)>& write) {
  IMGD_ASSIGN(const std::string pickle, StateDictPickle(tensors));
  ZipWriter zip(write);
  IMGD_TRY(zip.Add("data.pkl", pickle));
  IMGD_TRY(zip.Add("byteorder", "little"));
  for (size_t i = 0; i < tensors.size(); ++i) IMGD_TRY(zip.Add(fmt::format("data/{}", i), tensors[i].bytes));
  for (const auto& [name, content] : extra) IMGD_TRY(zip.Add(name, content));
  IMGD_TRY(zip.Add("version", "3\n"));
  return zip.Finish();
}

}  // namespace imgd
