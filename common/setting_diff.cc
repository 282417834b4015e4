#include "common/setting_diff.h"

#include <fmt/format.h>
#include <yaml-cpp/yaml.h>

namespace imgd {
namespace {

void FlattenInto(const YAML::Node& node, const std::string& path, SettingMap& out) {
  if (node.IsMap()) {
    for (const auto& item : node) {
      if (item.second.IsNull()) continue;  // as one that is left out
      const auto key = item.first.as<std::string>("?");
      FlattenInto(item.second, path.empty() ? key : path + "." + key, out);
    }
  } else if (node.IsSequence()) {
    for (size_t i = 0; i < node.size(); ++i) FlattenInto(node[i], fmt::format("{}[{}]", path, i), out);
  } else if (!path.empty()) {
    out[path] = node.IsScalar() ? node.Scalar() : "null";
  }
}

}  // namespace

SettingMap SettingsOfYaml(const std::string& yaml) {
  SettingMap out;
  try {
    FlattenInto(YAML::Load(yaml), "", out);
  } catch (const YAML::Exception&) {
    out.clear();
  }
  return out;
}

std::vector<Difference> SettingsThatDiffer(const SettingMap& a, const SettingMap& b) {
  std::vector<Difference> out;
  for (const auto& [name, value] : a) {
    const auto other = b.find(name);
    if (other == b.end() || other->second != value)
      out.push_back({name, value, other == b.end() ? "" : other->second});
  }
  for (const auto& [name, value] : b) {
    if (!a.contains(name)) out.push_back({name, "", value});
  }
  return out;
}

}  // namespace imgd
