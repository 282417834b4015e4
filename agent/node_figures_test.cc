// What a machine tells of itself in /proc.
#include "agent/node_figures.h"

#include <gmock/gmock.h>

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

TEST(NodeFigures, TheNetworkIsAllInterfacesButTheLoopback) {
  NodeFigures node;
  TakeNetwork(
      "Inter-|   Receive                                                |  Transmit\n"
      " face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo "
      "colls "
      "carrier compressed\n"
      "    lo: 999 9 0 0 0 0 0 0 999 9 0 0 0 0 0 0\n"
      "  eth0: 100 1 0 0 0 0 0 0 7 1 0 0 0 0 0 0\n"
      "  efa0:20 1 0 0 0 0 0 0 3 1 0 0 0 0 0 0\n",
      node);
  EXPECT_THAT(node.received_bytes, Optional(120));
  EXPECT_THAT(node.sent_bytes, Optional(10));
}

TEST(NodeFigures, WhatCannotBeReadIsNotThere) {
  NodeFigures node;
  for (const auto* text : {"", "cpu 1 2", "nonsense", "a: b\n", "MemTotal: x kB\n"}) {
    TakeCpu(text, 100, node);
    TakeMemory(text, node);
    TakeNetwork(text, node);
  }
  EXPECT_FALSE(node.cpu_busy_seconds || node.memory_bytes || node.received_bytes);
}

TEST(NodeFigures, OfThisMachineAllIsKnown) {
  const auto node = ReadNodeFigures("/");
  EXPECT_TRUE(node.cpu_busy_seconds && node.cpu_idle_seconds && node.memory_bytes && node.disk_bytes);
  EXPECT_GT(*node.memory_bytes, *node.memory_available_bytes);
  EXPECT_FALSE(ReadNodeFigures("/nonexistent").disk_bytes);
}

}  // namespace
}  // namespace imgd
