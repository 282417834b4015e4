#include "server/auth/ec2_config.h"

namespace imgd {

Ec2JoinConfig ReadEc2Join(YamlMap& root) {
  Ec2JoinConfig config;
  auto map = root.Child("ec2_join");
  if (auto accounts = map.StringList("accounts")) config.accounts = std::move(*accounts);
  auto regions = map.Child("regions");
  for (const auto& name : regions.Keys()) {
    if (auto file = regions.String(name)) config.regions[name] = std::move(*file);
  }
  regions.Finish();
  config.instances = map.StringList("instances");
  config.images = map.StringList("images");
  if (const auto any = map.Bool("any_instance")) config.any_instance = *any;
  if (const auto age = map.DurationMs("max_age")) config.max_age_ms = *age;
  map.Finish();
  return config;
}

Status CheckEc2Join(const Ec2JoinConfig& config) {
  if (!config.On()) return {};
  if (config.accounts.empty() || config.regions.empty()) {
    return Fail(ErrorCode::kInvalidArgument,
                "ec2_join: found no {}; the accounts and the regions whose instances join are both needed",
                config.accounts.empty() ? "accounts" : "regions");
  }
  if (!config.instances && !config.images && !config.any_instance) {
    return Fail(ErrorCode::kInvalidArgument,
                "ec2_join: found neither images nor instances: whoever may start instances of these accounts "
                "could add nodes; name some, or say any_instance: true");
  }
  if ((config.instances || config.images) && config.any_instance) {
    return Fail(ErrorCode::kInvalidArgument,
                "ec2_join.any_instance: found beside {}, which says who joins; leave one of the two out",
                config.images ? "images" : "instances");
  }
  for (const auto* list : {&config.instances, &config.images}) {
    if (!*list || !(*list)->empty()) continue;
    return Fail(ErrorCode::kInvalidArgument,
                "ec2_join.{}: found an empty list, by which nobody joins; name some, or leave it out",
                list == &config.instances ? "instances" : "images");
  }
  for (const auto& account : config.accounts) {
    if (account.size() == 12 && account.find_first_not_of("0123456789") == std::string::npos) continue;
    return Fail(ErrorCode::kInvalidArgument, "ec2_join.accounts: found '{}'; 12 digits are expected",
                account);
  }
  return {};
}

}  // namespace imgd
