#include "agent/health.h"

#include <gmock/gmock.h>

#include <fstream>

#include "agent/gpu.h"
#include "agent/identity.h"
#include "agent/testing/temp_dir.h"

namespace imgd {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::SizeIs;

constexpr uint64_t kMiB = 1ULL << 20;

struct HealthTest : testing::Test {
  HealthChecks Checks(HealthLimits limits = {.disk_free_bytes = 500 * kMiB,
                                             .memory_free_bytes = 200 * kMiB}) {
    return {
        {[this](const std::filesystem::path&) -> Result<uint64_t> { return disk; },
         [this]() -> Result<uint64_t> { return memory; }, [this](const v1::SharedFolder&) { return folder; }},
        limits,
        "/state",
        {v1::SharedFolder()}};
  }
  uint64_t disk = 1000 * kMiB;
  uint64_t memory = 1000 * kMiB;
  std::string folder;
};

TEST_F(HealthTest, AWellNodeHasNoProblem) { EXPECT_THAT(Checks().Look(), IsEmpty()); }

TEST_F(HealthTest, ALittleSpaceIsAProblemUntilThereIsATenthMoreThanIsNeeded) {
  auto checks = Checks();
  disk = 499 * kMiB;
  ASSERT_THAT(checks.Look(), SizeIs(1));
  EXPECT_EQ(checks.Look()[0].kind(), v1::PROBLEM_KIND_DISK);
  EXPECT_EQ(checks.Look()[0].text(), "has 0.49 GiB free on the disk of /state; 0.49 GiB are needed");
  disk = 549 * kMiB;
  EXPECT_THAT(checks.Look(), SizeIs(1)) << "it must not come and go";
  disk = 550 * kMiB;
  EXPECT_THAT(checks.Look(), IsEmpty());
  disk = 501 * kMiB;
  EXPECT_THAT(checks.Look(), IsEmpty());
}

TEST_F(HealthTest, EachProblemIsNamed) {
  memory = 100 * kMiB;
  folder = "cannot read /data: Stale file handle";
  const auto problems = Checks().Look();
  ASSERT_THAT(problems, SizeIs(2));
  EXPECT_EQ(problems[0].kind(), v1::PROBLEM_KIND_MEMORY);
  EXPECT_EQ(problems[0].text(), "has 0.10 GiB of free memory; 0.20 GiB are needed");
  EXPECT_EQ(problems[1].kind(), v1::PROBLEM_KIND_SHARED_FOLDER);
  EXPECT_THAT(problems[1].text(), HasSubstr("Stale file handle"));
}

TEST_F(HealthTest, ALimitOf0IsNotLookedAt) {
  disk = memory = 0;
  EXPECT_THAT(Checks({.disk_free_bytes = 0, .memory_free_bytes = 0}).Look(), IsEmpty());
}

TEST_F(HealthTest, TheMonitorKnowsTheFirstLook) {
  disk = 0;
  const HealthMonitor monitor(Checks(), std::chrono::hours(1));
  EXPECT_THAT(monitor.Latest(), SizeIs(1));
}

TEST(Health, ThisMachineTellsOfItselfAndOfItsSharedFolders) {
  const TempDir dir;
  const Machine machine = ThisMachine();
  EXPECT_GT(machine.disk_free(dir.path()).value_or(0), 0u);
  EXPECT_FALSE(machine.disk_free(dir.path() / "none").has_value());
  EXPECT_GT(machine.memory_free().value_or(0), 0u);
  const auto folder = IdentifySharedFolder(dir.path());
  ASSERT_TRUE(folder.has_value());
  EXPECT_EQ(machine.why_no_folder(*folder), "");
  std::ofstream(dir.path() / ".imgd-shared-id") << "another";
  EXPECT_THAT(machine.why_no_folder(*folder), HasSubstr("is another folder"));
  std::filesystem::remove(dir.path() / ".imgd-shared-id");
  EXPECT_THAT(machine.why_no_folder(*folder), Not(IsEmpty())) << "its disk is not mounted any more";
}

std::vector<GpuReading> ReadFake(const std::string& script) {
  const TempDir dir;
  const std::string gpus = "count 2\nmemory * 80 1\nutil * 9\npower * 6\ntemperature * 61\nclock * 1980\n";
  ::setenv("IMGD_FAKE_NVML_SCRIPT", dir.Write("gpus", gpus + script).c_str(), 1);
  const auto nvml = Nvml::Load(IMGD_FAKE_NVML);
  return nvml ? (*nvml)->Read() : std::vector<GpuReading>(2);
}

TEST(Health, AGpuIsIllByItsMemoryItsBusOrItsDriver) {
  for (const auto& reading : ReadFake("")) EXPECT_EQ(reading.WhyIll(), "") << "it does not tell of ECC";
  for (const auto& reading : ReadFake("ecc * 0\npending * 0\nfailed * 0\nxid * 13 31 43 45\n"))
    EXPECT_EQ(reading.WhyIll(), "") << "those Xids are of programs";
  EXPECT_EQ(ReadFake("ecc 1 3\n")[1].WhyIll(), "has 3 uncorrected memory errors since the driver was loaded");
  EXPECT_EQ(ReadFake("ecc 1 3\npending * 0\nfailed * 0\n")[1].WhyIll(), "") << "their rows were replaced";
  EXPECT_EQ(ReadFake("ecc 1 3\npending * 1\nfailed * 0\n")[1].WhyIll(),
            "has 3 uncorrected memory errors, and needs a reset");
  EXPECT_THAT(ReadFake("ecc 1 3\npending * 0\nfailed * 1\n")[1].WhyIll(), HasSubstr("has to be replaced"));
  EXPECT_EQ(ReadFake("fail power 1 15\n")[1].WhyIll(), "has fallen off its bus");
  EXPECT_THAT(ReadFake("xid 1 45 79\n")[1].WhyIll(), HasSubstr("reported Xid 79"));
  EXPECT_EQ(ReadFake("xid 1 45 79\n")[0].WhyIll(), "");
}

TEST(Health, AGpuWhoseMemorySomethingElseHasIsNoGoodForAGang) {
  v1::Device gpu;
  gpu.set_index(3);
  gpu.set_memory_bytes(80ULL << 30);
  GpuReading reading;
  const auto used = [&reading](uint64_t gib) -> const GpuReading& {
    reading.memory_used_bytes = gib << 30;
    return reading;
  };
  const auto at = [](int seconds) { return Instant(std::chrono::seconds(seconds)); };
  StrayMemory memory(75);
  EXPECT_EQ(memory.Look(gpu, reading, false, at(0)), "") << "it does not tell";
  EXPECT_EQ(memory.Look(gpu, used(19), false, at(0)), "");
  EXPECT_EQ(memory.Look(gpu, used(21), false, at(0)),
            "has 21.00 GiB of its 80.00 GiB of memory in use by what is no run of imgd's (see nvidia-smi)");
  EXPECT_EQ(memory.Look(gpu, used(79), true, at(1)), "") << "it is a run's";
  EXPECT_EQ(memory.Look(gpu, used(79), false, at(30)), "") << "the driver may be at it yet";
  EXPECT_NE(memory.Look(gpu, used(79), false, at(31)), "");
  EXPECT_EQ(memory.Look(gpu, used(79), true, at(40)), "");
  EXPECT_EQ(memory.Look(gpu, used(30), false, at(43)), "") << "it becomes free";
  EXPECT_EQ(memory.Look(gpu, used(2), false, at(46)), "");
  EXPECT_EQ(memory.Look(gpu, used(60), false, at(49)), "") << "that reading may be of before";
  EXPECT_NE(memory.Look(gpu, used(60), false, at(52)), "") << "what a run leaves only becomes less";
  EXPECT_EQ(memory.Look(gpu, used(2), false, at(55)), "");
  EXPECT_EQ(memory.Look(gpu, used(79), true, at(60)), "");
  EXPECT_EQ(memory.Look(gpu, GpuReading(), false, at(61)), "") << "what can't be read is not 0";
  EXPECT_EQ(memory.Look(gpu, used(79), false, at(63)), "") << "of this run nothing is known yet";
  EXPECT_EQ(memory.Look(gpu, used(79), false, at(66)), "");
  EXPECT_EQ(StrayMemory(0).Look(gpu, used(80), false, at(0)), "");
}

TEST(CheckSkew, AClockThatIsFurtherOffThanImgdWantsIsNamed) {
  v1::Welcome welcome;
  EXPECT_TRUE(CheckSkew(welcome, {5})) << "an older imgd does not say";
  welcome.set_time_us(1'000'000'000);
  welcome.set_most_clock_skew_ms(10'000);
  EXPECT_TRUE(CheckSkew(welcome, {1'010'000'000}));
  EXPECT_THAT(CheckSkew(welcome, {1'011'000'000}).error().message,
              HasSubstr("this node's clock is 11 s ahead of imgd's, which places nothing new here"));
  EXPECT_THAT(CheckSkew(welcome, {900'000'000}).error().ToString(), HasSubstr("100 s behind imgd's"));
  welcome.set_most_clock_skew_ms(0);
  EXPECT_TRUE(CheckSkew(welcome, {0})) << "it does not matter there";
}

}  // namespace
}  // namespace imgd
