#include "server/core/needs.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

namespace imgd {
namespace {

constexpr uint64_t kGiB = uint64_t{1} << 30;

/// What a GPU has is less than what it is sold as, of which people think: the driver of a "24 GB" L4 tells of
/// 22.5 GiB, that of a "16 GB" T4 of 14.8.
constexpr double kLeastShareOfMemory = 0.9;

bool IsOfWord(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0; }

/// Takes the first word off the text; empty where there is none.
std::string_view TakeWord(std::string_view& text) {
  const auto begin = std::find_if(text.begin(), text.end(), IsOfWord);
  const auto end = std::find_if_not(begin, text.end(), IsOfWord);
  const std::string_view word(begin, end);
  text = std::string_view(end, text.end());
  return word;
}

bool IsSameWord(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](unsigned char x, unsigned char y) {
    return x == y || std::tolower(x) == std::tolower(y);
  });
}

/// The text begins with these words.
bool BeginsWith(std::string_view text, std::string_view words) {
  while (true) {
    const auto wanted = TakeWord(words);
    if (wanted.empty()) return true;
    if (!IsSameWord(TakeWord(text), wanted)) return false;
  }
}

bool HasOneOf(const Labels& labels, const std::string& name, const std::vector<std::string>& values) {
  const auto label = labels.find(name);
  return label != labels.end() && std::find(values.begin(), values.end(), label->second) != values.end();
}

std::string TextOf(const std::map<std::string, std::vector<std::string>>& labels, std::string_view between) {
  std::string text;
  for (const auto& [name, values] : labels) {
    text += fmt::format("{}{}={}", text.empty() ? "" : between, name, fmt::join(values, "|"));
  }
  return text;
}

}  // namespace

bool IsModel(std::string_view name, std::string_view wanted) {
  std::string_view words = wanted;
  if (TakeWord(words).empty()) return false;
  for (std::string_view rest = name; !rest.empty(); TakeWord(rest)) {
    if (BeginsWith(rest, wanted)) return true;
  }
  return false;
}

bool AsksOfDevices(const Needs& needs) {
  return needs.gpu || needs.cpu || needs.memory_bytes > 0 || !needs.models.empty();
}

bool Does(const Needs& needs, const Device& device) {
  if (needs.gpu && !device.IsGpu()) return false;
  if (needs.cpu && device.IsGpu()) return false;
  if (static_cast<double>(device.memory_bytes) <
      kLeastShareOfMemory * static_cast<double>(needs.memory_bytes))
    return false;
  return needs.models.empty() ||
         std::any_of(needs.models.begin(), needs.models.end(),
                     [&device](const std::string& model) { return IsModel(device.model, model); });
}

bool Does(const Needs& needs, const Labels& labels) {
  return std::all_of(needs.labels.begin(), needs.labels.end(),
                     [&](const auto& wanted) { return HasOneOf(labels, wanted.first, wanted.second); }) &&
         std::none_of(needs.not_labels.begin(), needs.not_labels.end(), [&](const auto& unwanted) {
           return HasOneOf(labels, unwanted.first, unwanted.second);
         });
}

std::string NounFor(const Needs& needs, bool plural) {
  std::string text = needs.gpu ? "GPU" : needs.cpu ? "CPU slot" : "device";
  if (plural) text += "s";
  if (!needs.models.empty()) text = fmt::format("{}", fmt::join(needs.models, " or "));
  if (needs.memory_bytes > 0) text += fmt::format(" of at least {} GiB", needs.memory_bytes / kGiB);
  return text;
}

std::string LabelsFor(const Needs& needs) {
  const std::string with = TextOf(needs.labels, " and ");
  const std::string without = TextOf(needs.not_labels, " or ");
  if (with.empty() && without.empty()) return "";
  return fmt::format(", {}{}{}", with.empty() ? "" : "labelled " + with,
                     with.empty() || without.empty() ? "" : " and ",
                     without.empty() ? "" : "not labelled " + without);
}

}  // namespace imgd
