#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "common/error.h"

namespace imgd::trainer {

struct PickleValue;
using PickleList = std::vector<PickleValue>;
using PickleDict = std::vector<std::pair<PickleValue, PickleValue>>;

/// Something of Python's that has a name: a class or a function.
struct PickleGlobal {
  std::string name;  ///< "torch._utils._rebuild_tensor_v2"
};

/// A global that was called, or another object that is not looked into.
struct PickleCall {
  std::string function;
  const PickleList* arguments;
};

/// An object that is kept beside the pickle, as torch.save() keeps storages.
struct PicklePersistent {
  const PickleList* id;
};

/// A value that was read. Lists, tuples and sets are lists. Containers belong to the Pickle, since they may
/// hold one another in circles.
struct PickleValue {
  std::variant<std::monostate, bool, int64_t, double, std::string, PickleList*, PickleDict*, PickleGlobal,
               PickleCall, PicklePersistent>
      value;

  /// Null for what is none.
  template <typename T>
  const T* As() const {
    return std::get_if<T>(&value);
  }
  const std::string* Text() const { return As<std::string>(); }
  const PickleDict* Dict() const {
    const auto* dict = As<PickleDict*>();
    return dict != nullptr ? *dict : nullptr;
  }
  const PickleList* List() const {
    const auto* list = As<PickleList*>();
    return list != nullptr ? *list : nullptr;
  }
};

/// What was pickled, with all that it holds.
struct Pickle {
  PickleValue root;
  std::deque<PickleList> lists;
  std::deque<PickleDict> dicts;
};

/// Reads a pickle of protocol 2 to 5, as far as torch.save() uses it. Runs nothing: what Python would call is
/// kept as a PickleCall; an OrderedDict becomes a dict. Source: CPython, Lib/pickletools.py. Errors:
/// kInvalidArgument where it is malformed or uses something else.
Result<Pickle> ReadPickle(std::string_view bytes);

}  // namespace imgd::trainer
