#include "trainer/data/matlab.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <optional>
#include <span>
#include <string_view>

#include "trainer/data/inflate.h"

namespace imgd::data {
namespace {

constexpr size_t kMatHeaderBytes = 128;
constexpr size_t kTagBytes = 8;
constexpr size_t kMostMatUnpacked = size_t{16} << 20;  ///< of all compressed variables
constexpr size_t kMostArrays = 200'000;
constexpr int kMostDepth = 16;
constexpr size_t kMostDimensions = 32;
constexpr size_t kMostFields = 4096;

enum DataType : uint32_t {
  kInt8 = 1,
  kUint8 = 2,
  kInt16 = 3,
  kUint16 = 4,
  kInt32 = 5,
  kUint32 = 6,
  kSingle = 7,
  kDouble = 9,
  kInt64 = 12,
  kUint64 = 13,
  kMatrix = 14,
  kCompressed = 15,
  kUtf8 = 16,
  kUtf16 = 17,
};

enum ArrayClass : uint8_t { kCell = 1, kStruct = 2, kChar = 4, kDoubleArray = 6, kUint64Array = 15 };

struct Element {
  uint32_t type = 0;
  std::string_view data;
  size_t at = 0;  ///< of its data
};

template <typename T>
T Load(std::string_view bytes, size_t at = 0) {
  T value{};
  std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}

template <typename T>
void AppendAll(std::string_view data, std::vector<double>& out) {
  out.reserve(out.size() + data.size() / sizeof(T));
  for (size_t at = 0; at + sizeof(T) <= data.size(); at += sizeof(T))
    out.push_back(static_cast<double>(Load<T>(data, at)));
}

/// False for a type that is no number's.
bool AppendNumbers(const Element& element, std::vector<double>& out) {
  switch (element.type) {
    case kInt8:
      AppendAll<int8_t>(element.data, out);
      return true;
    case kUint8:
      AppendAll<uint8_t>(element.data, out);
      return true;
    case kInt16:
      AppendAll<int16_t>(element.data, out);
      return true;
    case kUint16:
      AppendAll<uint16_t>(element.data, out);
      return true;
    case kInt32:
      AppendAll<int32_t>(element.data, out);
      return true;
    case kUint32:
      AppendAll<uint32_t>(element.data, out);
      return true;
    case kSingle:
      AppendAll<float>(element.data, out);
      return true;
    case kDouble:
      AppendAll<double>(element.data, out);
      return true;
    case kInt64:
      AppendAll<int64_t>(element.data, out);
      return true;
    case kUint64:
      AppendAll<uint64_t>(element.data, out);
      return true;
    default:
      return false;
  }
}

void AppendUtf8(std::string& out, uint32_t code) {
  const auto tail = [&](int shift) { out += static_cast<char>(0x80 | (code >> shift & 0x3F)); };
  if (code < 0x80) {
    out += static_cast<char>(code);
  } else if (code < 0x800) {
    out += static_cast<char>(0xC0 | code >> 6);
    tail(0);
  } else if (code < 0x10000) {
    out += static_cast<char>(0xE0 | code >> 12);
    tail(6);
    tail(0);
  } else {
    out += static_cast<char>(0xF0 | code >> 18);
    tail(12);
    tail(6);
    tail(0);
  }
}

std::string FromUtf16(std::string_view data) {
  constexpr uint32_t kUnknown = 0xFFFD;
  std::string out;
  for (size_t at = 0; at + 2 <= data.size(); at += 2) {
    uint32_t code = Load<uint16_t>(data, at);
    if (code >= 0xD800 && code < 0xE000) {
      const uint32_t low = at + 4 <= data.size() ? Load<uint16_t>(data, at + 2) : 0;
      const bool pair = code < 0xDC00 && low >= 0xDC00 && low < 0xE000;
      code = pair ? 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00) : kUnknown;
      if (pair) at += 2;
    }
    AppendUtf8(out, code);
  }
  return out;
}

/// Reads the elements of one stretch of bytes, one after the other.
class Reader {
 public:
  /// `where`: for messages. `arrays`: how many there have been so far, in all.
  Reader(std::string_view bytes, size_t at, const std::string& where, size_t& arrays)
      : rest_(bytes), at_(at), where_(where), arrays_(arrays) {}

  bool empty() const { return rest_.empty(); }

  tl::unexpected<Error> Bad(std::string_view what) const {
    return Fail(ErrorCode::kDataLoss, "{} is no good MATLAB file at byte {}: {}", where_, at_, what);
  }

  /// The next element with its padding taken off.
  Result<Element> Next() {
    if (rest_.size() < kTagBytes) return Bad("it ends within an element");
    const auto type = Load<uint32_t>(rest_);
    // Up to four bytes of data may stand in the tag itself.
    if (type >> 16 != 0) {
      const size_t size = type >> 16;
      if (size > 4) return Bad("a small element of more than four bytes");
      return Take({type & 0xFFFF, rest_.substr(4, size), at_ + 4}, kTagBytes);
    }
    const auto size = Load<uint32_t>(rest_, 4);
    if (size > rest_.size() - kTagBytes) {
      return Bad(fmt::format("an element of {} bytes, where {} are left", size, rest_.size() - kTagBytes));
    }
    const size_t padded = type == kCompressed ? size : (size_t{size} + 7) / 8 * 8;
    return Take({type, rest_.substr(kTagBytes, size), at_ + kTagBytes},
                std::min(kTagBytes + padded, rest_.size()));
  }

  Result<MatArray> NextArray(int depth) {
    IMGD_ASSIGN(const Element element, Next());
    if (element.type != kMatrix)
      return Bad(fmt::format("an element of type {} where an array is", element.type));
    return ReadArray(element, depth);
  }

  Result<MatArray> ReadArray(const Element& element, int depth) const {
    if (depth > kMostDepth) return Bad(fmt::format("arrays more than {} deep", kMostDepth));
    if (++arrays_ > kMostArrays) return Bad(fmt::format("more than {} arrays", kMostArrays));
    MatArray array;
    array.kind = MatArray::Kind::kNumbers;
    if (element.data.empty()) return array;  // how empty cells are written
    Reader inner(element.data, element.at, where_, arrays_);
    IMGD_TRY(inner.ReadContent(array, depth));
    return array;
  }

 private:
  Element Take(Element element, size_t size) {
    rest_.remove_prefix(size);
    at_ += size;
    return element;
  }

  Status ReadContent(MatArray& array, int depth) {
    IMGD_ASSIGN(const Element flags, Next());
    if (flags.type != kUint32 || flags.data.size() != 8) return Bad("an array without flags");
    const auto kind = static_cast<uint8_t>(flags.data[0]);
    IMGD_ASSIGN(const Element dimensions, Next());
    IMGD_TRY(ReadDimensions(dimensions, array));
    IMGD_ASSIGN(const Element name, Next());
    array.name = std::string(name.data);
    if (kind == kCell) return ReadCells(array, depth);
    if (kind == kStruct) return ReadStructs(array, depth);
    if (kind == kChar) return ReadText(array);
    if (kind >= kDoubleArray && kind <= kUint64Array) return ReadNumbers(array);
    array.kind = MatArray::Kind::kOther;
    return {};
  }

  Status ReadDimensions(const Element& element, MatArray& array) const {
    const size_t n = element.data.size() / 4;
    if (element.type != kInt32 || n < 2 || n > kMostDimensions) return Bad("an array without dimensions");
    for (size_t i = 0; i < n; ++i) {
      const auto size = Load<int32_t>(element.data, i * 4);
      if (size < 0) return Bad("a dimension below zero");
      array.dimensions.push_back(static_cast<uint32_t>(size));
    }
    return {};
  }

  Status ReadNumbers(MatArray& array) {
    array.kind = MatArray::Kind::kNumbers;
    IMGD_ASSIGN(const Element real, Next());
    if (!AppendNumbers(real, array.numbers)) return Bad(fmt::format("numbers of the type {}", real.type));
    if (array.numbers.size() == array.count()) return {};
    return Bad(
        fmt::format("{} numbers, where the dimensions ask for {}", array.numbers.size(), array.count()));
  }

  Status ReadText(MatArray& array) {
    array.kind = MatArray::Kind::kText;
    IMGD_ASSIGN(const Element text, Next());
    if (text.type == kUint8 || text.type == kInt8 || text.type == kUtf8) {
      array.text = std::string(text.data);
    } else if (text.type == kUint16 || text.type == kUtf16) {
      array.text = FromUtf16(text.data);
    } else {
      return Bad(fmt::format("text of the type {}", text.type));
    }
    return {};
  }

  Status ReadCells(MatArray& array, int depth) {
    array.kind = MatArray::Kind::kCells;
    return ReadItems(array, array.count(), depth);
  }

  Status ReadStructs(MatArray& array, int depth) {
    array.kind = MatArray::Kind::kStructs;
    IMGD_ASSIGN(const Element length, Next());
    if (length.type != kInt32 || length.data.size() != 4)
      return Bad("a struct without the length of its names");
    const auto size = Load<uint32_t>(length.data);
    IMGD_ASSIGN(const Element names, Next());
    if (size == 0 || names.data.size() % size != 0 || names.data.size() / size > kMostFields)
      return Bad("a struct whose fields' names can't be read");
    for (size_t at = 0; at < names.data.size(); at += size) {
      const auto name = names.data.substr(at, size);
      array.fields.emplace_back(name.substr(0, name.find('\0')));
    }
    const uint64_t elements = array.count();
    if (elements > kMostArrays) return Bad(fmt::format("more than {} structs", kMostArrays));
    return ReadItems(array, elements * array.fields.size(), depth);
  }

  Status ReadItems(MatArray& array, uint64_t n, int depth) {
    if (n > rest_.size() / kTagBytes)
      return Bad(fmt::format("{} arrays, where {} bytes are left", n, rest_.size()));
    for (uint64_t i = 0; i < n; ++i) {
      IMGD_ASSIGN(auto item, NextArray(depth + 1));
      array.items.push_back(std::move(item));
    }
    return {};
  }

  std::string_view rest_;
  size_t at_;
  const std::string& where_;
  size_t& arrays_;
};

Status CheckHeader(std::string_view bytes, const std::string& name) {
  if (bytes.starts_with("MATLAB 7.3"))
    return Fail(ErrorCode::kInvalidArgument, "{} is a MATLAB 7.3 (HDF5) file; level 5 files are read", name);
  const std::string_view order = bytes.size() >= kMatHeaderBytes ? bytes.substr(126, 2) : std::string_view();
  if (order == "MI") return Fail(ErrorCode::kInvalidArgument, "{} is a big-endian MATLAB file", name);
  if (order != "IM" || Load<uint16_t>(bytes, 124) != 0x0100)
    return Fail(ErrorCode::kDataLoss, "{} is no MATLAB file of level 5", name);
  return {};
}

}  // namespace

uint64_t MatArray::count() const {
  if (dimensions.empty()) return 0;
  uint64_t n = 1;
  for (const uint32_t size : dimensions) {
    if (size != 0 && n > std::numeric_limits<uint64_t>::max() / size)
      return std::numeric_limits<uint64_t>::max();
    n *= size;
  }
  return n;
}

Result<std::vector<MatArray>> ReadMatFile(const std::string& bytes, const std::string& name) {
  IMGD_TRY(CheckHeader(bytes, name));
  std::vector<MatArray> variables;
  size_t arrays = 0;
  size_t unpacked = 0;
  Reader reader(std::string_view(bytes).substr(kMatHeaderBytes), kMatHeaderBytes, name, arrays);
  while (!reader.empty()) {
    IMGD_ASSIGN(const Element element, reader.Next());
    if (element.type == kCompressed) {
      auto inner = InflateZlib(AsBytes(element.data), kMostMatUnpacked - unpacked);
      if (!inner) return reader.Bad(inner.error().message);
      unpacked += inner->size();
      const std::string where = fmt::format("{}, compressed variable {}", name, variables.size() + 1);
      Reader packed(*inner, 0, where, arrays);
      IMGD_ASSIGN(auto variable, packed.NextArray(0));
      variables.push_back(std::move(variable));
    } else if (element.type == kMatrix) {
      IMGD_ASSIGN(auto variable, reader.ReadArray(element, 0));
      variables.push_back(std::move(variable));
    }
  }
  return variables;
}

}  // namespace imgd::data
