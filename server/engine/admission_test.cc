#include "server/engine/admission.h"

#include <gmock/gmock.h>

namespace imgd {
namespace {

using testing::HasSubstr;

constexpr int64_t kHour = 3600LL * 1'000'000;
constexpr WallTime kStart{1'000 * kHour};

struct AdmissionTest : testing::Test {
  AdmissionTest() { Token("t1", 1); }

  void Token(const std::string& id, uint32_t uses) {
    admissions.tokens[id] = {.id = id,
                             .hash = "hash-" + id,
                             .uses = uses,
                             .uses_left = uses,
                             .created = kStart,
                             .expires = {kStart.micros + kHour},
                             .joined = {}};
  }
  static JoinOrder Order(const std::string& token, const std::string& node, const std::string& key,
                         WallTime at = kStart) {
    return {.secret_hash = token.empty() ? "" : "hash-" + token,
            .node = node,
            .agent_id = "agent",
            .key_hash = key,
            .address = "ipv4:10.0.0.7:1",
            .expires = {at.micros + 24 * kHour}};
  }
  /// What is wrong; empty when it joined, and is stored.
  std::string JoinBy(const std::string& token, const std::string& node, const std::string& key,
                     WallTime now = kStart) {
    const auto joining = Join(admissions, Order(token, node, key, now), now);
    if (!joining) return joining.error().message;
    admissions.nodes[node] = joining->key;
    if (joining->token) admissions.tokens[token] = *joining->token;
    return "";
  }
  /// What is wrong with an instance that joins; empty when it joined, and is stored.
  std::string JoinAs(const std::string& instance, const std::string& node, const std::string& key,
                     WallTime now = kStart, WallTime started = kStart) {
    JoinOrder order = Order("", node, key, now);
    order.claim =
        InstanceClaim{{.id = instance, .account = "1", .region = "r", .image = "ami", .started = started},
                      std::chrono::hours(1)};
    const auto joining = Join(admissions, order, now);
    if (!joining) return joining.error().message;
    admissions.nodes[node] = joining->key;
    if (joining->instance) admissions.instances[instance] = *joining->instance;
    return "";
  }
  void RevokeInstanceOf(const std::string& node, InstanceLeave leave) {
    admissions.nodes[node].revoked = true;
    for (const auto& id : InstancesToRevoke(admissions, node, leave == InstanceLeave::kMayRejoin))
      admissions.instances[id].leave = leave;
  }
  std::string RenewBy(const std::string& node, const std::string& key, WallTime now) {
    const auto renewed = Renew(admissions, Order("", node, key, now), now);
    if (!renewed) return renewed.error().message;
    admissions.nodes[node] = *renewed;
    return "";
  }

  Admissions admissions;
};

TEST_F(AdmissionTest, ATokenIsGoodOnceAndSaysWhoUsedIt) {
  EXPECT_EQ(JoinBy("t1", "a", "key-a"), "");
  EXPECT_EQ(JoinBy("t1", "a", "key-a"), "") << "its answer was lost";
  EXPECT_EQ(admissions.tokens["t1"].joined.size(), 1u);
  EXPECT_THAT(JoinBy("t1", "b", "key-b"), HasSubstr("used up: it was good for 1 and a joined by it"));
}

TEST_F(AdmissionTest, ATokenOfNUsesTakesThatManyNodesAndRecordsEach) {
  Token("t2", 2);
  EXPECT_EQ(JoinBy("t2", "a", "key-a"), "");
  EXPECT_EQ(JoinBy("t2", "b", "key-b"), "");
  EXPECT_THAT(JoinBy("t2", "c", "key-c"), HasSubstr("a, b joined by it"));
  ASSERT_EQ(admissions.tokens["t2"].joined.size(), 2u);
  EXPECT_EQ(admissions.tokens["t2"].joined[1].node, "b");
  EXPECT_EQ(admissions.tokens["t2"].joined[1].address, "ipv4:10.0.0.7:1");
}

TEST_F(AdmissionTest, AnUnknownOneARevokedOneAndOneThatHasExpiredAreRefused) {
  EXPECT_THAT(JoinBy("t9", "a", "key-a"), HasSubstr("knows no such join token"));
  EXPECT_THAT(JoinBy("t1", "a", "key-a", {kStart.micros + kHour}), HasSubstr("has expired"));
  admissions.tokens["t1"].uses_left = 0;
  EXPECT_THAT(JoinBy("t1", "a", "key-a"), HasSubstr("was revoked"));
}

TEST_F(AdmissionTest, ASecondAgentOfTheNameIsRefusedUntilTheFirstIsRevokedOrLongGone) {
  Token("t2", 9);
  EXPECT_EQ(JoinBy("t1", "a", "key-a"), "");
  EXPECT_THAT(JoinBy("t2", "a", "key-other"), HasSubstr("two agents can't have one name"));
  EXPECT_EQ(admissions.tokens["t2"].uses_left, 9u) << "who is refused uses none";
  admissions.nodes["a"].revoked = true;
  EXPECT_EQ(JoinBy("t2", "a", "key-other"), "");
  EXPECT_FALSE(MayConnect(admissions, "a", "key-a")) << "the old key's certificate may still be good";
  EXPECT_TRUE(MayConnect(admissions, "a", "key-other"));
  admissions.nodes["a"].expires = {kStart.micros - kRenewableMicros - 1};
  EXPECT_EQ(JoinBy("t2", "a", "key-third"), "");
}

TEST_F(AdmissionTest, ANodeRenewsByItsKeyForSevenDaysAfterItsCertificateRanOut) {
  EXPECT_EQ(JoinBy("t1", "a", "key-a"), "");
  const WallTime late{kStart.micros + 24 * kHour + kRenewableMicros};
  EXPECT_EQ(RenewBy("a", "key-a", late), "");
  EXPECT_EQ(admissions.nodes["a"].expires.micros, late.micros + 24 * kHour);
  EXPECT_THAT(RenewBy("a", "key-b", late), HasSubstr("another agent has joined"));
  EXPECT_THAT(RenewBy("b", "key-a", late), HasSubstr("never joined"));
  EXPECT_THAT(RenewBy("b\nforged line", "key-a", late),
              HasSubstr("a node name of 13 bytes that can't be one"));
  EXPECT_THAT(RenewBy("a", "key-a", {late.micros + 24 * kHour + kRenewableMicros + 1}),
              HasSubstr("more than 7 days ago"));
}

TEST_F(AdmissionTest, ANodeByWhoseClockTheCertificateIsNotGoodIsRefusedWithBothTimes) {
  const auto told = [](int64_t ahead) {
    JoinOrder order = Order("t1", "a", "key-a");
    order.node_time = {kStart.micros + ahead};
    const auto good = CheckNodeTime(order, kStart);
    return good ? "" : good.error().message;
  };
  EXPECT_EQ(told(-kHour), "") << "it is dated back by that";
  EXPECT_EQ(told(24 * kHour - 1), "");
  EXPECT_EQ(told(-kStart.micros), "") << "an agent that does not say its time";
  EXPECT_THAT(told(-kHour - 1), HasSubstr("the node's clock says 1970-02-11 14:59:59 UTC and imgd's "
                                          "1970-02-11 16:00:00 UTC"));
  EXPECT_THAT(told(24 * kHour), HasSubstr("says 1970-02-12 16:00:00 UTC and imgd's 1970-02-11 16:00:00 UTC"));
}

TEST_F(AdmissionTest, ARevokedNodeNeitherRenewsNorConnectsButJoinsAnew) {
  Token("t2", 1);
  EXPECT_EQ(JoinBy("t1", "a", "key-a"), "");
  admissions.nodes["a"].revoked = true;
  EXPECT_THAT(RenewBy("a", "key-a", kStart), HasSubstr("was revoked"));
  EXPECT_THAT(MayConnect(admissions, "a", "key-a").error().message, HasSubstr("was revoked"));
  EXPECT_THAT(JoinBy("t1", "a", "key-a"), HasSubstr("used up")) << "not by the token of then";
  EXPECT_EQ(JoinBy("t2", "a", "key-a"), "");
  EXPECT_TRUE(MayConnect(admissions, "a", "key-a"));
}

TEST_F(AdmissionTest, AnInstanceJoinsOnceAndItsLostAnswerIsGivenAgain) {
  EXPECT_EQ(JoinAs("i-1", "a", "key-a"), "");
  EXPECT_EQ(admissions.nodes["a"].token, "i-1");
  EXPECT_EQ(JoinAs("i-1", "a", "key-a"), "") << "its answer was lost";
  EXPECT_THAT(JoinAs("i-1", "a", "key-b"), HasSubstr("i-1 has joined already, as node a"));
  EXPECT_THAT(JoinAs("i-1", "b", "key-a"), HasSubstr("has joined already, as node a"));
  EXPECT_EQ(JoinAs("i-2", "b", "key-b"), "");
  EXPECT_THAT(JoinAs("i-3", "b", "key-c"), HasSubstr("two agents can't have one name"));
  EXPECT_THAT(JoinAs("i-3", "", "key-c"), HasSubstr("a node name of 0 bytes that can't be one"));
  EXPECT_THAT(JoinBy("t1", "a b", "key-c"), HasSubstr("can't be one"));
  EXPECT_FALSE(admissions.instances.contains("i-3"));
}

TEST_F(AdmissionTest, AnOldDocumentIsRefused) {
  const WallTime late{kStart.micros + kHour + 1};
  EXPECT_THAT(JoinAs("i-1", "a", "key-a", late),
              testing::AllOf(HasSubstr("i-1 was started at 1970-02-11 16:00:00 UTC"), HasSubstr("1 h")));
  EXPECT_EQ(JoinAs("i-1", "a", "key-a", late, late), "");
}

TEST_F(AdmissionTest, ARevokedInstanceStaysOutUntilSomebodyLetsItInOnceMore) {
  EXPECT_EQ(JoinAs("i-1", "a", "key-a"), "");
  RevokeInstanceOf("a", InstanceLeave::kRevoked);
  const WallTime later{kStart.micros + 20 * kRenewableMicros};
  EXPECT_THAT(JoinAs("i-1", "a", "key-b"), HasSubstr("i-1 was revoked, as node a"));
  EXPECT_THAT(JoinAs("i-1", "b", "key-b", later, later), HasSubstr("was revoked"))
      << "also when started anew";
  RevokeInstanceOf("a", InstanceLeave::kMayRejoin);
  EXPECT_THAT(JoinAs("i-1", "b", "key-d", later), HasSubstr("as node a")) << "under its name alone";
  EXPECT_EQ(JoinAs("i-1", "a", "key-d", later), "") << "however old its document is";
  EXPECT_THAT(JoinAs("i-1", "a", "key-e", later, later), HasSubstr("has joined already")) << "once";
}

TEST_F(AdmissionTest, WhoWasRevokedIsNotLetInAgainWithWhoTookItsPlace) {
  EXPECT_EQ(JoinAs("i-1", "a", "key-a"), "");
  RevokeInstanceOf("a", InstanceLeave::kRevoked);
  EXPECT_EQ(JoinAs("i-2", "a", "key-b"), "");
  RevokeInstanceOf("a", InstanceLeave::kMayRejoin);
  EXPECT_THAT(JoinAs("i-1", "a", "key-a"), HasSubstr("was revoked"));
  EXPECT_EQ(JoinAs("i-2", "a", "key-c"), "");
  RevokeInstanceOf("a", InstanceLeave::kRevoked);
  EXPECT_EQ(JoinBy("t1", "a", "key-d"), "") << "by a token, as any other";
  RevokeInstanceOf("a", InstanceLeave::kMayRejoin);
  EXPECT_THAT(JoinAs("i-2", "a", "key-c"), HasSubstr("was revoked"));
}

TEST_F(AdmissionTest, ALostAnswerIsNotGivenAgainOnceTheNodesTimeIsOver) {
  const WallTime over{kStart.micros + 24 * kHour + kRenewableMicros + 1};
  EXPECT_EQ(JoinBy("t1", "a", "key-a"), "");
  EXPECT_THAT(JoinBy("t1", "a", "key-a", over), HasSubstr("used up"));
  EXPECT_EQ(JoinAs("i-1", "b", "key-b"), "");
  EXPECT_THAT(JoinAs("i-1", "b", "key-b", over), HasSubstr("has joined already"));
}

TEST_F(AdmissionTest, NoInstanceTakesAnothersName) {
  EXPECT_THAT(JoinAs("i-0ccc", "i-0ddd", "key-a"), HasSubstr("i-0ccc can't be node i-0ddd"));
  EXPECT_EQ(JoinAs("i-0ddd", "i-0ddd", "key-b"), "");
  EXPECT_EQ(JoinAs("i-0ccc", "i-robot", "key-c"), "");
}

TEST_F(AdmissionTest, AnInstanceWhoseNodesTimeIsOverJoinsAgainWhenItWasStartedAnew) {
  EXPECT_EQ(JoinAs("i-1", "a", "key-a"), "");
  const WallTime over{kStart.micros + 24 * kHour + kRenewableMicros + 1};
  EXPECT_THAT(JoinAs("i-1", "a", "key-b", over), HasSubstr("has joined already")) << "the same document";
  EXPECT_THAT(JoinAs("i-1", "a", "key-b", {over.micros - 1}, {over.micros - 1}),
              HasSubstr("has joined already"));
  EXPECT_EQ(JoinAs("i-1", "a", "key-b", over, over), "");
  EXPECT_THAT(JoinAs("i-1", "a", "key-c", over, over), HasSubstr("has joined already"));
}

TEST_F(AdmissionTest, InstancesAreForgottenWhenTheirDocumentsAreGoodForNothing) {
  EXPECT_EQ(JoinAs("i-1", "a", "key-a"), "");
  EXPECT_EQ(JoinAs("i-2", "b", "key-b"), "");
  EXPECT_EQ(JoinAs("i-3", "c", "key-c"), "");
  const WallTime much_later{kStart.micros + 31 * 24 * kHour};
  admissions.nodes["b"].expires = much_later;
  RevokeInstanceOf("c", InstanceLeave::kRevoked);
  const std::chrono::hours most_age(1);
  EXPECT_THAT(InstancesOfThePast(admissions, most_age, much_later), testing::ElementsAre("i-1"));
  EXPECT_THAT(InstancesOfThePast(admissions, most_age, {kStart.micros + 29 * 24 * kHour}),
              testing::IsEmpty());
  EXPECT_THAT(InstancesOfThePast(admissions, {}, much_later), testing::IsEmpty()) << "they are good for ever";
}

}  // namespace
}  // namespace imgd
