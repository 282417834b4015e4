#pragma once

#include <map>
#include <string>
#include <vector>

namespace imgd {

/// "train.epochs" and so on, each with its value as it is written.
using SettingMap = std::map<std::string, std::string>;

/// Those of a job file. Empty for what is no YAML: it could not have been trained.
SettingMap SettingsOfYaml(const std::string& yaml);

/// What differs: name, value in A, value in B; an empty text where one lacks it.
struct Difference {
  std::string name, a, b;
};

/// By name, but those that only B has at the end.
std::vector<Difference> SettingsThatDiffer(const SettingMap& a, const SettingMap& b);

}  // namespace imgd
