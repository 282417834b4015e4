#include "agent/node_key.h"

#include <gmock/gmock.h>
#include <poll.h>

#include "agent/network.h"
#include "agent/testing/temp_dir.h"
#include "common/files.h"
#include "common/testing/hand_clock.h"
#include "common/tls/openssl.h"

namespace imgd {
namespace {

using testing::HasSubstr;

using std::chrono::hours;
using std::chrono::seconds;

constexpr int64_t kHourMicros = 3600LL * 1'000'000;

/// A port of the loopback where connections wait for ever.
struct WaitingPort {
  Listener listener = ListenOn("127.0.0.1").value();

  std::string Address() const { return fmt::format("127.0.0.1:{}", listener.port); }
  bool WasCalled() const {
    pollfd wanted{.fd = listener.fd.get(), .events = POLLIN, .revents = 0};
    return ::poll(&wanted, 1, 0) > 0;
  }
};

/// Signed by itself.
std::string CertificateOf(const std::string& key_text, WallTime from, WallTime until) {
  const tls::KeyPtr key = tls::ReadKey(key_text);
  const tls::CertificatePtr made(X509_new());
  ASN1_TIME_set(X509_getm_notBefore(made.get()), from.micros / 1'000'000);
  ASN1_TIME_set(X509_getm_notAfter(made.get()), until.micros / 1'000'000);
  X509_set_pubkey(made.get(), key.get());
  EXPECT_GT(X509_sign(made.get(), key.get(), EVP_sha256()), 0);
  return tls::PemOf(made.get());
}

TEST(NodeKey, AClockThatIsOffIsNamedWithHowFar) {
  const tls::CertificateFacts facts{.not_before = {100 * kHourMicros}, .not_after = {125 * kHourMicros}};
  const int64_t imgd_us = 101 * kHourMicros;
  EXPECT_TRUE(CheckClock(facts, {imgd_us}, imgd_us));
  EXPECT_TRUE(CheckClock(facts, {100 * kHourMicros}, imgd_us)) << "an hour behind does not matter";
  EXPECT_THAT(CheckClock(facts, {99 * kHourMicros}, imgd_us).error().message,
              HasSubstr("this node's clock is 7200 s behind imgd's"));
  EXPECT_THAT(CheckClock(facts, {125 * kHourMicros}, imgd_us).error().message,
              HasSubstr("is 86400 s ahead of imgd's"));
}

TEST(NodeKey, WithoutACertificateAndATokenItSaysHowToJoin) {
  const TempDir folder;
  const SystemClock clock;
  NodeKey key(
      {.server = "127.0.0.1:1", .node = "a", .agent_id = "x", .folder = folder.path(), .token_file = {}},
      &clock);
  const auto nothing = key.Get();
  ASSERT_FALSE(nothing.has_value());
  EXPECT_THAT(nothing.error().message, HasSubstr("has not joined imgd at 127.0.0.1:1"));
  EXPECT_THAT(nothing.error().hint, HasSubstr("imgcli node join-token"));
  EXPECT_FALSE(key.UntilDue().has_value());
}

TEST(NodeKey, ItIsRenewedAtTwoThirdsOfTheCertificatesTimeAndNotBefore) {
  const TempDir folder;
  const WaitingPort imgd;
  HandClock clock{WallTime{1'000'000 * kHourMicros}};
  const std::string own = tls::NewKey().value();
  // As imgd makes it: good for 24 hours, and dated an hour back.
  const std::string certificate =
      CertificateOf(own, {clock.now.micros - kHourMicros}, {clock.now.micros + 24 * kHourMicros});
  folder.Write("node.key", own);
  folder.Write("node.crt", certificate);
  folder.Write("ca.crt", certificate);
  NodeKey key({.server = imgd.Address(),
               .node = "a",
               .agent_id = "x",
               .folder = folder.path(),
               .token_file = {},
               .patience = std::chrono::milliseconds(300)},
              &clock);
  EXPECT_EQ(key.UntilDue(), hours(16));
  clock.Pass(hours(16) - seconds(1));
  EXPECT_EQ(key.UntilDue(), seconds(1));
  EXPECT_TRUE(key.Get().has_value());
  EXPECT_FALSE(imgd.WasCalled());
  clock.Pass(seconds(1));
  EXPECT_EQ(key.UntilDue(), seconds(0));
  const auto still_good = key.Get();
  ASSERT_TRUE(still_good.has_value()) << still_good.error().message;
  EXPECT_EQ(still_good->certificate, certificate);
  EXPECT_TRUE(imgd.WasCalled());
  clock.Pass(hours(8));
  EXPECT_EQ(key.Get().error().code, ErrorCode::kUnavailable) << "it has run out by now";
}

TEST(NodeKey, AFileWithoutAJoinTokenIsNamed) {
  const TempDir folder;
  const SystemClock clock;
  const auto file = folder.path() / "token";
  ASSERT_TRUE(WriteFileAtomically(file, "imgd_1234\n"));
  NodeKey key(
      {.server = "127.0.0.1:1", .node = "a", .agent_id = "x", .folder = folder.path(), .token_file = file},
      &clock);
  EXPECT_THAT(key.Get().error().message, HasSubstr(file.native() + ": this is no join token"));
}

}  // namespace
}  // namespace imgd
