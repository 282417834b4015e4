#include "trainer/loop/pickle.h"

#include <bit>
#include <cstring>
#include <optional>
#include <unordered_map>

namespace imgd::trainer {
namespace {

/// Opcodes, by the names of Lib/pickletools.py.
enum Op : uint8_t {
  kMark = '(',
  kStop = '.',
  kBinInt = 'J',
  kBinInt1 = 'K',
  kBinInt2 = 'M',
  kNone = 'N',
  kBinPersId = 'Q',
  kReduce = 'R',
  kBinUnicode = 'X',
  kAppend = 'a',
  kBuild = 'b',
  kGlobal = 'c',
  kAppends = 'e',
  kBinGet = 'h',
  kLongBinGet = 'j',
  kBinPut = 'q',
  kLongBinPut = 'r',
  kSetItem = 's',
  kTuple = 't',
  kSetItems = 'u',
  kBinFloat = 'G',
  kEmptyTuple = ')',
  kEmptyList = ']',
  kEmptyDict = '}',
  kProto = 0x80,
  kNewObj = 0x81,
  kTuple1 = 0x85,
  kTuple2 = 0x86,
  kTuple3 = 0x87,
  kNewTrue = 0x88,
  kNewFalse = 0x89,
  kLong1 = 0x8a,
  kShortBinUnicode = 0x8c,
  kEmptySet = 0x8f,
  kAddItems = 0x90,
  kStackGlobal = 0x93,
  kMemoize = 0x94,
  kFrame = 0x95,
};

struct MarkOnStack {};
using Slot = std::variant<PickleValue, MarkOnStack>;

class Machine {
 public:
  explicit Machine(std::string_view bytes) : bytes_(bytes) {}

  Result<Pickle> Run() {
    while (at_ < bytes_.size()) {
      const auto op = static_cast<uint8_t>(bytes_[at_++]);
      if (op == kStop) {
        auto top = Pop();
        if (!top) return Bad("it ends with nothing");
        out_.root = std::move(*top);
        return std::move(out_);
      }
      if (!Step(op)) return Bad(fmt::format("opcode 0x{:02x}", op));
    }
    return Bad("it has no end");
  }

 private:
  tl::unexpected<Error> Bad(std::string_view what) const {
    return Fail(ErrorCode::kInvalidArgument, "not a pickle that can be read: {} at byte {}", what, at_);
  }

  bool Step(uint8_t op) {
    switch (op) {
      case kProto:
        return Take(1).has_value();
      case kFrame:
        return Take(8).has_value();
      case kMark:
        stack_.emplace_back(MarkOnStack());
        return true;
      case kBinPut:
        return Put(Number(1));
      case kLongBinPut:
        return Put(Number(4));
      case kMemoize:
        return Put(memo_.size());
      case kBinGet:
        return Get(Number(1));
      case kLongBinGet:
        return Get(Number(4));
      case kTuple1:
      case kTuple2:
      case kTuple3:
        return MakeTuple(op - kTuple1 + 1U);
      case kTuple:
        return MarkedTuple();
      case kAppend:
      case kAppends:
      case kAddItems:
        return Append(op != kAppend);
      case kSetItem:
      case kSetItems:
        return SetItems(op == kSetItems);
      case kGlobal:
      case kStackGlobal:
        return Global(op == kStackGlobal);
      case kReduce:
      case kNewObj:
        return Call();
      case kBuild:
        return Pop().has_value() && !stack_.empty();  // attributes are not looked at
      case kBinPersId:
        return Persistent();
      default:
        return Constant(op);
    }
  }

  /// What stands for itself.
  bool Constant(uint8_t op) {
    switch (op) {
      case kNone:
        return Push({});
      case kNewTrue:
      case kNewFalse:
        return Push({op == kNewTrue});
      case kEmptyTuple:
      case kEmptyList:
      case kEmptySet:
        return Push(Listed({}));
      case kEmptyDict:
        return Push({NewDict()});
      case kBinInt: {
        const auto number = Number(4);
        return number && Push({int64_t{static_cast<int32_t>(*number)}});
      }
      case kBinInt1:
      case kBinInt2: {
        const auto number = Number(op == kBinInt1 ? 1 : 2);
        return number && Push({static_cast<int64_t>(*number)});
      }
      case kLong1:
        return Long();
      case kBinFloat: {
        const auto text = Take(8);
        if (!text) return false;
        uint64_t bits = 0;
        for (const char c : *text) bits = bits << 8 | static_cast<uint8_t>(c);
        return Push({std::bit_cast<double>(bits)});
      }
      case kBinUnicode:
      case kShortBinUnicode: {
        const auto size = Number(op == kBinUnicode ? 4 : 1);
        const auto text = size ? Take(*size) : std::nullopt;
        return text && Push({std::string(*text)});
      }
      default:
        return false;
    }
  }

  PickleValue Listed(PickleList items) {
    out_.lists.push_back(std::move(items));
    return {&out_.lists.back()};
  }

  PickleDict* NewDict() { return &out_.dicts.emplace_back(); }

  std::optional<std::string_view> Take(uint64_t count) {
    if (count > bytes_.size() - at_) return std::nullopt;
    at_ += count;
    return bytes_.substr(at_ - count, count);
  }

  /// Little endian.
  std::optional<uint64_t> Number(size_t size) {
    const auto text = Take(size);
    if (!text) return std::nullopt;
    uint64_t number = 0;
    for (size_t i = 0; i < size; ++i) number |= uint64_t{static_cast<uint8_t>((*text)[i])} << (8 * i);
    return number;
  }

  /// Two's complement of as many bytes as the number needs, up to 8.
  bool Long() {
    const auto size = Number(1);
    if (!size || *size > 8) return false;
    const auto number = Number(*size);
    if (!number) return false;
    const unsigned unused = 64 - 8 * static_cast<unsigned>(*size);
    return Push({*size == 0 ? int64_t{0} : static_cast<int64_t>(*number << unused) >> unused});
  }

  std::optional<std::string_view> Line() {
    const size_t end = bytes_.find('\n', at_);
    if (end == std::string_view::npos) return std::nullopt;
    const auto line = bytes_.substr(at_, end - at_);
    at_ = end + 1;
    return line;
  }

  bool Push(PickleValue value) {
    stack_.emplace_back(std::move(value));
    return true;
  }

  std::optional<PickleValue> Pop() {
    if (stack_.empty() || !std::holds_alternative<PickleValue>(stack_.back())) return std::nullopt;
    auto value = std::get<PickleValue>(std::move(stack_.back()));
    stack_.pop_back();
    return value;
  }

  /// What lies above the last mark, which goes too.
  std::optional<PickleList> PopToMark() {
    size_t mark = stack_.size();
    while (mark > 0 && !std::holds_alternative<MarkOnStack>(stack_[mark - 1])) --mark;
    if (mark == 0) return std::nullopt;
    PickleList out;
    for (size_t i = mark; i < stack_.size(); ++i) out.push_back(std::get<PickleValue>(std::move(stack_[i])));
    stack_.resize(mark - 1);
    return out;
  }

  PickleValue* Top() { return stack_.empty() ? nullptr : std::get_if<PickleValue>(&stack_.back()); }

  bool Put(std::optional<uint64_t> key) {
    const PickleValue* top = Top();
    if (!key || top == nullptr) return false;
    memo_[*key] = *top;
    return true;
  }

  bool Get(std::optional<uint64_t> key) {
    const auto found = key ? memo_.find(*key) : memo_.end();
    return found != memo_.end() && Push(found->second);
  }

  bool MakeTuple(size_t count) {
    PickleList items(count);
    for (size_t i = count; i > 0; --i) {
      auto item = Pop();
      if (!item) return false;
      items[i - 1] = std::move(*item);
    }
    return Push(Listed(std::move(items)));
  }

  bool MarkedTuple() {
    auto items = PopToMark();
    return items && Push(Listed(std::move(*items)));
  }

  bool Append(bool marked) {
    std::optional<PickleList> items;
    if (marked) {
      items = PopToMark();
    } else if (auto one = Pop()) {
      items = PickleList{std::move(*one)};
    }
    PickleValue* top = Top();
    if (!items || top == nullptr) return false;
    const auto* list = top->As<PickleList*>();
    if (list == nullptr) return false;
    for (auto& item : *items) (*list)->push_back(std::move(item));
    return true;
  }

  bool SetItems(bool marked) {
    std::optional<PickleList> items;
    if (marked) {
      items = PopToMark();
    } else if (auto value = Pop()) {
      if (auto key = Pop()) items = PickleList{std::move(*key), std::move(*value)};
    }
    PickleValue* top = Top();
    if (!items || items->size() % 2 != 0 || top == nullptr) return false;
    const auto* dict = top->As<PickleDict*>();
    if (dict == nullptr) return top->As<PickleCall>() != nullptr;  // of an object that is not looked into
    for (size_t i = 0; i < items->size(); i += 2)
      (*dict)->emplace_back(std::move((*items)[i]), std::move((*items)[i + 1]));
    return true;
  }

  bool Global(bool from_stack) {
    if (from_stack) {
      const auto name = Pop();
      const auto module = Pop();
      if (!name || !module || !name->Text() || !module->Text()) return false;
      return Push({PickleGlobal{*module->Text() + "." + *name->Text()}});
    }
    const auto module = Line();
    const auto name = Line();
    return module && name && Push({PickleGlobal{std::string(*module) + "." + std::string(*name)}});
  }

  bool Call() {
    const auto arguments = Pop();
    const auto function = Pop();
    if (!arguments || !function || !function->As<PickleGlobal>() || arguments->List() == nullptr)
      return false;
    const std::string& name = function->As<PickleGlobal>()->name;
    if (name == "collections.OrderedDict" && arguments->List()->empty()) return Push({NewDict()});
    return Push({PickleCall{name, arguments->List()}});
  }

  bool Persistent() {
    const auto id = Pop();
    if (!id || id->List() == nullptr) return false;
    return Push({PicklePersistent{id->List()}});
  }

  std::string_view bytes_;
  size_t at_ = 0;
  Pickle out_;
  std::vector<Slot> stack_;
  std::unordered_map<uint64_t, PickleValue> memo_;
};

}  // namespace

Result<Pickle> ReadPickle(std::string_view bytes) { return Machine(bytes).Run(); }

}  // namespace imgd::trainer
