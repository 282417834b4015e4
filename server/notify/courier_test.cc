#include "server/notify/courier.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "common/remote/testing/http_server.h"

namespace imgd {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

Notification TheNotice() {
  const nlohmann::json body = {{"id", "c-12-7-ops"},
                               {"type", "job.failed"},
                               {"timestamp", "2027-01-15T08:00:00.123Z"},
                               {"cluster", "c"},
                               {"job",
                                {{"id", 12},
                                 {"name", "rn50"},
                                 {"owner", "ada"},
                                 {"state", "JOB_STATE_FAILED"},
                                 {"reason_text", "a <b> & c"},
                                 {"url", "https://d/jobs/12"}}}};
  return {.id = "c-12-7-ops",
          .job = JobId(12),
          .target = "ops",
          .body = body.dump(),
          .created = {1'800'000'000'000'000}};
}

struct CourierTest : testing::Test {
  void SetUp() override {
    folder = std::filesystem::path(testing::TempDir()) / fmt::format("imgd_courier_{}", ::getpid());
    std::filesystem::create_directories(folder);
  }
  void TearDown() override { std::filesystem::remove_all(folder); }
  std::string File(const std::string& name, const std::string& content) {
    const auto path = folder / name;
    std::ofstream(path) << content;
    return path.native();
  }
  Result<Couriers> Make(NotifyTarget target) {
    NotifyConfig config;
    config.targets["ops"] = std::move(target);
    config.timeout_ms = 60'000;
    return MakeCouriers(config, &clock);
  }
  Status Deliver(NotifyTarget target) {
    auto couriers = Make(std::move(target));
    if (!couriers) return tl::unexpected(couriers.error());
    return couriers->at("ops")->Deliver(TheNotice(), {});
  }

  SystemClock clock;
  std::filesystem::path folder;
  TestRequest got;
  TestReply reply;
  TestHttpServer server{[this](const TestRequest& request) {
    got = request;
    return reply;
  }};
};

TEST_F(CourierTest, SignsAsStandardWebhooksHasIt) {
  const Notification known{.id = "msg_p5jXN8AQM9LWM0D4loKWxJek", .body = R"({"test": 2432232314})"};
  const auto secret = SecretBytes("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw");
  ASSERT_TRUE(secret.has_value());
  EXPECT_EQ(SignatureOf(*secret, known, 1614265330), "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
  EXPECT_EQ(SecretBytes("plain words"), "plain words");
  EXPECT_EQ(SecretBytes("whsec_YWI="), "ab");
  EXPECT_FALSE(SecretBytes("").has_value());
  EXPECT_FALSE(SecretBytes("whsec_***").has_value());
}

TEST_F(CourierTest, PostsTheBodyWithItsSignature) {
  const auto delivered =
      Deliver({.url = server.url() + "/hook?x=1", .secret_file = File("secret", "s3cret\n")});
  ASSERT_TRUE(delivered.has_value()) << delivered.error().message;
  EXPECT_EQ(got.method, "POST");
  EXPECT_EQ(got.target, "/hook?x=1");
  EXPECT_EQ(got.body, TheNotice().body);
  EXPECT_EQ(got.header("content-type"), "application/json");
  EXPECT_EQ(got.header("webhook-id"), "c-12-7-ops");
  const int64_t seconds = std::stoll(got.header("webhook-timestamp"));
  EXPECT_EQ(got.header("webhook-signature"), SignatureOf("s3cret", TheNotice(), seconds));
}

TEST_F(CourierTest, ARefusalIsAnErrorThatTellsNoSecret) {
  reply = {.status = 503, .body = "busy\nwith it"};
  const auto delivered = Deliver({.url = server.url() + "/T000/XXXX"});
  ASSERT_FALSE(delivered.has_value());
  EXPECT_EQ(delivered.error().message, "it answers with HTTP status 503: busy?with it");
  EXPECT_THAT(delivered.error().ToString(), Not(HasSubstr("XXXX")));
}

TEST_F(CourierTest, FollowsNoRedirect) {
  reply.status = 302;
  reply.headers = {{"location", server.url() + "/elsewhere"}};
  EXPECT_FALSE(Deliver({.url = server.url()}).has_value());
  EXPECT_EQ(server.log().size(), 1U);
}

TEST_F(CourierTest, SlackGetsItsOwnWords) {
  const auto delivered =
      Deliver({.kind = NotifyTarget::Kind::kSlack, .url_file = File("url", server.url() + "/slack\n")});
  ASSERT_TRUE(delivered.has_value()) << delivered.error().message;
  EXPECT_EQ(got.target, "/slack");
  EXPECT_EQ(nlohmann::json::parse(got.body)["text"],
            "*<https://d/jobs/12|job 12 (rn50) failed>* of ada: a &lt;b&gt; &amp; c");
  EXPECT_EQ(got.header("webhook-signature"), "");
}

TEST_F(CourierTest, FilesThatAreMissingOrWrongAreSaidAtTheStart) {
  const auto missing = Make({.url = server.url(), .secret_file = (folder / "none").native()});
  ASSERT_FALSE(missing.has_value());
  EXPECT_THAT(missing.error().message, HasSubstr("notifications.targets.ops: "));
  const auto wrong = Make({.url_file = File("url", "http://ada:topsecret@h/\n")});
  ASSERT_FALSE(wrong.has_value());
  EXPECT_THAT(wrong.error().ToString(), Not(HasSubstr("topsecret")));
}

TEST_F(CourierTest, AnEmailHasAHeadAndTheReason) {
  const std::string text = MailText(TheNotice(), "imgd@h.example", {"a@example.org", "b@example.org"});
  EXPECT_THAT(text, HasSubstr("From: imgd@h.example\nTo: a@example.org,\n b@example.org\nSubject: [imgd] job "
                              "12 (rn50) failed\n"));
  EXPECT_THAT(text, HasSubstr("Message-ID: <c-12-7-ops@imgd>\n"));
  EXPECT_THAT(text, HasSubstr("Date: Fri, 15 Jan 2027 08:00:00 +0000\n"));
  EXPECT_THAT(text, HasSubstr("\n\njob 12 (rn50) failed\n\na <b> & c\n"));
  EXPECT_THAT(text, HasSubstr("\nhttps://d/jobs/12\n"));
  EXPECT_THAT(text, HasSubstr("\nState: FAILED\n"));
}

TEST_F(CourierTest, NothingInAJobBeginsALineOfTheHead) {
  Notification notice = TheNotice();
  auto body = nlohmann::json::parse(notice.body);
  body["job"]["name"] = "x\nBcc: all@example.org";
  notice.body = body.dump();
  const std::string text = MailText(notice, "", {"a@example.org"});
  EXPECT_THAT(text.substr(0, text.find("\n\n")), Not(HasSubstr("\nBcc")));
}

TEST_F(CourierTest, LongLinesAreFolded) {
  Notification notice = TheNotice();
  auto body = nlohmann::json::parse(notice.body);
  body["job"]["reason_text"] = std::string(5000, 'x');
  notice.body = body.dump();
  const std::string text = MailText(notice, "", {"a@example.org"});
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = text.find('\n', begin);
    EXPECT_LE(end - begin, 998U);
    begin = end + 1;
  }
}

TEST_F(CourierTest, TheOwnerIsPutIntoAddressesWhereThatMakesOne) {
  EXPECT_THAT(AddressesFor({"{user}@example.org", "ops@example.org"}, "ada"),
              ElementsAre("ada@example.org", "ops@example.org"));
  EXPECT_THAT(AddressesFor({"{user}@example.org"}, "-oQ/tmp x"), ElementsAre());
}

TEST_F(CourierTest, AMailToNobodyIsNotDelivered) {
  Notification notice = TheNotice();
  auto body = nlohmann::json::parse(notice.body);
  body["job"]["owner"] = "-oQ/tmp\nx";
  notice.body = body.dump();
  const auto couriers = Make({.kind = NotifyTarget::Kind::kEmail, .to = {"{user}@example.org"}});
  ASSERT_TRUE(couriers.has_value());
  const auto delivered = couriers->at("ops")->Deliver(notice, {});
  ASSERT_FALSE(delivered.has_value());
  EXPECT_EQ(delivered.error().code, ErrorCode::kInvalidArgument) << "which is not tried again";
  EXPECT_EQ(delivered.error().message, "its owner '-oQ/tmp?x' makes no address of {user}@example.org");
}

}  // namespace
}  // namespace imgd
