// Where Prometheus finds the agents.
#include "server/web/scrape_targets.h"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

namespace imgd::web {
namespace {

using Json = nlohmann::json;

NodeRecord Node(const std::string& name, std::optional<std::string> metrics,
                NodeState state = NodeState::kReady) {
  NodeRecord node{.id = NodeId(name)};
  node.state = state;
  node.metrics_address = std::move(metrics);
  return node;
}

Json TargetsOf(std::vector<NodeRecord> nodes, Targets which = Targets::kAll, bool tls = false) {
  ClusterView view;
  view.nodes = std::move(nodes);
  const auto text = ScrapeTargets(view, "c1", {"head:7651", tls}, which);
  return text ? Json::parse(*text) : Json();
}

TEST(ScrapeTargets, AreTheLiveAgentsThatShowMetrics) {
  EXPECT_EQ(TargetsOf({}), Json::array());
  const Json targets = TargetsOf({Node("a", "10.0.0.1:7651"), Node("shows-none", ""),
                                  Node("lost", "10.0.0.3:7651", NodeState::kLost),
                                  Node("silent", "10.0.0.4:7651", NodeState::kUnreachable)});
  EXPECT_EQ(targets, Json::parse(R"([
    {"targets": ["10.0.0.1:7651"], "labels": {"cluster": "c1", "node": "a"}},
    {"targets": ["10.0.0.4:7651"], "labels": {"cluster": "c1", "node": "silent"}}])"));
}

TEST(ScrapeTargets, HaveTheirNodesLabelsByNamesThatPrometheusTakes) {
  NodeRecord node = Node("a", "h:1");
  node.labels = {{"zone", "us-east-1a"}, {"topology/rack.number", "7"}, {"topology.rack.number", "8"}};
  EXPECT_EQ(TargetsOf({node})[0]["labels"],
            Json::parse(R"({"cluster": "c1", "node": "a", "label_zone": "us-east-1a",
                            "label_topology_rack_number": "8"})"))
      << "of two that look the same the first by name";
  for (int i = 0; i < 50; ++i) node.labels[fmt::format("l{}", i)] = "x";
  EXPECT_EQ(TargetsOf({node})[0]["labels"].size(), 18u);
}

TEST(ScrapeTargets, OfAgentsThatNobodyDialsAreImgdItself) {
  NodeRecord relayed = Node("b", "");
  relayed.metrics_relayed = true;
  const Json own = Json::parse(R"({"targets": ["head:7651"], "labels": {"cluster": "c1", "node": "b",
    "instance": "b", "__metrics_path__": "/metrics/nodes/b", "__scheme__": "http"}})");
  EXPECT_EQ(TargetsOf({Node("a", "h:1"), relayed})[1], own);
  EXPECT_EQ(TargetsOf({Node("a", "h:1"), relayed}, Targets::kRelayed), Json::array({own}));
  EXPECT_EQ(TargetsOf({relayed}, Targets::kDialled), Json::array());
  EXPECT_EQ(TargetsOf({relayed}, Targets::kAll, true)[0]["labels"]["__scheme__"], "https");
  relayed.state = NodeState::kLost;
  EXPECT_EQ(TargetsOf({relayed}), Json::array());
}

TEST(ScrapeTargets, AreNotToldBeforeTheAgentsOfAnEarlierDaemonAreBackOrLost) {
  EXPECT_EQ(TargetsOf({Node("a", "h:1"), Node("b", std::nullopt)}), Json());
  EXPECT_EQ(TargetsOf({Node("a", "h:1"), Node("b", std::nullopt, NodeState::kUnreachable)}), Json())
      << "Prometheus would drop what it has to warn of";
  EXPECT_EQ(TargetsOf({Node("a", "h:1"), Node("b", std::nullopt, NodeState::kLost)}).size(), 1u);
}

}  // namespace
}  // namespace imgd::web
