// What a machine tells of itself in /proc.
#include "agent/node_figures.h"

#include <gmock/gmock.h>

#include <string>

namespace imgd {
namespace {

using testing::Optional;

TEST(NodeFigures, ProcessorsAreBusyOrIdle) {
  NodeFigures node;
  TakeCpu("cpu  100 20 30 4000 50 6 7 8 90 10\ncpu0 1 2 3 4\n", 100, node);
  EXPECT_THAT(node.cpu_busy_seconds, Optional(1.71)) << "guests' time is in user's";
  EXPECT_THAT(node.cpu_idle_seconds, Optional(40.5));
}

TEST(NodeFigures, Memory) {
  NodeFigures node;
  TakeMemory(
      "MemTotal:       16384 kB\nMemFree:         1 kB\nMemAvailable:    4096 kB\nHugePages_Total:       0\n",
      node);
  EXPECT_THAT(node.memory_bytes, Optional(16384 * 1024.0));
  EXPECT_THAT(node.memory_available_bytes, Optional(4096 * 1024.0));
}

/// What an interface has received and sent, as /proc/net/dev has it.
std::string Interface(const std::string& name, const std::string& received, const std::string& sent) {
  return name + ": " + received + " 1 0 0 0 0 0 0 " + sent + " 1 0 0 0 0 0 0\n";
}

TEST(NodeFigures, TheNetworkIsAllInterfacesButTheLoopback) {
  NetworkMeter network;
  NodeFigures node;
  const std::string headings =
      "Inter-|   Receive                                                |  Transmit\n"
      " face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo "
      "colls "
      "carrier compressed\n";
  network.Take(headings + Interface("    lo", "1", "1") + Interface("  eth0", "0", "0") +
                   "  efa0:0 1 0 0 0 0 0 0 0 1\n",
               node);
  network.Take(headings + Interface("    lo", "999", "999") + Interface("  eth0", "100", "7") +
                   "  efa0:20 1 0 0 0 0 0 0 3 1\n",
               node);
  EXPECT_THAT(node.received_bytes, Optional(120));
  EXPECT_THAT(node.sent_bytes, Optional(10));
}

TEST(NodeFigures, WhatTheNetworkHasCarriedNeverGoesBackwards) {
  NetworkMeter network;
  const auto received = [&network](const std::string& net_dev) {
    NodeFigures node;
    network.Take(net_dev, node);
    return node.received_bytes;
  };
  EXPECT_THAT(received(Interface("eth0", "100", "7") + Interface("veth1", "50", "1")), Optional(0))
      << "what they carried before an agent's restart is no reset to that";
  EXPECT_THAT(received(Interface("eth0", "105", "7") + Interface("veth1", "55", "1")), Optional(10));
  EXPECT_THAT(received(Interface("eth0", "110", "7")), Optional(15)) << "a container has ended";
  EXPECT_THAT(received(Interface("eth0", "120", "7") + Interface("tun0", "9000", "1")), Optional(25))
      << "one that came has carried this before";
  EXPECT_THAT(received(Interface("eth0", "120", "7") + Interface("tun0", "9005", "1")), Optional(30));
  EXPECT_THAT(received(Interface("eth0", "3", "7") + Interface("tun0", "9005", "1")), Optional(33))
      << "it has begun anew";
}

TEST(NodeFigures, WhatCannotBeReadIsNotThere) {
  NodeFigures node;
  NetworkMeter network;
  for (const auto* text : {"", "cpu 1 2", "nonsense", "a: b\n", "MemTotal: x kB\n"}) {
    TakeCpu(text, 100, node);
    TakeMemory(text, node);
    network.Take(text, node);
  }
  EXPECT_FALSE(node.cpu_busy_seconds || node.memory_bytes || node.received_bytes);
}

TEST(NodeFigures, OfThisMachineAllIsKnown) {
  NetworkMeter network;
  const auto node = ReadNodeFigures("/", network);
  EXPECT_TRUE(node.cpu_busy_seconds && node.cpu_idle_seconds && node.memory_bytes && node.disk_bytes);
  EXPECT_GT(*node.memory_bytes, *node.memory_available_bytes);
  EXPECT_FALSE(ReadNodeFigures("/nonexistent", network).disk_bytes);
}

}  // namespace
}  // namespace imgd
