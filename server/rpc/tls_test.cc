#include <gmock/gmock.h>

#include <future>

#include "common/files.h"
#include "common/text.h"
#include "common/tls/join_token.h"
#include "common/tls/pem.h"
#include "imgd/v1/enrol.grpc.pb.h"
#include "imgd/v1/event.grpc.pb.h"
#include "imgd/v1/session.grpc.pb.h"
#include "imgd/v1/token.grpc.pb.h"
#include "server/auth/tokens.h"
#include "server/rpc/testing/rpc_fixture.h"
#include "server/rpc/tls_alerts.h"

namespace imgd {
namespace {

using testing::HasSubstr;

TEST(TlsAlerts, WhatAClientsAlertMeansIsSaid) {
  const auto words = [](const char* alert) {
    return WordsOfTlsAlert(fmt::format(
        "Handshake failed with fatal error SSL_ERROR_SSL: error:0A000415:SSL routines::{}.", alert));
  };
  EXPECT_THAT(std::string(words("sslv3 alert certificate expired").value()), HasSubstr("it has expired"));
  EXPECT_THAT(std::string(words("sslv3 alert bad certificate").value()), HasSubstr("it is not good yet"));
  EXPECT_THAT(std::string(words("tlsv1 alert unknown ca").value()), HasSubstr("another CA"));
  EXPECT_FALSE(words("wrong version number").has_value());
}

/// A daemon that is served by TLS, and callers with tokens.
struct TlsTest : RpcTest {
  void SetUp() override {
    config.tls.on_loopback = true;
    RpcTest::SetUp();
    admin = Trimmed(ReadFile(folder / "admin.token").value(), "\n");
    channel = Channel();
    jobs = v1::JobService::NewStub(channel);
  }
  std::shared_ptr<grpc::Channel> Channel() {
    const grpc::SslCredentialsOptions options{
        .pem_root_certs = ReadFile(folder / "ca.crt").value(), .pem_private_key = "", .pem_cert_chain = ""};
    return grpc::CreateCustomChannel(fmt::format("127.0.0.1:{}", daemon->port()),
                                     grpc::SslCredentials(options), Unshared());
  }
  struct With : Context {
    explicit With(const std::string& token) { AddMetadata("authorization", "Bearer " + token); }
  };
  std::string MakeToken(const std::string& scope, const std::string& owner, uint64_t ttl_ms = 0) {
    v1::CreateTokenRequest request;
    request.set_ttl_ms(ttl_ms);
    request.set_name(scope + "-" + owner);
    request.add_scopes(scope);
    request.set_owner(owner);
    v1::CreateTokenResponse response;
    With context(admin);
    const auto status = v1::TokenService::NewStub(channel)->CreateToken(&context, request, &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return response.secret();
  }
  grpc::Status Revoke(const std::string& name) {
    v1::RevokeTokenRequest request;
    request.set_name(name);
    v1::RevokeTokenResponse response;
    With context(admin);
    return v1::TokenService::NewStub(channel)->RevokeToken(&context, request, &response);
  }
  /// A job of the token's owner, to be watched.
  v1::WatchJobRequest SubmittedBy(const std::string& secret) {
    v1::SubmitJobRequest request;
    request.set_job_yaml(kJob);
    v1::SubmitJobResponse submitted;
    With context(secret);
    const auto status = jobs->SubmitJob(&context, request, &submitted);
    EXPECT_TRUE(status.ok()) << status.error_message();
    v1::WatchJobRequest watch;
    watch.set_id(submitted.job().id());
    return watch;
  }

  std::string admin;
};

TEST_F(TlsTest, ACallNeedsATokenWithTheScopeOfItsMethod) {
  v1::ListJobsResponse listed;
  Context nobody;
  EXPECT_EQ(jobs->ListJobs(&nobody, {}, &listed).error_code(), grpc::StatusCode::UNAUTHENTICATED);
  With stranger("imgd_wrong");
  EXPECT_EQ(jobs->ListJobs(&stranger, {}, &listed).error_code(), grpc::StatusCode::UNAUTHENTICATED);
  const std::string view = MakeToken("view", "ada");
  With viewer(view);
  EXPECT_TRUE(jobs->ListJobs(&viewer, {}, &listed).ok());
  v1::CancelJobResponse cancelled;
  With viewer_again(view);
  const auto refused = jobs->CancelJob(&viewer_again, {}, &cancelled);
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::PERMISSION_DENIED);
  EXPECT_THAT(refused.error_message(),
              HasSubstr("'view-ada' is not good for this: the scope 'submit' is needed"));
}

TEST_F(TlsTest, PlainTextIsNotSpokenThere) {
  const auto plain = grpc::CreateCustomChannel(fmt::format("127.0.0.1:{}", daemon->port()),
                                               grpc::InsecureChannelCredentials(), Unshared());
  v1::ListJobsResponse listed;
  Context context;
  EXPECT_EQ(v1::JobService::NewStub(plain)->ListJobs(&context, {}, &listed).error_code(),
            grpc::StatusCode::UNAVAILABLE);
}

TEST_F(TlsTest, AJobBelongsToTheOwnerOfTheTokenWhateverTheRequestSays) {
  v1::SubmitJobRequest request;
  request.set_job_yaml(kJob);
  request.set_owner("somebody-else");
  v1::SubmitJobResponse response;
  With context(MakeToken("submit", "ada"));
  const auto status = jobs->SubmitJob(&context, request, &response);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(response.job().owner(), "ada");
}

TEST_F(TlsTest, WhoAttachesToAJobIsAnEventAndWhoReadsItsLogIsNone) {
  v1::SubmitJobRequest submit;
  submit.set_job_yaml(kJob);
  v1::SubmitJobResponse submitted;
  With submitting(MakeToken("submit", "ada"));
  ASSERT_TRUE(jobs->SubmitJob(&submitting, submit, &submitted).ok());
  const std::string view = MakeToken("view", "bob");
  const auto read = [&](uint64_t job, bool attached, std::optional<uint32_t> rank) {
    v1::ReadLogsRequest request;
    request.set_id(job);
    request.set_attached(attached);
    request.set_actor("somebody-else");
    if (rank) request.set_rank(*rank);
    With context(view);
    const auto stream = jobs->ReadLogs(&context, request);
    v1::ReadLogsResponse lines;
    while (stream->Read(&lines)) {
    }
    return stream->Finish();
  };
  EXPECT_TRUE(read(1, false, {}).ok());
  EXPECT_TRUE(read(1, true, {}).ok());
  EXPECT_TRUE(read(1, true, 0).ok());
  EXPECT_FALSE(read(77, true, {}).ok());
  MakeToken("view", "carol");  // what was noted before is stored by then
  v1::ListEventsResponse events;
  With context(view);
  ASSERT_TRUE(v1::EventService::NewStub(channel)->ListEvents(&context, {}, &events).ok());
  std::vector<std::string> said;
  for (const auto& event : events.events()) {
    if (event.reason() != v1::REASON_CODE_ATTACHED) continue;
    said.push_back(event.text());
    EXPECT_EQ(event.job_id(), 1u);
    EXPECT_EQ(event.actor(), "user:bob");
  }
  EXPECT_THAT(said, testing::ElementsAre("bob attaches to job 1", "bob attaches to rank 0 of job 1"));
}

TEST_F(TlsTest, WhoMadeOrTookBackWhatLetsOthersInIsAnEvent) {
  MakeToken("view", "bob");
  ASSERT_TRUE(Revoke("view-bob").ok());
  v1::CreateJoinTokenRequest join;
  join.set_uses(3);
  v1::CreateJoinTokenResponse joined;
  {
    With context(admin);
    ASSERT_TRUE(v1::EnrolService::NewStub(channel)->CreateJoinToken(&context, join, &joined).ok());
  }
  v1::RevokeJoinTokenRequest back;
  back.set_id(joined.token().id());
  v1::RevokeJoinTokenResponse answer;
  {
    With context(admin);
    ASSERT_TRUE(v1::EnrolService::NewStub(channel)->RevokeJoinToken(&context, back, &answer).ok());
  }
  v1::ListEventsResponse events;
  With context(admin);
  ASSERT_TRUE(v1::EventService::NewStub(channel)->ListEvents(&context, {}, &events).ok());
  std::vector<std::string> said;
  for (const auto& event : events.events()) {
    if (event.actor() == "user:admin" && event.reason() == v1::REASON_CODE_ADMINISTERED)
      said.push_back(event.text());
  }
  EXPECT_THAT(said, testing::ElementsAre("admin made the token view-bob for bob (view)",
                                         "admin took back the token view-bob",
                                         fmt::format("admin made the join token {} for 3 nodes", back.id()),
                                         fmt::format("admin took back the join token {}", back.id())));
  for (const auto& text : said) EXPECT_THAT(text, testing::Not(HasSubstr(joined.secret())));
}

TEST_F(TlsTest, ATokenThatExpiresEndsItsOpenStreamsAndNoOthers) {
  constexpr uint64_t kHourMs = 3'600'000;
  const std::string secret = MakeToken("submit", "ada");
  const v1::WatchJobRequest watch = SubmittedBy(secret);
  v1::WatchJobResponse event;
  With brief(MakeToken("view", "bob", kHourMs));
  const auto of_brief = jobs->WatchJob(&brief, watch);
  ASSERT_TRUE(of_brief->Read(&event));
  With context(secret);
  const auto stream = jobs->WatchJob(&context, watch);
  ASSERT_TRUE(stream->Read(&event));

  clock.forward_micros = int64_t{kHourMs} * 1000;
  while (of_brief->Read(&event)) {
  }
  EXPECT_EQ(of_brief->Finish().error_code(), grpc::StatusCode::CANCELLED);
  v1::CancelJobRequest cancel;
  cancel.set_id(watch.id());
  v1::CancelJobResponse cancelled;
  With canceller(secret);
  ASSERT_TRUE(jobs->CancelJob(&canceller, cancel, &cancelled).ok());
  EXPECT_TRUE(stream->Read(&event)) << "the other one goes on";
}

TEST_F(TlsTest, ARevokedTokenEndsItsOpenStreams) {
  const std::string secret = MakeToken("submit", "ada");
  const v1::WatchJobRequest watch = SubmittedBy(secret);
  With context(secret);
  const auto stream = jobs->WatchJob(&context, watch);
  v1::WatchJobResponse event;
  ASSERT_TRUE(stream->Read(&event));
  ASSERT_TRUE(Revoke("submit-ada").ok());
  while (stream->Read(&event)) {
  }
  EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::CANCELLED);
  With again(secret);
  v1::ListJobsResponse listed;
  EXPECT_EQ(jobs->ListJobs(&again, {}, &listed).error_code(), grpc::StatusCode::UNAUTHENTICATED);
}

TEST_F(TlsTest, AnAgentWithoutACertificateIsNotLetIn) {
  With context(admin);
  const auto stream = v1::AgentService::NewStub(channel)->Connect(&context);
  v1::ConnectResponse response;
  EXPECT_FALSE(stream->Read(&response));
  const auto status = stream->Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAUTHENTICATED);
  EXPECT_THAT(status.error_message(), HasSubstr("shows a certificate"));
}

TEST_F(TlsTest, AJoinTokenIsForOneNodeAndAnHourUnlessSomebodyAsksForMoreAndNeverForEver) {
  constexpr uint64_t kDayMs = 24ull * 3600 * 1000;
  const auto make = [this](uint32_t uses, uint64_t ttl_ms, v1::JoinToken* made) {
    v1::CreateJoinTokenRequest request;
    request.set_uses(uses);
    request.set_ttl_ms(ttl_ms);
    v1::CreateJoinTokenResponse response;
    With context(admin);
    const auto status = v1::EnrolService::NewStub(channel)->CreateJoinToken(&context, request, &response);
    if (made != nullptr) *made = response.token();
    return status;
  };
  v1::JoinToken usual;
  ASSERT_TRUE(make(0, 0, &usual).ok());
  EXPECT_EQ(usual.uses(), 1u);
  EXPECT_EQ(usual.expires_us() - usual.created_us(), 3600LL * 1'000'000);
  v1::JoinToken most;
  ASSERT_TRUE(make(100'000, 30 * kDayMs, &most).ok());
  EXPECT_EQ(most.uses_left(), 100'000u);
  EXPECT_EQ(most.expires_us() - most.created_us(), static_cast<int64_t>(30 * kDayMs * 1000));
  const auto uses = make(100'001, 0, nullptr);
  EXPECT_EQ(uses.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(uses.error_message(), HasSubstr("uses: found 100001; at most 100000 is allowed"));
  const auto ttl = make(1, 30 * kDayMs + 1, nullptr);
  EXPECT_EQ(ttl.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(ttl.error_message(), HasSubstr("at most 30 days is allowed"));
}

TEST_F(TlsTest, ANodeWhoseClockIsWrongIsRefusedBeforeItsTokenIsUsedUp) {
  v1::CreateJoinTokenResponse made;
  With making(admin);
  const auto enrolment = v1::EnrolService::NewStub(channel);
  ASSERT_TRUE(enrolment->CreateJoinToken(&making, {}, &made).ok());
  const std::string key = tls::NewKey().value();
  const auto now = [] { return SystemClock().Wall().micros; };
  constexpr int64_t kDay = 24LL * 3600 * 1'000'000;
  const auto enrol = [&](int64_t time_us) {
    v1::EnrolRequest request;
    request.set_secret(tls::ParseJoinToken(made.secret()).value().secret);
    request.set_node("a");
    request.set_agent_id("agent");
    request.set_request_pem(tls::MakeRequest(key).value());
    request.set_time_us(time_us);
    v1::EnrolResponse response;
    Context context;
    return enrolment->Enrol(&context, request, &response);
  };
  const auto renew = [&](int64_t time_us) {
    v1::RenewRequest request;
    request.set_node("a");
    request.set_request_pem(tls::MakeRequest(key).value());
    request.set_time_us(time_us);
    v1::RenewResponse response;
    Context context;
    return enrolment->Renew(&context, request, &response);
  };
  const auto uses_left = [&] {
    v1::ListJoinTokensResponse listed;
    With context(admin);
    EXPECT_TRUE(enrolment->ListJoinTokens(&context, {}, &listed).ok());
    return listed.tokens(0).uses_left();
  };
  const auto ahead = enrol(now() + 2 * kDay);
  EXPECT_EQ(ahead.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_THAT(ahead.error_message(), HasSubstr("the node's clock says "));
  EXPECT_EQ(enrol(now() - 2 * kDay).error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_EQ(uses_left(), 1u);
  EXPECT_TRUE(enrol(now()).ok());
  EXPECT_EQ(uses_left(), 0u);
  EXPECT_EQ(renew(now() + 2 * kDay).error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_TRUE(renew(now()).ok());
  EXPECT_TRUE(renew(0).ok()) << "an agent of before";
}

TEST_F(TlsTest, TheFirstAdminsTokenIsMadeOnceAndAgainWhenNobodyIsAdminAnyMore) {
  daemon.reset();
  StartDaemon();
  EXPECT_EQ(Trimmed(ReadFile(folder / "admin.token").value(), "\n"), admin);
  channel = Channel();
  ASSERT_TRUE(Revoke("admin-" + HashOf(admin).substr(0, 8)).ok());
  daemon.reset();
  StartDaemon();
  EXPECT_NE(Trimmed(ReadFile(folder / "admin.token").value(), "\n"), admin);
}

TEST_F(TlsTest, AnAdminWhoseTokenHasExpiredIsNone) {
  MakeToken("admin", "ada", 1);
  ASSERT_TRUE(Revoke("admin-" + HashOf(admin).substr(0, 8)).ok());
  daemon.reset();
  StartDaemon();
  EXPECT_NE(Trimmed(ReadFile(folder / "admin.token").value(), "\n"), admin);
}

ServerConfig Configured(const std::string& yaml) {
  const auto parsed = ParseServerConfig(yaml, "imgd.yaml");
  EXPECT_TRUE(parsed.has_value()) << yaml;
  return parsed.value_or(ServerConfig());
}

TEST(TlsConfig, TlsIsOnEverywhereButOnLoopbackUnlessSomebodySaysOtherwise) {
  for (const char* plain : {"{}", "listen: localhost:1", "listen: '[::1]:1'",
                            "{listen: 0.0.0.0:1, plain_text_and_anyone_may_do_anything: true}"}) {
    EXPECT_FALSE(Configured(plain).UsesTls()) << plain;
  }
  for (const char* tls : {"listen: 0.0.0.0:1", "listen: 10.0.0.1:1", "listen: gpu-head:1",
                          "listen: 127.0.0.5:1", "tls: {on_loopback: true}",
                          "tls: {ca_certificate: /c, ca_key: /k}", "tls: {certificate: /c, key: /k}"}) {
    EXPECT_TRUE(Configured(tls).UsesTls()) << tls;
    EXPECT_TRUE(CheckServerConfig(Configured(tls))) << tls;
  }
}

TEST(TlsConfig, WhatMakesNoSenseIsRefused) {
  const std::vector<std::pair<const char*, const char*>> cases = {
      {"tls: {ca_certificate: /c}", "given together"},
      {"tls: {key: /k}", "given together"},
      {"{tls: {on_loopback: true}, plain_text_and_anyone_may_do_anything: true}", "excludes"},
      {"tls: {node_certificate: 25h}", "1 s to 24 h"},
      {"tls: {server_certificate: 100d}", "1 s to 90 d"}};
  for (const auto& [yaml, words] : cases) {
    const auto checked = CheckServerConfig(Configured(yaml));
    ASSERT_FALSE(checked.has_value()) << yaml;
    EXPECT_THAT(checked.error().message, HasSubstr(words));
  }
}

/// On a plain port of this machine alone.
TEST_F(RpcTest, ALocalPortIsOpenUntilThereIsAnAdminAndATokenThatIsShownCounts) {
  v1::ListJobsResponse listed;
  Context stranger;
  stranger.AddMetadata("authorization", "Bearer imgd_wrong");
  EXPECT_EQ(jobs->ListJobs(&stranger, {}, &listed).error_code(), grpc::StatusCode::UNAUTHENTICATED);
  const auto make = [this](const char* scope) {
    v1::CreateTokenRequest request;
    request.add_scopes(scope);
    v1::CreateTokenResponse response;
    Context context;
    EXPECT_TRUE(v1::TokenService::NewStub(channel)->CreateToken(&context, request, &response).ok());
  };
  make("view");
  Context open;
  EXPECT_TRUE(jobs->ListJobs(&open, {}, &listed).ok());
  make("admin");
  Context closed;
  EXPECT_EQ(jobs->ListJobs(&closed, {}, &listed).error_code(), grpc::StatusCode::UNAUTHENTICATED);
  EXPECT_EQ(Health(), "SERVING") << "probes need no token";
}

/// Else any user of the machine could be a node, and get jobs with their secrets.
TEST_F(RpcTest, ALocalPortTakesAgentsUntilThereIsAnAdmin) {
  FakeAgent before(channel, "before", 1);
  EXPECT_TRUE(before.connected());
  v1::CreateTokenRequest request;
  request.add_scopes("admin");
  v1::CreateTokenResponse admin;
  Context context;
  ASSERT_TRUE(v1::TokenService::NewStub(channel)->CreateToken(&context, request, &admin).ok());
  for (const char* node : {"after", "before"}) {
    FakeAgent agent(channel, node, 1);
    EXPECT_FALSE(agent.connected()) << node;
    const auto status = agent.End();
    EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAUTHENTICATED);
    EXPECT_THAT(status.error_message(), HasSubstr("--tls-on-loopback"));
  }
  Context shows;
  shows.AddMetadata("authorization", "Bearer " + admin.secret());
  const auto session = v1::SessionService::NewStub(channel)->ServeSession(&shows);
  v1::ServeSessionResponse response;
  EXPECT_FALSE(session->Read(&response));
  EXPECT_EQ(session->Finish().error_code(), grpc::StatusCode::UNAUTHENTICATED) << "an admin is no agent";
}

}  // namespace
}  // namespace imgd
