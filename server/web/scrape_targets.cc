#include "server/web/scrape_targets.h"

#include <algorithm>
#include <cctype>
#include <nlohmann/json.hpp>

#include "common/metric_families.h"
#include "server/web/errors.h"

namespace imgd::web {
namespace {

/// An agent may declare any number of labels; so many become labels of its series.
constexpr size_t kMostLabels = 16;
constexpr const char* kNodesPath = "/metrics/nodes/";
/// Less than Prometheus waits, so that it hears why there is nothing.
constexpr Duration kPatience = std::chrono::seconds(3);

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

nlohmann::json TargetOf(const NodeRecord& node, const std::string& cluster_id, const OwnAddress& own) {
  nlohmann::json labels = LabelsOf(node, cluster_id);
  if (!node.metrics_relayed)
    return {{"targets", nlohmann::json::array({*node.metrics_address})}, {"labels", std::move(labels)}};
  labels["__metrics_path__"] = kNodesPath + node.id.name();
  labels["__scheme__"] = own.tls ? "https" : "http";
  labels["instance"] = node.id.name();  // else all of them would be imgd's address
  return {{"targets", nlohmann::json::array({own.host})}, {"labels", std::move(labels)}};
}

bool IsWanted(const NodeRecord& node, Targets which) {
  if (node.state == NodeState::kLost) return false;
  if (node.metrics_relayed) return which != Targets::kDialled;
  return which != Targets::kRelayed && !node.metrics_address.value_or("").empty();
}

Result<Targets> TargetsIn(const std::string& query) {
  if (query.empty()) return Targets::kAll;
  if (query == "relayed=true") return Targets::kRelayed;
  if (query == "relayed=false") return Targets::kDialled;
  return Fail(ErrorCode::kInvalidArgument, "relayed=true or relayed=false are expected, or no query");
}

}  // namespace

std::optional<std::string> ScrapeTargets(const ClusterView& view, const std::string& cluster_id,
                                         const OwnAddress& own, Targets which) {
  nlohmann::json targets = nlohmann::json::array();
  for (const auto& node : view.nodes) {
    if (!node.metrics_address && node.state != NodeState::kLost) return std::nullopt;
    if (IsWanted(node, which)) targets.push_back(TargetOf(node, cluster_id, own));
  }
  return targets.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

Handler ScrapeTargetsPage(Engine* engine, bool tls) {
  return [engine, tls](const Request& request, const Answer& answer) {
    const auto which = TargetsIn(request.query);
    if (!which) return answer(ErrorResponse(which.error()));
    auto targets = ScrapeTargets(*engine->View(), engine->cluster_id(), {request.host, tls}, *which);
    if (targets) {
      answer({.body = std::move(*targets)});
    } else {
      answer(
          ErrorResponse(503, "UNAVAILABLE", "imgd has just begun, and not all of its agents are back yet"));
    }
  };
}

Handler RelayedMetricsPage(Engine* engine) {
  return [engine](const Request& request, const Answer& answer) {
    engine->Scrape(NodeId(request.parameters.at("name")), kPatience, [answer](Result<std::string> text) {
      if (!text) return answer(ApiErrorResponse({text.error()}));
      answer({.body = std::move(*text), .content_type = kMetricsContentType});
    });
  };
}

}  // namespace imgd::web
