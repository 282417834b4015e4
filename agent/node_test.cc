// What an agent knows of its node: settings, names, folders, addresses, GPUs.
#include <gmock/gmock.h>
#include <stdlib.h>

#include <thread>

#include "agent/config.h"
#include "agent/generations.h"
#include "agent/gpu.h"
#include "agent/identity.h"
#include "agent/network.h"
#include "agent/process.h"
#include "agent/run_dir.h"
#include "agent/testing/temp_dir.h"
#include "common/labels.h"

namespace imgd {
namespace {

using testing::HasSubstr;
using testing::SizeIs;

TEST(Config, EveryKeyIsRead) {
  const auto config = ParseConfig(
      "server: imgd:7650\nnode: a\nstate_dir: /s\naddress: 10.0.0.1\ncpu_slots: 4\ntrainer: /t\n"
      "shared_folders: [/a, /b]\nnvml: none\nlog_level: warn\nrun_log_limit_mib: 10\ncgroup: off\n"
      "stop_after_disconnect: 10m\nmetrics_listen: 10.0.0.1:7651\nlabels: {zone: us-east-1a, slots: 4}\n",
      "agent.yaml", Config());
  ASSERT_TRUE(config.has_value());
  EXPECT_EQ(config->server, "imgd:7650");
  EXPECT_EQ(config->cpu_slots, 4);
  EXPECT_THAT(config->shared_folders, SizeIs(2));
  EXPECT_EQ(config->run_log_limit_bytes, 10 << 20);
  EXPECT_FALSE(config->use_cgroup);
  EXPECT_EQ(config->stop_after_disconnect_ms, 600'000);
  EXPECT_EQ(config->metrics_listen, "10.0.0.1:7651");
  EXPECT_EQ(config->labels, (std::map<std::string, std::string>{{"slots", "4"}, {"zone", "us-east-1a"}}));
}

TEST(Config, LabelsAreWords) {
  const auto config = ParseConfig("labels: {zone: 'us east', 'a=b': c}\n", "agent.yaml", Config());
  ASSERT_FALSE(config.has_value());
  ASSERT_THAT(config.error(), SizeIs(2));
  EXPECT_THAT(config.error()[0].ToString(), HasSubstr("agent.yaml:1:16: labels.zone: found 'us east'"));
  EXPECT_THAT(config.error()[1].ToString(), HasSubstr("a label's name has 1 to 63"));
  std::map<std::string, std::string> labels;
  EXPECT_TRUE(AddLabel("zone=us-east-1a", labels).has_value());
  EXPECT_EQ(labels.at("zone"), "us-east-1a");
  EXPECT_THAT(AddLabel("zone", labels).error().message, HasSubstr("NAME=VALUE"));
  EXPECT_THAT(AddLabel("zone=", labels).error().message, HasSubstr("a label's value has 1 to 127"));
}

TEST(Config, EveryErrorIsReportedWithItsPlace) {
  const auto config = ParseConfig("cpu_slots: many\nlog_level: loud\nserver_: x\n", "agent.yaml", Config());
  ASSERT_FALSE(config.has_value());
  ASSERT_THAT(config.error(), SizeIs(3));
  EXPECT_THAT(config.error()[0].ToString(), HasSubstr("agent.yaml:1:12: cpu_slots: found 'many'"));
  EXPECT_THAT(config.error()[2].ToString(), HasSubstr("did you mean 'server'?"));
}

TEST(Config, TheExampleFileIsValidAndSaysTheDefaults) {
  const auto text = ReadFile(IMGD_AGENT_EXAMPLE);
  ASSERT_TRUE(text.has_value());
  const auto config = ParseConfig(*text, "deploy/agent.yaml", Config());
  ASSERT_TRUE(config.has_value()) << config.error().front().ToString();
  EXPECT_EQ(config->server, Config().server);
  EXPECT_EQ(config->run_log_limit_bytes, Config().run_log_limit_bytes);
  EXPECT_EQ(config->stop_after_disconnect_ms, Config().stop_after_disconnect_ms);
  EXPECT_EQ(config->spot_notices, Config().spot_notices);
  EXPECT_EQ(Config().metrics_listen, "") << "off: two agents on a machine would want the same port";
  EXPECT_EQ(config->metrics_listen, "127.0.0.1:7652") << "the one key that is not at its default, as it says";
}

TEST(Config, MetricsAreServedOnAnAddressOrNotAtAll) {
  Config config{.trainer = "/bin/true"};
  for (const auto* good : {"127.0.0.1:0", "[::1]:7651", "localhost:65535", "relay"}) {
    config.metrics_listen = good;
    ASSERT_TRUE(CompleteConfig(config).has_value()) << good;
    EXPECT_EQ(CompleteConfig(config)->metrics_listen, good);
  }
  config.metrics_listen = "off";
  EXPECT_EQ(CompleteConfig(config)->metrics_listen, "");
  for (const auto* bad : {"7651", ":7651", "host:", "host:65536", "host:99999999999", "host:-1", "host:1x"}) {
    config.metrics_listen = bad;
    const auto checked = CompleteConfig(config);
    ASSERT_FALSE(checked.has_value()) << bad;
    EXPECT_EQ(
        checked.error().message,
        fmt::format(
            "metrics_listen: found '{}'; HOST:PORT is expected, with a port of 0 to 65535, or relay, or off",
            bad));
  }
}

TEST(Config, MetricsAreShownToOtherMachinesOnlyWhereSomebodySaysInPlainText) {
  Config config{.trainer = "/bin/true"};
  for (const auto* open : {"0.0.0.0:7652", "[::]:7652", "10.0.0.1:7652", "gpu-07:7652"}) {
    config.metrics_listen = open;
    config.metrics_in_plain_text = false;
    const auto refused = CompleteConfig(config);
    ASSERT_FALSE(refused.has_value()) << open;
    EXPECT_THAT(refused.error().ToString(), HasSubstr("metrics_in_plain_text: true"));
    config.metrics_in_plain_text = true;
    EXPECT_TRUE(CompleteConfig(config).has_value()) << open;
  }
  EXPECT_TRUE(ParseConfig("metrics_in_plain_text: true\n", "agent.yaml", Config())->metrics_in_plain_text);
}

TEST(Config, ServerAndNodeNamesAreChecked) {
  Config config{.trainer = "/bin/true"};
  EXPECT_TRUE(CompleteConfig(config).has_value());
  config.server = "host:99999";
  EXPECT_FALSE(CompleteConfig(config).has_value());
  config = Config{.node = "a b", .trainer = "/bin/true"};
  EXPECT_THAT(CompleteConfig(config).error().message, HasSubstr("node name 'a b'"));
}

TEST(Network, FindsTheAddressTowardsTheServerAndItsInterface) {
  EXPECT_EQ(*LocalAddressTowards("127.0.0.1:7650"), "127.0.0.1");
  EXPECT_EQ(InterfaceOf("127.0.0.1"), "lo");
  EXPECT_EQ(InterfaceOf("192.0.2.1"), "");
  EXPECT_FALSE(LocalAddressTowards("no-such-host.invalid:1").has_value());
  EXPECT_EQ(ParseHostPort("[::1]:80")->host, "::1");
  for (const auto* text : {"", "host", "host:", ":80", "host:0", "host:80x"}) {
    EXPECT_FALSE(ParseHostPort(text).has_value()) << text;
  }
}

TEST(Network, AnAddressOfAnotherMachineIsRefused) {
  const auto listener = ListenOn("192.0.2.1");
  ASSERT_FALSE(listener.has_value());
  EXPECT_THAT(listener.error().message, HasSubstr("cannot listen on this node's address 192.0.2.1"));
}

TEST(Network, APortThatIsTakenIsNamed) {
  const auto first = ListenOn("127.0.0.1");
  ASSERT_TRUE(first.has_value());
  const auto second = ListenOn("127.0.0.1", std::to_string(first->port));
  ASSERT_FALSE(second.has_value());
  EXPECT_EQ(second.error().code, ErrorCode::kAlreadyExists);
  EXPECT_EQ(second.error().message,
            fmt::format("cannot listen on port {} of 127.0.0.1: the port is in use by another program",
                        first->port));
}

TEST(Identity, IdsStayAndSharedFoldersAreRecognised) {
  const TempDir dir;
  const auto id = AgentId(dir.path());
  ASSERT_TRUE(id.has_value());
  EXPECT_EQ(*AgentId(dir.path()), *id);
  EXPECT_EQ(FilesystemId(), FilesystemId());
  const auto first = IdentifySharedFolder(dir.path());
  const auto second = IdentifySharedFolder(dir.path() / "");
  ASSERT_TRUE(first.has_value() && second.has_value());
  EXPECT_EQ(first->id(), second->id());
  EXPECT_EQ(first->path(), second->path());
  EXPECT_FALSE(IdentifySharedFolder("relative").has_value());
}

TEST(Identity, AgentsThatComeAtTheSameTimeAgreeOnASharedFolder) {
  const TempDir dir;
  std::vector<std::string> ids(8);
  {
    std::vector<std::jthread> agents;
    agents.reserve(ids.size());
    for (auto& id : ids) agents.emplace_back([&] { id = IdentifySharedFolder(dir.path())->id(); });
  }
  for (const auto& id : ids) EXPECT_EQ(id, ids[0]);
  size_t files = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(dir.path())) ++files;
  EXPECT_EQ(files, 1);
}

TEST(Identity, AStateFolderHasOneAgent) {
  const TempDir dir;
  {
    const auto lock = LockStateDir(dir.path());
    ASSERT_TRUE(lock.has_value());
    EXPECT_EQ(LockStateDir(dir.path()).error().code, ErrorCode::kAlreadyExists);
  }
  EXPECT_TRUE(LockStateDir(dir.path()).has_value());
}

TEST(Generations, AreRememberedAndOnlyGrow) {
  const TempDir dir;
  const auto file = dir / "generations.json";
  auto generations = Generations::Load(file);
  ASSERT_TRUE(generations.has_value());
  EXPECT_TRUE(generations->MayStart("c1", JobId(7), Generation(1)));
  ASSERT_TRUE(generations->AllowFrom("c1", JobId(7), Generation(3)).has_value());
  ASSERT_TRUE(generations->AllowFrom("c1", JobId(7), Generation(2)).has_value());
  const auto again = Generations::Load(file);
  ASSERT_TRUE(again.has_value());
  EXPECT_FALSE(again->MayStart("c1", JobId(7), Generation(2)));
  EXPECT_TRUE(again->MayStart("c1", JobId(7), Generation(3)));
  EXPECT_TRUE(again->MayStart("c1", JobId(8), Generation(1)));
  EXPECT_TRUE(again->MayStart("c2", JobId(7), Generation(1))) << "another daemon's job 7 is another job";
  dir.Write("generations.json", "{");
  EXPECT_THAT(Generations::Load(file).error().ToString(),
              HasSubstr("generations.json: the record of generations"));
}

TEST(RunDir, SpecificationsAndRecordsAreReadBack) {
  const TempDir dir;
  RunSpec spec;
  spec.key = {JobId(7), Generation(2), "c1"};
  spec.job_name = "rn50";
  spec.trainer = "/usr/bin/imgtrain";
  spec.first_rank = 8;
  spec.local_world_size = 2;
  spec.world_size = 16;
  spec.node_rank = 1;
  spec.devices = {0, 3};
  spec.visible_devices = "GPU-a,GPU-b";
  spec.log_limit_bytes = 123;
  const auto run = CreateRunDir(dir.path(), spec, "name: rn50\n", {"/ckpt"}, Generation(1));
  ASSERT_TRUE(run.has_value());
  EXPECT_EQ(run->path, dir / "7-2-c1");
  const auto read = LoadRunSpec(*run);
  ASSERT_TRUE(read.has_value());
  EXPECT_EQ(ToJson(*read), ToJson(spec));
  EXPECT_FALSE(LoadRunRecord(*run)->has_value());
  RunRecord record{
      .version = "0.1.0", .shim_pid = 1, .boot_id = "b", .phase = ShimPhase::kStopping, .cgroup = "/c"};
  record.ranks.push_back({.rank = 8, .state = RankState::kExited, .signal = 9, .last_error_line = "x \xFF"});
  ASSERT_TRUE(SaveRunRecord(*run, record).has_value());
  const auto read_record = LoadRunRecord(*run);
  ASSERT_TRUE(read_record.has_value() && read_record->has_value());
  EXPECT_EQ(ToJson(**read_record), ToJson(record));
  EXPECT_EQ((*read_record)->version, "0.1.0");
  // What an older shim wrote has none.
  std::string older = ToJson(record);
  older.replace(older.find("\"version\""), 9, "\"another\"");
  EXPECT_EQ(ParseRunRecord(older)->version, "");
  EXPECT_FALSE(CreateRunDir(dir.path(), spec, "", {}, Generation(0)).has_value()) << "it is there already";
}

TEST(Process, APidIsTheSameProcessOnlyWithTheSameStart) {
  const auto self = ReadProcessStat(::getpid());
  ASSERT_TRUE(self.has_value());
  EXPECT_EQ(self->parent, ::getppid());
  EXPECT_TRUE(IsAlive(::getpid(), self->start_time));
  EXPECT_FALSE(IsAlive(::getpid(), self->start_time + 1));
  EXPECT_THAT(BootId(), SizeIs(36));
}

TEST(Process, OneThatDumpsCoreIsKnownByItsStatus) {
  EXPECT_TRUE(SaysCoreDumping("Name:\timgtrain\nState:\tD (disk sleep)\nCoreDumping:\t1\nThreads:\t9\n"));
  EXPECT_FALSE(SaysCoreDumping("Name:\timgtrain\nState:\tS (sleeping)\nCoreDumping:\t0\nThreads:\t9\n"));
  EXPECT_FALSE(SaysCoreDumping("")) << "an old kernel";
  EXPECT_FALSE(IsDumpingCore(::getpid()));
}

// --- GPUs, through a real library that answers from a script ---

Result<std::unique_ptr<Nvml>> LoadFake(const TempDir& dir, std::string_view script) {
  ::setenv("IMGD_FAKE_NVML_SCRIPT", dir.Write("gpus", script).c_str(), 1);
  return Nvml::Load(IMGD_FAKE_NVML);
}

constexpr std::string_view kEightGpus =
    "count 8\nname * NVIDIA H100 80GB HBM3\nmemory * 85899345920 1073741824\nutil * 97\npower * 650000\n"
    "temperature * 61\nclock * 1980\n";

TEST(Gpu, EightGpusAreFoundAndRead) {
  const TempDir dir;
  const auto nvml = LoadFake(dir, kEightGpus);
  ASSERT_TRUE(nvml.has_value()) << nvml.error().message;
  const auto& devices = (*nvml)->devices();
  ASSERT_EQ(devices.size(), 8);
  EXPECT_EQ(devices[7].index(), 7);
  EXPECT_EQ(devices[7].model(), "NVIDIA H100 80GB HBM3");
  EXPECT_EQ(devices[7].uuid(), "GPU-00000000-0000-0000-0000-000000000007");
  EXPECT_EQ(devices[7].memory_bytes(), 85899345920);
  const auto readings = (*nvml)->Read();
  ASSERT_EQ(readings.size(), 8);
  const auto sent = readings[7].ToProto();
  EXPECT_DOUBLE_EQ(sent.busy_ratio(), 0.97);
  EXPECT_EQ(sent.memory_used_bytes(), 1073741824);
  EXPECT_DOUBLE_EQ(sent.power_watts(), 650);
  EXPECT_DOUBLE_EQ(sent.temperature_celsius(), 61);
  EXPECT_DOUBLE_EQ(sent.sm_clock_hertz(), 1.98e9);
  EXPECT_EQ(sent.error(), "");
}

TEST(Gpu, AReadingThatFailsIsNamedAndTheOthersStay) {
  const TempDir dir;
  const auto nvml =
      LoadFake(dir, std::string(kEightGpus) + "fail temperature 3 15\nfail power 3 3\nclock 5 1980 345\n");
  ASSERT_TRUE(nvml.has_value());
  auto readings = (*nvml)->Read();
  EXPECT_EQ(readings[3].error, "power can't be read: Not Supported; temperature can't be read: GPU is lost");
  EXPECT_FALSE(readings[3].temperature_celsius.has_value()) << "not 0: nobody knows";
  EXPECT_EQ(readings[3].ToProto().temperature_celsius(), 0);
  EXPECT_EQ(readings[3].busy_ratio, 0.97);
  EXPECT_EQ(readings[4].error, "");
  EXPECT_EQ(readings[5].sm_clock_hertz, 1.98e9);
  readings = (*nvml)->Read();
  EXPECT_EQ(readings[5].sm_clock_hertz, 345e6) << "throttled since";
  EXPECT_EQ(readings[4].sm_clock_hertz, 1.98e9);
}

TEST(Gpu, WhatAGpuOrADriverMayLackIsNoErrorWhereItIsNotThere) {
  const TempDir dir;
  const auto nvml =
      LoadFake(dir, std::string(kEightGpus) +
                        "energy 1 2500\nthrottle 1 64\ncorrected 1 3\necc 1 0\nmemory_clock 1 2619\n"
                        "pcie_tx 1 10\npcie_rx 1 20\nnvlink_tx 1 30\nnvlink_rx 1 40\n");
  ASSERT_TRUE(nvml.has_value());
  const auto readings = (*nvml)->Read();
  EXPECT_EQ(readings[1].energy_joules, 2.5);
  EXPECT_EQ(readings[1].throttle_reasons, 64u);
  EXPECT_EQ(readings[1].ToProto().throttled_by(), "heat");
  EXPECT_EQ(readings[0].ToProto().throttled_by(), "");
  EXPECT_EQ(readings[1].corrected_ecc_errors, 3u);
  EXPECT_EQ(readings[1].uncorrected_ecc_errors, 0u);
  EXPECT_EQ(readings[1].memory_clock_hertz, 2619e6);
  EXPECT_EQ(readings[1].pcie_sent_bytes, 10u);
  EXPECT_EQ(readings[1].pcie_received_bytes, 20u);
  EXPECT_EQ(readings[1].nvlink_sent_bytes, 30u * 1024);
  EXPECT_EQ(readings[1].nvlink_received_bytes, 40u * 1024);
  EXPECT_EQ(readings[2].error, "");
  EXPECT_FALSE(readings[2].energy_joules || readings[2].throttle_reasons ||
               readings[2].corrected_ecc_errors || readings[2].uncorrected_ecc_errors ||
               readings[2].memory_clock_hertz || readings[2].pcie_sent_bytes ||
               readings[2].nvlink_received_bytes);
}

TEST(Gpu, WhatWentOverPcieGoesOnWhereTheDriversCounterBeginsAnew) {
  const TempDir dir;
  const auto nvml =
      LoadFake(dir, std::string(kEightGpus) + "pcie_tx 1 7\npcie_rx 1 4294967000 500 4294967000 500\n");
  ASSERT_TRUE(nvml.has_value());
  EXPECT_EQ((*nvml)->Read()[1].pcie_received_bytes, 4294967000u);
  (*nvml)->FollowTraffic();
  (*nvml)->FollowTraffic();
  const auto readings = (*nvml)->Read();
  EXPECT_EQ(readings[1].pcie_received_bytes, (uint64_t{2} << 32) + 500);
  EXPECT_EQ(readings[1].pcie_sent_bytes, 7u);
}

TEST(Gpu, TrafficIsFollowedBetweenTwoReadings) {
  const TempDir dir;
  // Each look finds 3 GB more, for the first twelve.
  std::string script = std::string(kEightGpus) + "pcie_tx 0 0\npcie_rx 0";
  for (uint64_t look = 0; look < 12; ++look)
    script += fmt::format(" {}", look * 3'000'000'000 % (uint64_t{1} << 32));
  auto nvml = LoadFake(dir, script + "\n");
  ASSERT_TRUE(nvml.has_value());
  const GpuMonitor monitor(std::move(*nvml), std::chrono::seconds(1));
  const auto received = [&monitor] {
    const auto readings = monitor.Latest();
    return readings.empty() ? 0 : readings[0].pcie_received_bytes.value_or(0);
  };
  while (received() == 0) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_GE(received(), 6'000'000'000u) << "the second reading, and at least one look before it";
}

TEST(Gpu, OneThatCannotBeOpenedIsLeftOutAndTheOthersKeepTheirIndex) {
  const TempDir dir;
  const auto nvml = LoadFake(dir, std::string(kEightGpus) + "fail handle 2 15\n");
  ASSERT_TRUE(nvml.has_value());
  ASSERT_EQ((*nvml)->devices().size(), 7);
  EXPECT_EQ((*nvml)->devices()[2].index(), 3);
}

TEST(Gpu, CpuSlotsServeWhereThereIsNoGpu) {
  const TempDir dir;
  ASSERT_FALSE(LoadFake(dir, "fail init 9\n").has_value());
  EXPECT_THAT(LoadFake(dir, "fail init 9\n").error().message, HasSubstr("Driver Not Loaded"));
  const auto slots = FindDevices("none", 3);
  ASSERT_TRUE(slots.has_value());
  ASSERT_EQ(slots->list.size(), 3);
  EXPECT_EQ(slots->list[2].model(), "cpu");
  EXPECT_THAT(FindDevices("none", 0).error().message, HasSubstr("nothing to compute with"));
  EXPECT_THAT(FindDevices("/nonexistent.so", 3).error().message, HasSubstr("cannot load the NVML library"));
}

TEST(Gpu, TheMonitorHasReadingsFromTheStart) {
  const TempDir dir;
  auto nvml = LoadFake(dir, std::string(kEightGpus) + "slow 0 200\necc 3 7\n");
  ASSERT_TRUE(nvml.has_value());
  const GpuMonitor monitor(std::move(*nvml), std::chrono::hours(1));
  const auto readings = monitor.Latest();
  ASSERT_EQ(readings.size(), 8);
  EXPECT_EQ(readings[7].error, "");
  EXPECT_EQ(readings[7].power_watts, 650);
  EXPECT_EQ(readings[7].WhyIll(), "");
  EXPECT_EQ(readings[3].WhyIll(), "has 7 uncorrected memory errors since the driver was loaded");
}

}  // namespace
}  // namespace imgd
