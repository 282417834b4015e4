#include "trainer/data/output_names.h"

#include <algorithm>
#include <unordered_set>

#include "trainer/data/image_name.h"

namespace imgd::data {
namespace {

constexpr size_t kNamesBetweenPolls = 1024;

/// The names of a set that were given so far.
class TakenNames {
 public:
  explicit TakenNames(const OutputSet& output) : output_(output) {}

  bool Take(std::string_view name, int32_t label) {
    return keys_.insert(UniqueNameOf(output_, name, label)).second;
  }

  std::string TakeLike(std::string_view name, int32_t label) {
    const std::string_view stem = WithoutImageEnding(name);
    const std::string_view ending = name.substr(stem.size());
    if (!ending.empty()) {
      std::string with_ending = fmt::format("{}_{}{}", stem, ending.substr(1), ending);
      if (Take(with_ending, label)) return with_ending;
    }
    // Counts on, so that many images of one name don't try all numbers each.
    uint64_t& number = numbers_.try_emplace(UniqueNameOf(output_, name, label), 1).first->second;
    for (;;) {
      std::string numbered = fmt::format("{}_{}{}", stem, ++number, ending);
      if (Take(numbered, label)) return numbered;
    }
  }

 private:
  const OutputSet& output_;
  std::unordered_set<std::string> keys_;
  std::unordered_map<std::string, uint64_t> numbers_;
};

}  // namespace

std::string SafeName(std::string_view name, bool no_hidden) {
  std::string out;
  for (size_t start = 0; start <= name.size();) {
    const size_t slash = std::min(name.find('/', start), name.size());
    const std::string_view part = name.substr(start, slash - start);
    start = slash + 1;
    if (part.empty() || part == "." || part == "..") continue;
    if (!out.empty()) out += '/';
    const size_t first = out.size();
    out += part;
    if (no_hidden && out[first] == '.') out[first] = '_';
  }
  return out;
}

Result<NewNames> NameImages(const Dataset& set, const OutputSet& output, const std::function<Status()>& poll,
                            ConvertReport& report) {
  NewNames changed;
  TakenNames taken(output);
  for (size_t i = 0; i < set.size(); ++i) {
    if (i % kNamesBetweenPolls == 0) IMGD_TRY(poll());
    const std::string given = set.name(i);
    std::string name = SafeName(given, output.form == OutputForm::kImageFolder);
    if (name.empty()) name = fmt::format("{:08}", i);
    const bool safe = name == given;
    const bool unique = taken.Take(name, set.label(i));
    if (!unique) name = taken.TakeLike(name, set.label(i));
    if (safe && unique) continue;
    report.AddRenamed(safe ? "not_unique" : "unsafe_path", fmt::format("{}: as {}", given, name));
    changed.emplace(static_cast<uint32_t>(i), std::move(name));
  }
  return changed;
}

}  // namespace imgd::data
