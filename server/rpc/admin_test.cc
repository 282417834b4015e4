#include <gmock/gmock.h>

#include <map>
#include <mutex>
#include <sstream>
#include <thread>

#include "common/files.h"
#include "common/sha256.h"
#include "imgd/v1/admin.grpc.pb.h"
#include "imgd/v1/event.grpc.pb.h"
#include "server/config_changes.h"
#include "server/rpc/testing/rpc_fixture.h"
#include "server/store/restore.h"

namespace imgd {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr const char* kFile = "/etc/imgd/imgd.yaml";

/// A daemon whose configuration file the test writes.
struct AdminTest : RpcTest {
  void SetUp() override {
    RpcTest::SetUp();
    daemon.reset();
    auto read = [this] {
      const std::lock_guard lock(mutex);
      return ParseServerConfig(text, kFile, config);
    };
    daemon = std::move(*Daemon::Start(config, &clock, {}, read));
    channel = grpc::CreateCustomChannel(fmt::format("127.0.0.1:{}", daemon->port()),
                                        grpc::InsecureChannelCredentials(), Unshared());
    jobs = v1::JobService::NewStub(channel);
  }
  grpc::Status Reload(v1::ReloadResponse& response) {
    v1::ReloadRequest request;
    request.set_actor("ada");
    Context context;
    return v1::AdminService::NewStub(channel)->Reload(&context, request, &response);
  }
  v1::ReloadResponse Reload() {
    v1::ReloadResponse response;
    const auto status = Reload(response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return response;
  }
  grpc::Status Backup(std::string& bytes) {
    v1::BackupRequest request;
    request.set_actor("ada");
    Context context;
    auto stream = v1::AdminService::NewStub(channel)->Backup(&context, request);
    v1::BackupResponse piece;
    std::string sum;
    while (stream->Read(&piece)) {
      bytes += piece.chunk();
      sum = piece.sha256();
    }
    const auto status = stream->Finish();
    if (!status.ok()) return status;
    EXPECT_EQ(sum, Sha256Of(bytes));
    return status;
  }
  std::vector<std::string> Events() {
    v1::ListEventsResponse response;
    Context context;
    EXPECT_TRUE(v1::EventService::NewStub(channel)->ListEvents(&context, {}, &response).ok());
    std::vector<std::string> out;
    for (const auto& event : response.events()) out.push_back(event.text());
    return out;
  }

  void Write(std::string file) {
    const std::lock_guard lock(mutex);
    text = std::move(file);
  }

  std::mutex mutex;
  std::string text;  // of the file; guarded by mutex
};

TEST_F(AdminTest, WhatCanChangeChangesAtOnce) {
  EXPECT_TRUE(Reload().changed().empty());
  Write("quotas: {user: {queued: 1}}\npolicies:\n  - {name: caps, at_most: {priority: 3}}\n");
  const auto answer = Reload();
  EXPECT_THAT(answer.changed(), ElementsAre("quotas", "policies"));
  EXPECT_THAT(answer.need_restart(), IsEmpty());
  v1::SubmitJobResponse response;
  EXPECT_TRUE(Submit(kJob, response).ok());
  EXPECT_EQ(Submit(kJob, response).error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_THAT(Submit("name: x\npriority: 4\ndata: {train: /data}\n", response).error_message(),
              HasSubstr("policy caps"));
  EXPECT_THAT(Events(), Contains("ada had imgd read its configuration again: quotas, policies"));
  Write("");
  EXPECT_THAT(Reload().changed(), ElementsAre("quotas", "policies"));
  EXPECT_TRUE(Submit(kJob, response).ok());
}

TEST_F(AdminTest, WhatCannotIsNamedAndStays) {
  Write("listen: 127.0.0.1:1\nheartbeat: 5s\naging: 1h\n");
  for (const bool again : {false, true}) {
    const auto answer = Reload();
    EXPECT_EQ(answer.changed_size(), again ? 0 : 1) << answer.ShortDebugString();
    EXPECT_THAT(answer.need_restart(), ElementsAre("listen", "heartbeat"));
  }
}

TEST_F(AdminTest, AFileWithAnErrorChangesNothingAndSaysWhere) {
  Write("aging: 1h\nquotas: {user: {queued: none}}\n");
  v1::ReloadResponse response;
  const auto status = Reload(response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  v1::ErrorDetails details;
  ASSERT_TRUE(details.ParseFromString(status.error_details()));
  EXPECT_EQ(details.errors(0).file(), kFile);
  EXPECT_EQ(details.errors(0).line(), 2u);
  Write("aging: 1h\n");
  EXPECT_THAT(Reload().changed(), ElementsAre("aging")) << "it did not change before";
}

TEST_F(AdminTest, WhatCannotBeRecordedChangesNothing) {
  Write("quotas: {user: {queued: 1}}\npolicies:\n  - {name: caps, at_most: {priority: 3}}\n");
  v1::ReloadResponse response;
  {
    const FullDisk full(4096);
    EXPECT_EQ(Reload(response).error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  }
  while (!List().warning().empty()) std::this_thread::sleep_for(std::chrono::milliseconds(20));
  v1::SubmitJobResponse submitted;
  for (int i = 0; i < 2; ++i) EXPECT_TRUE(Submit(kJob, submitted).ok()) << "the quota does not hold";
  EXPECT_TRUE(Submit("name: x\npriority: 4\ndata: {train: /data}\n", submitted).ok()) << "nor the policy";
  EXPECT_THAT(Reload().changed(), ElementsAre("quotas", "policies")) << "and it knows that";
}

TEST_F(AdminTest, WhatIsGoodInTheFileButNotBesideWhatStaysIsRefused) {
  Write("heartbeat: 100ms\nlost_after: 400ms\n");
  v1::ReloadResponse response;
  EXPECT_THAT(Reload(response).error_message(), HasSubstr("more than three heartbeats (90000 ms)"));
}

TEST_F(AdminTest, ABackupOfTheLiveDaemonIsGoneOnFrom) {
  const uint64_t id = Submit(kJob);
  std::string bytes;
  const auto status = Backup(bytes);
  ASSERT_TRUE(status.ok()) << status.error_message();
  const auto file = folder.string() + ".tar";
  ASSERT_TRUE(WriteFileAtomically(file, bytes));
  Submit(kJob);  // is not in it
  EXPECT_THAT(Events(), Contains("ada takes a backup of imgd's state"));
  daemon.reset();
  const auto restored = RestoreBackup(
      {.file = file, .state_dir = folder, .replace = true, .now = {clock.Wall().micros + 1'000'000}});
  ASSERT_TRUE(restored.has_value()) << restored.error().ToString();
  StartDaemon();
  EXPECT_EQ(List().jobs_size(), 1);
  std::vector<v1::ReasonCode> reasons;
  for (const auto& event : Watch(id, 0, false)) reasons.push_back(event.state_change().reason());
  EXPECT_THAT(reasons, Contains(v1::REASON_CODE_RESTORED));
  EXPECT_EQ(Submit(kJob), restored->next_job.value());
  std::filesystem::remove(file);
}

TEST_F(AdminTest, ABackupHasNoCaWhileWhoeverIsOnTheMachineMayAskForIt) {
  config.web.listen = "127.0.0.1:0";
  daemon.reset();
  StartDaemon();
  ASSERT_TRUE(std::filesystem::exists(folder / "ca.key"));
  std::string open;
  ASSERT_TRUE(Backup(open).ok());
  EXPECT_THAT(open, Not(HasSubstr("ca.key")));
  EXPECT_THAT(open, HasSubstr("state.db"));
}

TEST_F(AdminTest, ABackupThatNobodyReadsOnIsOver) {
  {
    v1::BackupRequest request;
    Context context;
    auto stream = v1::AdminService::NewStub(channel)->Backup(&context, request);
    v1::BackupResponse piece;
    ASSERT_TRUE(stream->Read(&piece));
    context.TryCancel();
    (void)stream->Finish();
  }
  grpc::Status another;
  do {
    std::string bytes;
    another = Backup(bytes);
  } while (another.error_code() == grpc::StatusCode::RESOURCE_EXHAUSTED);  // until the daemon knows
  EXPECT_TRUE(another.ok()) << another.error_message();
}

TEST_F(AdminTest, AFolderWithAHalfDoneRestoreIsNotStartedFrom) {
  daemon.reset();
  std::filesystem::create_directories(folder / "restore.half-done");
  const auto refused = Daemon::Start(config, &clock, {});
  ASSERT_FALSE(refused.has_value());
  EXPECT_THAT(refused.error().message, HasSubstr("was broken off: imgd --restore FILE --replace"));
}

TEST(ConfigChanges, EachKeyOfTheExampleIsInTheTable) {
  const std::string example = ReadFile(IMGD_EXAMPLE_CONFIG).value();
  std::vector<std::string> names;
  for (const auto& key : ConfigKeys()) {
    names.push_back(key.name);
    const std::string line = fmt::format("\n{}:", key.name);
    const std::string comment = fmt::format("\n# {}:", key.name);
    EXPECT_TRUE(example.find(line) != std::string::npos || example.find(comment) != std::string::npos)
        << key.name << " is not in the example";
  }
  std::istringstream lines(example);
  for (std::string line; std::getline(lines, line);) {
    const size_t colon = line.find(':');
    if (colon == std::string::npos || line.find_first_of(" #") < colon) continue;
    EXPECT_THAT(names, Contains(line.substr(0, colon)));
  }
}

TEST(ConfigChanges, ThePageSaysOfEachKeyWhetherItNeedsARestart) {
  const std::string page = ReadFile(IMGD_OPERATIONS_PAGE).value();
  const size_t begin = page.find("\n## Changing the configuration while imgd runs\n");
  ASSERT_NE(begin, std::string::npos);
  std::istringstream lines(page.substr(begin, page.find("\n## ", begin + 1) - begin));
  std::map<std::string, bool> at_once;
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("| `")) continue;
    const bool restart = line.find("| by a restart") != std::string::npos;
    for (size_t from = line.find('`'); from != std::string::npos;) {
      const size_t to = line.find('`', from + 1);
      at_once[line.substr(from + 1, to - from - 1)] = !restart;
      from = line.find('`', to + 1);
    }
  }
  std::map<std::string, bool> table;
  for (const auto& key : ConfigKeys()) table[key.name] = key.at_once;
  EXPECT_EQ(at_once, table);
}

TEST(ConfigChanges, EachKeyIsComparedAndTakenByItself) {
  for (const auto& key : ConfigKeys()) {
    ServerConfig a;
    EXPECT_TRUE(key.same(a, ServerConfig{})) << key.name;
    ServerConfig b;
    b.listen = b.state_dir = b.checkpoint_dir = b.currency = b.log_level = "other";
    b.tls.plain_text = b.tls.on_loopback = b.commands = b.shell = true;
    b.web.plain_http = true;
    b.ec2_join.accounts = {"123456789012"};
    b.preemption = b.built_in_log_patterns = false;
    b.heartbeat_ms = b.lost_after_ms = b.start_timeout_ms = b.report_timeout_ms = 1;
    b.fair_share_half_life_ms = b.aging_ms = b.log_kept_bytes = b.events_kept = b.events_kept_for_ms = 1;
    b.jobs_kept_for_ms = b.metrics_kept_for_ms = b.logs_kept_for_ms = b.most_clock_skew_ms =
        b.lost_nodes_kept_for_ms = b.checkpoints_kept_for_ms = 1;
    b.logs_total_bytes = b.metrics_total_bytes = b.checkpoints_total_bytes = 1;
    b.best_checkpoints_kept = false;
    b.set_aside_after = b.shell_idle_limit_ms = b.shell_sessions_per_node = 1;
    b.notifications.most_pending = 1;
    b.shares.users["ada"] = 2;
    b.quotas.user.devices = 1;
    b.policies.emplace_back();
    b.log_patterns.emplace_back();
    EXPECT_FALSE(key.same(a, b)) << key.name;
    key.take(a, b);
    EXPECT_TRUE(key.same(a, b)) << key.name;
  }
}

}  // namespace
}  // namespace imgd
