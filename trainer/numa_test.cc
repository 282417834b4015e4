#include "trainer/numa.h"

#include <gmock/gmock.h>
#include <linux/mempolicy.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <fstream>
#include <optional>
#include <thread>

namespace imgd::trainer {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

TEST(ParseCpuList, ReadsRangesAndSingleNumbers) {
  EXPECT_THAT(*ParseCpuList("0-3,8\n"), ElementsAre(0, 1, 2, 3, 8));
  EXPECT_THAT(*ParseCpuList("5"), ElementsAre(5));
  EXPECT_THAT(*ParseCpuList("\n"), IsEmpty());
  for (const char* wrong : {"3-1", "x", "1-", "-1", "0-99999999", "1,,2"}) {
    EXPECT_FALSE(ParseCpuList(wrong).has_value()) << wrong;
  }
}

/// A sysfs with two nodes of four cores, and a GPU on each.
struct TwoNodes : testing::Test {
  TwoNodes() {
    Write("devices/system/node/node0/cpulist", "0-1,4-5\n");
    Write("devices/system/node/node1/cpulist", "2-3,6-7\n");
    Write("bus/pci/devices/0000:3b:00.0/numa_node", "0\n");
    Write("bus/pci/devices/0000:af:00.0/numa_node", "1\n");
    Write("bus/pci/devices/0000:c0:00.0/numa_node", "-1\n");
  }
  ~TwoNodes() override { fs::remove_all(sys); }
  void Write(const fs::path& path, const char* text) const {
    fs::create_directories((sys / path).parent_path());
    std::ofstream(sys / path) << text;
  }
  std::string WhyNot(const std::string& device, const std::vector<int>& allowed) const {
    const auto place = FindNumaPlace(sys, device, allowed);
    return place ? "" : place.error().message;
  }
  fs::path sys = fs::path(testing::TempDir()) / fmt::format("imgd_numa_test_{}", ::getpid());
  const std::vector<int> all = {0, 1, 2, 3, 4, 5, 6, 7};
};

TEST_F(TwoNodes, ADeviceHasTheCoresOfItsNodeThatAreAllowed) {
  const auto place = FindNumaPlace(sys, "0000:af:00.0", all);
  ASSERT_TRUE(place.has_value());
  EXPECT_EQ(place->node, 1);
  EXPECT_THAT(place->cores, ElementsAre(2, 3, 6, 7));
  EXPECT_THAT(FindNumaPlace(sys, "0000:3b:00.0", {1, 2, 3, 4})->cores, ElementsAre(1, 4));
}

TEST_F(TwoNodes, WithoutAPlaceItIsSaidWhy) {
  EXPECT_THAT(WhyNot("0000:c0:00.0", all), HasSubstr("does not say where 0000:c0:00.0 is"));
  EXPECT_THAT(WhyNot("0000:ff:00.0", all), HasSubstr("0000:ff:00.0/numa_node"));
  EXPECT_THAT(WhyNot("0000:3b:00.0", {2, 3}), HasSubstr("no core of NUMA node 0 may be used"));
  fs::remove_all(sys / "devices/system/node/node1");
  EXPECT_EQ(WhyNot("0000:3b:00.0", all), "the machine has a single NUMA node");
}

TEST(BindTo, HoldsForThreadsThatAreStartedLater) {
  std::thread([] {
    const auto before = AllowedCores();
    ASSERT_FALSE(before.empty());
    ASSERT_TRUE(BindTo({.node = 0, .cores = {before.back()}}));
    std::thread([&before] { EXPECT_THAT(AllowedCores(), ElementsAre(before.back())); }).join();
  }).join();
  EXPECT_FALSE(BindTo({.node = 0, .cores = {CPU_SETSIZE - 1}}));
}

/// What BindBeside() does in a thread of its own: how many cores it gives, its words, and the cores after it.
struct Bound {
  std::optional<int> cores;
  std::vector<std::string> notes;
  std::vector<int> allowed;
};

Bound BindInAThread(const fs::path& sys, const std::string& device, bool wanted) {
  Bound out;
  std::thread([&] {
    out.cores = BindBeside(sys, device, wanted, [&](const auto& text) { out.notes.push_back(text); });
    std::thread([&] { out.allowed = AllowedCores(); }).join();
  }).join();
  return out;
}

TEST_F(TwoNodes, ARankIsBoundBesideItsGpuAndSaysSo) {
  const auto before = AllowedCores();
  const std::string own = std::to_string(before.back());
  Write("devices/system/node/node1/cpulist", own.c_str());
  const Bound bound = BindInAThread(sys, "0000:af:00.0", true);
  EXPECT_EQ(bound.cores, 1);
  EXPECT_THAT(bound.notes, ElementsAre("bound to NUMA node 1 beside its GPU 0000:af:00.0, with 1 cores"));
  EXPECT_THAT(bound.allowed, ElementsAre(before.back())) << "of threads that it starts, as loaders";
}

TEST_F(TwoNodes, ARankIsLeftAloneWhereThatIsAskedForOrThereIsNoGpu) {
  Write("devices/system/node/node1/cpulist", std::to_string(AllowedCores().back()).c_str());
  for (const Bound& bound : {BindInAThread(sys, "0000:af:00.0", false), BindInAThread(sys, "", true)}) {
    EXPECT_EQ(bound.cores, std::nullopt);
    EXPECT_THAT(bound.notes, IsEmpty());
    EXPECT_EQ(bound.allowed, AllowedCores());
  }
}

TEST_F(TwoNodes, ARankThatCanNotBeBoundSaysWhy) {
  const Bound bound = BindInAThread(sys, "0000:c0:00.0", true);
  EXPECT_EQ(bound.cores, std::nullopt);
  EXPECT_THAT(bound.notes,
              ElementsAre("not bound to a NUMA node: the machine does not say where 0000:c0:00.0 is"));
  EXPECT_EQ(bound.allowed, AllowedCores());
}

/// As get_mempolicy(2) says it.
struct MemoryPolicy {
  int mode = -1;
  std::array<unsigned long, 16> nodes{};  ///< a bit for each
};

/// How the calling thread takes memory; nothing where it may not ask.
std::optional<MemoryPolicy> PolicyOfThread() {
  MemoryPolicy policy;
  const long failed =
      ::syscall(SYS_get_mempolicy, &policy.mode, policy.nodes.data(), 8 * sizeof policy.nodes, nullptr, 0UL);
  return failed == 0 ? std::optional(policy) : std::nullopt;
}

TEST(BindTo, PrefersTheMemoryOfTheNodeInThreadsThatAreStartedLater) {
  std::thread([] {
    if (::syscall(SYS_set_mempolicy, MPOL_DEFAULT, nullptr, 0UL) != 0 || !PolicyOfThread())
      GTEST_SKIP() << "memory policies are forbidden here";
    ASSERT_EQ(PolicyOfThread()->mode, MPOL_DEFAULT);
    ASSERT_TRUE(BindTo({.node = 0, .cores = {AllowedCores().back()}}));
    std::thread([] {
      const auto policy = PolicyOfThread();
      ASSERT_TRUE(policy.has_value());
      EXPECT_EQ(policy->mode, MPOL_PREFERRED);
      EXPECT_EQ(policy->nodes[0], 1U) << "node 0 alone";
    }).join();
  }).join();
}

}  // namespace
}  // namespace imgd::trainer
