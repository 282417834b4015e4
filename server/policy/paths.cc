#include "server/policy/paths.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "common/url.h"

namespace imgd {
namespace {

bool HasPattern(std::string_view text) { return text.find_first_of("*?[{\\") != std::string_view::npos; }

bool HasOpenBrace(std::string_view part) {
  const size_t last = part.rfind('{');
  return last != std::string_view::npos && part.find('}', last) == std::string_view::npos;
}

/// Of a part without an open brace. No wildcard stands for a dot that comes first (glob(7)).
bool MayBeginWithDot(std::string_view part) {
  while (part.starts_with('{')) {
    const size_t end = part.find('}');
    const std::string words = fmt::format(",{},", part.substr(1, end - 1));
    if (words.find(",.") != std::string::npos || words.find(",\\") != std::string::npos) return true;
    if (words.find(",,") == std::string::npos) return false;
    part.remove_prefix(end + 1);  // one of its words is empty
  }
  return part.starts_with('.') || part.starts_with('\\');
}

}  // namespace

std::string PathAsRead(const std::string& path) {
  const auto normal = [](const std::string& text) {
    return std::filesystem::path(text).lexically_normal().native();
  };
  if (!IsUrl(path)) return normal(path);
  const size_t host = path.find("://") + 3;
  const size_t end = std::min(path.find('/', host), path.size());
  const std::string behind = normal("." + path.substr(end));
  const bool leads_above = behind == ".." || behind.starts_with("../");
  return path.substr(0, host) + (leads_above ? behind : normal(path.substr(host)));
}

std::string ProgramAsRead(const std::string& program) {
  if (program.find('/') == std::string::npos) return program;
  const std::string path = std::filesystem::path(program).lexically_normal().native();
  return path.starts_with('/') || path.starts_with("../") ? path : "./" + path;
}

std::optional<std::string_view> PartThatLeadsElsewhere(std::string_view path) {
  if (!HasPattern(path)) return std::nullopt;
  for (size_t begin = 0; begin < path.size();) {
    const size_t end = std::min(path.find('/', begin), path.size());
    const std::string_view part = path.substr(begin, end - begin);
    if (part == ".." || HasOpenBrace(part) || (HasPattern(part) && MayBeginWithDot(part))) return part;
    begin = end + 1;
  }
  return std::nullopt;
}

}  // namespace imgd
