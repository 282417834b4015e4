// The whole agent: imgagent as a process, with a daemon of the test's own on loopback.
#include <gmock/gmock.h>
#include <sys/epoll.h>

#include "agent/process.h"
#include "agent/testing/agent_process.h"
#include "agent/testing/fake_daemon.h"
#include "agent/testing/loopback_client.h"

namespace imgd {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

constexpr const char* kCounting = R"sh(
i=1
while [ $i -le 120 ]; do
  echo "line $i"
  [ $i -le 100 ] && printf "\\002\\000\\000\\000\\010\\$(printf %03o $i)" >> $IMGD_RUN_DIR/events.$LOCAL_RANK
  i=$((i+1))
  sleep 0.02
done
)sh";

class AgentTest : public testing::Test {
 protected:
  ~AgentTest() override {
    // No test may leave a process, whatever it expects.
    for (const auto& run : runs_) {
      for (const pid_t pid : LeftoverProcesses(RunDir{dir_.path() / "state/runs" / run}, std::nullopt)) {
        ADD_FAILURE() << "process " << pid << " of run " << run << " is left";
        ::kill(pid, SIGKILL);
      }
    }
  }

  std::unique_ptr<AgentProcess> StartAgent(std::vector<std::string> more = {"--cpu-slots", "2", "--nvml",
                                                                            "none"}) {
    std::vector<std::string> arguments = {"--server",    daemon_.address(), "--node",    "n1",
                                          "--state-dir", dir_ / "state",    "--trainer", dir_ / "trainer"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return std::make_unique<AgentProcess>(dir_ / "agent.log", arguments);
  }

  /// As the agent's log names it; 0 if it does not.
  static uint32_t MetricsPort(const AgentProcess& agent) {
    const auto log = agent.Output();
    const auto line_end = log.find(" msg=\"serves /metrics\"");
    const auto at = log.rfind("port=", line_end);
    if (line_end == std::string::npos || at == std::string::npos) return 0;
    return static_cast<uint32_t>(std::stoul(log.substr(at + 5)));
  }

  bool UntilConnected(size_t hellos = 1) {
    return daemon_.Until([&](auto& seen) { return seen.connected && seen.hellos.size() >= hellos; });
  }

  void StartRun(uint64_t job, uint64_t generation, uint32_t ranks) {
    runs_.push_back(fmt::format("{}-{}-test", job, generation));
    v1::ConnectResponse command;
    *command.mutable_start_run() = TestNode::StartCommand(job, generation, ranks);
    daemon_.Send(command);
  }

  /// Waits for the run's end and for all that its ranks said, and has it forgotten.
  void Finish(uint64_t job, uint64_t generation, const std::vector<uint32_t>& ranks, uint64_t lines,
              uint64_t events) {
    ASSERT_TRUE(daemon_.Until([&](auto& seen) {
      bool done = seen.Status(job, generation).phase() == v1::RUN_PHASE_GONE;
      for (const uint32_t rank : ranks) {
        done = done && seen.store.Rank(job, generation, rank).last_line() == lines &&
               seen.store.Rank(job, generation, rank).last_event == events;
      }
      return done;
    })) << ReadFile(dir_ / "agent.log").value_or("");
    (void)daemon_.Until([&](auto& seen) {
      for (const uint32_t rank : ranks) {
        EXPECT_EQ(seen.store.Rank(job, generation, rank).lines.size(), lines);
        EXPECT_THAT(seen.store.Rank(job, generation, rank).faults, IsEmpty());
      }
      return true;
    });
  }

  bool UntilLine(uint64_t job, uint64_t generation, uint32_t rank, uint64_t line) {
    return daemon_.Until(
        [&](auto& seen) { return seen.store.Rank(job, generation, rank).last_line() >= line; });
  }

  std::vector<int64_t> Pids(uint64_t job, uint64_t generation) {
    std::vector<int64_t> pids;
    (void)daemon_.Until([&](auto& seen) {
      const auto status = seen.Status(job, generation);
      for (const auto& rank : status.ranks()) pids.push_back(rank.pid());
      return true;
    });
    return pids;
  }

  TempDir dir_;
  FakeDaemon daemon_;
  std::vector<std::string> runs_;
};

TEST_F(AgentTest, JoinsAndSaysWhatTheNodeIs) {
  dir_.Script("trainer", "exit 0");
  const auto shared = dir_ / "shared";
  std::filesystem::create_directory(shared);
  const auto agent = StartAgent({"--cpu-slots", "2", "--nvml", "none", "--shared-folder", shared});
  ASSERT_TRUE(daemon_.Until([](auto& seen) { return seen.heartbeats.size() >= 2; }));
  v1::Hello hello;
  (void)daemon_.Until([&](auto& seen) {
    hello = seen.hellos.front();
    return true;
  });
  EXPECT_EQ(hello.node(), "n1");
  EXPECT_EQ(hello.address(), "127.0.0.1");
  ASSERT_EQ(hello.devices_size(), 2);
  EXPECT_EQ(hello.devices(1).index(), 1);
  EXPECT_EQ(hello.devices(1).model(), "cpu");
  EXPECT_THAT(hello.agent_id(), SizeIs(32));
  EXPECT_THAT(hello.incarnation(), SizeIs(16));
  EXPECT_THAT(hello.filesystem_id(), SizeIs(16));
  ASSERT_EQ(hello.shared_folders_size(), 1);
  EXPECT_EQ(hello.shared_folders(0).path(), shared);
  EXPECT_THAT(*ReadFile(shared / ".imgd-shared-id"), testing::StartsWith(hello.shared_folders(0).id()));
}

TEST_F(AgentTest, RelaysReadingsOfItsGpus) {
  dir_.Script("trainer", "exit 0");
  const auto script =
      dir_.Write("gpus",
                 "count 2\nname * NVIDIA H100 80GB HBM3\nmemory * 85899345920 1073741824\n"
                 "util * 97\npower * 650000\ntemperature * 61\nclock * 1980\nfail power 1 15\n");
  ::setenv("IMGD_FAKE_NVML_SCRIPT", script.c_str(), 1);
  const auto agent = StartAgent({"--nvml", IMGD_FAKE_NVML});
  ASSERT_TRUE(daemon_.Until([](auto& seen) {
    return !seen.heartbeats.empty() && seen.heartbeats.back().readings_size() == 2 &&
           seen.heartbeats.back().readings(0).error().empty();
  }));
  (void)daemon_.Until([](auto& seen) {
    EXPECT_EQ(seen.hellos.front().devices(0).model(), "NVIDIA H100 80GB HBM3");
    const auto& heartbeat = seen.heartbeats.back();
    EXPECT_DOUBLE_EQ(heartbeat.readings(0).power_watts(), 650);
    EXPECT_EQ(heartbeat.readings(1).error(), "power can't be read: GPU is lost");
    return true;
  });
}

TEST_F(AgentTest, ServesItsMetricsOnAPortThatItNames) {
  dir_.Script("trainer", "exit 0");
  const auto script = dir_.Write("gpus", "count 2\nutil * 97\npower * 650000\nfail power 1 15\n");
  ::setenv("IMGD_FAKE_NVML_SCRIPT", script.c_str(), 1);
  const auto agent = StartAgent({"--nvml", IMGD_FAKE_NVML, "--metrics-listen", "127.0.0.1:0"});
  ASSERT_TRUE(daemon_.Until(
      [](auto& seen) { return !seen.heartbeats.empty() && seen.heartbeats.back().readings_size() == 2; }));
  const uint32_t port = MetricsPort(*agent);
  ASSERT_NE(port, 0) << agent->Output();
  const auto text = HttpGet(port, "/metrics");
  EXPECT_THAT(text, HasSubstr("imgd_gpu_busy_ratio{gpu=\"1\",uuid="));
  EXPECT_THAT(text, HasSubstr("imgd_gpu_power_watts{gpu=\"0\",uuid="));
  EXPECT_THAT(text, testing::Not(HasSubstr("imgd_gpu_power_watts{gpu=\"1\"")));
  AgentProcess second(dir_ / "second.log", {"--server", daemon_.address(), "--state-dir", dir_ / "second",
                                            "--trainer", dir_ / "trainer", "--cpu-slots", "1", "--nvml",
                                            "none", "--metrics-listen", fmt::format("127.0.0.1:{}", port)});
  EXPECT_EQ(second.Wait(), 5);
  EXPECT_THAT(second.Output(), HasSubstr(fmt::format(
                                   "imgagent: metrics: cannot listen on port {} of 127.0.0.1: the port is in "
                                   "use by another program\n",
                                   port)));
}

TEST_F(AgentTest, ShowsItsMetricsToTheDaemonWhereNobodyDialsIt) {
  dir_.Script("trainer", "exit 0");
  const auto agent = StartAgent({"--cpu-slots", "2", "--nvml", "none", "--metrics-listen", "relay"});
  ASSERT_TRUE(UntilConnected());
  (void)daemon_.Until([](auto& seen) {
    EXPECT_TRUE(seen.hellos.front().metrics_relayed());
    EXPECT_EQ(seen.hellos.front().metrics_address(), "");
    return true;
  });
  v1::ConnectResponse ask;
  ask.mutable_show_metrics()->set_number(12);
  // It may not have read the Welcome yet, before which it takes no question.
  ASSERT_TRUE(daemon_.Until([](auto& seen) { return !seen.heartbeats.empty(); }));
  daemon_.Send(ask);
  ASSERT_TRUE(daemon_.Until([](auto& seen) { return !seen.pages.empty(); }));
  (void)daemon_.Until([](auto& seen) {
    EXPECT_EQ(seen.pages.front().number(), 12u);
    EXPECT_THAT(seen.pages.front().text(), HasSubstr("imgd_node_memory_bytes"));
    return true;
  });
}

TEST_F(AgentTest, KilledInTheMiddleOfARunItLosesNothing) {
  dir_.Script("trainer", kCounting);
  auto agent = StartAgent();
  ASSERT_TRUE(UntilConnected());
  StartRun(7, 1, 2);
  ASSERT_TRUE(UntilLine(7, 1, 1, 20));
  const auto pids = Pids(7, 1);
  ASSERT_THAT(pids, SizeIs(2));
  EXPECT_EQ(agent->End(SIGKILL), -SIGKILL);
  agent = StartAgent();
  ASSERT_TRUE(UntilConnected(2));
  EXPECT_EQ(Pids(7, 1), pids);
  ASSERT_TRUE(UntilLine(7, 1, 1, 50));
  EXPECT_EQ(agent->End(SIGTERM), 0);
  agent = StartAgent();
  Finish(7, 1, {1, 2}, 120, 100);
  v1::ConnectResponse forget;
  forget.mutable_forget_run()->mutable_run()->set_job_id(7);
  forget.mutable_forget_run()->mutable_run()->set_generation(1);
  daemon_.Send(forget);
  EXPECT_TRUE(
      daemon_.Until([&](auto&) { return !std::filesystem::exists(dir_.path() / "state/runs/7-1-test"); }));
  (void)daemon_.Until([](auto& seen) {
    EXPECT_EQ(seen.hellos[0].agent_id(), seen.hellos[1].agent_id());
    EXPECT_NE(seen.hellos[0].incarnation(), seen.hellos[1].incarnation());
    return true;
  });
}

TEST_F(AgentTest, ADaemonThatGoesAndComesBackLosesNothing) {
  dir_.Script("trainer", kCounting);
  const auto agent = StartAgent();
  ASSERT_TRUE(UntilConnected());
  StartRun(7, 1, 2);
  ASSERT_TRUE(UntilLine(7, 1, 1, 10));
  const auto pids = Pids(7, 1);
  daemon_.Shutdown();
  daemon_.Restart();
  ASSERT_TRUE(UntilConnected(2));
  EXPECT_EQ(Pids(7, 1), pids);
  Finish(7, 1, {1, 2}, 120, 100);
}

TEST_F(AgentTest, ASecondAgentOnTheSameFolderIsRefused) {
  dir_.Script("trainer", "exit 0");
  const auto agent = StartAgent();
  ASSERT_TRUE(UntilConnected());
  AgentProcess second(dir_ / "second.log",
                      {"--server", daemon_.address(), "--state-dir", dir_ / "state", "--trainer",
                       dir_ / "trainer", "--cpu-slots", "1", "--nvml", "none"});
  EXPECT_EQ(second.Wait(), 5);
  EXPECT_THAT(second.Output(), HasSubstr("another imgagent runs on the state folder"));
}

TEST_F(AgentTest, StopsItsRunsAfterALongDisconnectionIfToldTo) {
  dir_.Script("trainer", "echo ready; exec sleep 605");
  const auto config = dir_.Write("agent.yaml", "cpu_slots: 1\nnvml: none\nstop_after_disconnect: 100ms\n");
  const auto agent = StartAgent({"--config", config});
  ASSERT_TRUE(UntilConnected());
  StartRun(7, 1, 1);
  ASSERT_TRUE(UntilLine(7, 1, 1, 1));
  ASSERT_TRUE(daemon_.Until([](auto& seen) { return seen.Status(7, 1).ranks_size() == 1; }));
  daemon_.Refuse("this daemon is somebody else's");
  daemon_.Shutdown();
  daemon_.Restart();
  const RunDir run{dir_.path() / "state/runs/7-1-test"};
  const auto pid = static_cast<pid_t>(Pids(7, 1).at(0));
  const UniqueFd pidfd = PidfdOpen(pid);
  const auto loop = *EventLoop::Create();
  bool ended = !pidfd.valid();
  const auto loop_end = [&](uint32_t) { ended = true; };
  ASSERT_TRUE(ended || loop->Watch(pidfd.get(), EPOLLIN, loop_end).has_value());
  while (!ended) loop->RunOnce(std::chrono::seconds(1));
  daemon_.Refuse("");
  EXPECT_TRUE(daemon_.Until([](auto& seen) { return seen.Status(7, 1).phase() == v1::RUN_PHASE_GONE; }));
}

TEST_F(AgentTest, ADaemonOfAnotherClusterIsNotTheOneThatItsRunsWaitFor) {
  dir_.Script("trainer", "echo ready; exec sleep 606");
  const auto config = dir_.Write("agent.yaml", "cpu_slots: 1\nnvml: none\nstop_after_disconnect: 100ms\n");
  const auto agent = StartAgent({"--config", config});
  ASSERT_TRUE(UntilConnected());
  StartRun(7, 1, 1);
  ASSERT_TRUE(UntilLine(7, 1, 1, 1));
  daemon_.Shutdown();
  daemon_.SetCluster("other");
  daemon_.Restart();
  EXPECT_TRUE(daemon_.Until([](auto& seen) {
    const auto status = seen.Status(7, 1);
    return status.phase() == v1::RUN_PHASE_GONE && status.cluster_id() == "test";
  }));
  EXPECT_THAT(ReadFile(dir_ / "agent.log").value_or(""), HasSubstr("its imgd was away"));
}

TEST(AgentCommandLine, SaysWhatIsWrongAndEndsWithTheRightCode) {
  const TempDir dir;
  const auto trainer = dir.Script("trainer", "exit 0");
  const auto run = [&](std::vector<std::string> arguments) {
    arguments.insert(arguments.end(), {"--state-dir", dir / "state"});
    std::filesystem::remove(dir / "out");
    AgentProcess agent(dir / "out", arguments);
    const int code = agent.Wait();
    return std::pair(code, agent.Output());
  };
  EXPECT_EQ(run({"--version"}), std::pair(0, std::string("imgagent 0.1.0\n")));
  EXPECT_EQ(run({"--no-such-flag"}).first, 2);
  const auto no_device = run({"--trainer", trainer, "--nvml", "none"});
  EXPECT_EQ(no_device.first, 3);
  EXPECT_THAT(no_device.second, HasSubstr("nothing to compute with"));
  const auto bad_metrics =
      run({"--trainer", trainer, "--cpu-slots", "1", "--nvml", "none", "--metrics-listen", "7651"});
  EXPECT_EQ(bad_metrics.first, 2);
  EXPECT_THAT(bad_metrics.second, HasSubstr("metrics_listen: found '7651'; HOST:PORT is expected"));
  const auto bad_server = run({"--trainer", trainer, "--server", "nowhere"});
  EXPECT_EQ(bad_server.first, 2);
  EXPECT_THAT(bad_server.second, HasSubstr("server address 'nowhere': HOST:PORT is expected"));
  const auto many = run({"--trainer", trainer, "--cpu-slots", "99999999", "--nvml", "none"});
  EXPECT_EQ(many.first, 2);
  EXPECT_THAT(many.second, HasSubstr("cpu_slots: found 99999999; 0 to 1024 are allowed"));
  const auto no_trainer = run({"--trainer", "/nonexistent/imgtrain", "--cpu-slots", "1", "--nvml", "none"});
  EXPECT_EQ(no_trainer.first, 3);
  EXPECT_THAT(no_trainer.second, HasSubstr("trainer '/nonexistent/imgtrain' can't be run: No such file"));
  const auto folder = run({"--trainer", dir.path(), "--cpu-slots", "1", "--nvml", "none", "--check-config"});
  EXPECT_EQ(folder.first, 2);
  EXPECT_THAT(folder.second, HasSubstr("is not a program"));
  const auto misspelt = run({"--config", dir.Write("agent.yaml", "cpu_slot: 2\n")});
  EXPECT_EQ(misspelt.first, 2);
  EXPECT_THAT(misspelt.second,
              HasSubstr("agent.yaml:1:1: cpu_slot: unknown key (did you mean 'cpu_slots'?)"));
  const auto not_shared =
      run({"--trainer", trainer, "--cpu-slots", "1", "--nvml", "none", "--shared-folder", "/nonexistent"});
  EXPECT_EQ(not_shared.first, 3) << "it may yet come, and the unit tries again";
  EXPECT_THAT(not_shared.second, HasSubstr("shared folder '/nonexistent': there is no such folder"));
  const auto only_checked = run({"--trainer", trainer, "--cpu-slots", "1", "--nvml", "none",
                                 "--shared-folder", "/nonexistent", "--check-config"});
  EXPECT_EQ(only_checked.first, 3);
  EXPECT_THAT(only_checked.second, HasSubstr("shared folder '/nonexistent'"));
  const auto relative = run({"--trainer", trainer, "--cpu-slots", "1", "--nvml", "none", "--shared-folder",
                             "data", "--check-config"});
  EXPECT_EQ(relative.first, 2);
  EXPECT_THAT(relative.second, HasSubstr("shared folder 'data': an absolute path is expected"));
}

}  // namespace
}  // namespace imgd
