#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/error.h"
#include "common/yaml.h"

namespace imgd {

/// Which EC2 instances may join by what EC2 says of them (ec2_join in imgd.yaml); none where it is empty.
struct Ec2JoinConfig {
  std::vector<std::string> accounts;                  ///< of AWS, 12 digits
  std::map<std::string, std::string> regions;         ///< by name, the PEM file of EC2's certificate there
  std::optional<std::vector<std::string>> instances;  ///< by id; nothing: any
  std::optional<std::vector<std::string>> images;     ///< by id; nothing: any
  bool any_instance = false;                          ///< leave for both to be nothing
  int64_t max_age_ms = 3600 * 1000;  ///< since an instance was started; 0: it does not matter
  bool operator==(const Ec2JoinConfig&) const = default;

  bool On() const { return *this != Ec2JoinConfig(); }
};

/// Reads the mapping; its errors are the map's.
Ec2JoinConfig ReadEc2Join(YamlMap& root);

/// Errors: kInvalidArgument where there are no accounts or no regions, an account is none, a list of
/// instances or images is empty, or there is neither list and nobody says that any instance is meant.
Status CheckEc2Join(const Ec2JoinConfig& config);

}  // namespace imgd
