#include "server/web/scrape_targets.h"

#include <algorithm>
#include <cctype>
#include <nlohmann/json.hpp>

#include "server/web/errors.h"

namespace imgd::web {
namespace {

/// An agent may declare any number of labels; so many become labels of its series.
constexpr size_t kMostLabels = 16;

/// "topology.zone" is "label_topology_zone": names of ours and of Prometheus begin otherwise.
std::string LabelName(const std::string& name) {
  std::string out = "label_" + name;
  std::replace_if(
      out.begin(), out.end(), [](unsigned char c) { return std::isalnum(c) == 0; }, '_');
  return out;
}

nlohmann::json LabelsOf(const NodeRecord& node, const std::string& cluster_id) {
  nlohmann::json labels = {{"cluster", cluster_id}, {"node", node.id.name()}};
  size_t left = kMostLabels;
  for (const auto& [name, value] : node.labels) {
    if (left == 0) break;
    if (labels.emplace(LabelName(name), value).second) --left;
  }
  return labels;
}

}  // namespace

std::optional<std::string> ScrapeTargets(const ClusterView& view, const std::string& cluster_id) {
  nlohmann::json targets = nlohmann::json::array();
  for (const auto& node : view.nodes) {
    if (!node.metrics_address && node.state == NodeState::kReady) return std::nullopt;
    if (node.state == NodeState::kLost || node.metrics_address.value_or("").empty()) continue;
    targets.push_back({{"targets", nlohmann::json::array({*node.metrics_address})},
                       {"labels", LabelsOf(node, cluster_id)}});
  }
  return targets.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

Handler ScrapeTargetsPage(Engine* engine) {
  return [engine](const Request&, const Answer& answer) {
    auto targets = ScrapeTargets(*engine->View(), engine->cluster_id());
    if (targets) {
      answer({.body = std::move(*targets)});
    } else {
      answer(
          ErrorResponse(503, "UNAVAILABLE", "imgd has just begun, and not all of its agents are back yet"));
    }
  };
}

}  // namespace imgd::web
