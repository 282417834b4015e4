#include "trainer/data/subset.h"

#include <algorithm>
#include <filesystem>
#include <sstream>
#include <unordered_map>

#include "common/files.h"
#include "common/text.h"

namespace imgd::data {
namespace {

constexpr size_t kMostClassListBytes = size_t{64} << 20;
constexpr size_t kClassesShown = 5;

}  // namespace

Result<std::unique_ptr<Dataset>> Subset::Of(std::unique_ptr<Dataset> whole,
                                            std::vector<std::string> classes) {
  std::unordered_map<std::string, int32_t> labels;
  for (const auto& name : classes) labels.emplace(name, static_cast<int32_t>(labels.size()));
  auto set = std::make_unique<Subset>();
  for (size_t i = 0; i < whole->size(); ++i) {
    const auto found = labels.find(whole->classes()[static_cast<size_t>(whole->label(i))]);
    if (found == labels.end()) continue;
    set->picks_.push_back(static_cast<uint32_t>(i));
    set->labels_.push_back(found->second);
  }
  if (set->picks_.empty()) return Fail(ErrorCode::kInvalidArgument, "no image is in one of the classes");
  if (!whole->class_words().empty()) {
    set->class_words_.resize(classes.size());
    for (size_t c = 0; c < whole->classes().size(); ++c) {
      const auto found = labels.find(whole->classes()[c]);
      if (found != labels.end())
        set->class_words_[static_cast<size_t>(found->second)] = whole->class_words()[c];
    }
  }
  set->classes_ = std::move(classes);
  set->notes_ = whole->notes();
  set->whole_ = std::move(whole);
  return set;
}

void Subset::WillRead(std::span<const uint32_t> samples) const {
  std::vector<uint32_t> theirs;
  for (const uint32_t sample : samples) theirs.push_back(picks_[sample]);
  whole_->WillRead(theirs);
}

Result<std::vector<std::string>> ParseClasses(const std::string& text) {
  std::string list = text;
  std::error_code error;
  const bool is_file = std::filesystem::is_regular_file(text, error);
  if (is_file) {
    IMGD_ASSIGN(list, ReadFile(text, kMostClassListBytes));
  }
  std::vector<std::string> classes;
  std::istringstream lines(list);
  for (std::string word; std::getline(lines, word, is_file ? '\n' : ',');) {
    if (const auto name = Trimmed(word); !name.empty()) classes.emplace_back(name);
  }
  if (classes.empty()) {
    return Fail(ErrorCode::kInvalidArgument,
                "--classes: found '{}' where names with commas between, or a file with one on each line, are "
                "expected",
                text);
  }
  std::ranges::sort(classes);
  classes.erase(std::unique(classes.begin(), classes.end()), classes.end());
  return classes;
}

Status CheckClasses(const Dataset& set, const std::vector<std::string>& wanted, const std::string& where) {
  for (const auto& name : wanted) {
    if (std::ranges::find(set.classes(), name) != set.classes().end()) continue;
    std::string some;
    for (size_t i = 0; i < std::min(set.classes().size(), kClassesShown); ++i)
      some += (i == 0 ? "" : ", ") + set.classes()[i];
    if (set.classes().size() > kClassesShown) some += ", …";
    return Fail(ErrorCode::kInvalidArgument, "{} has no class '{}'; it has {}: {}", where, name,
                set.classes().size(), some);
  }
  return {};
}

}  // namespace imgd::data
