#include "server/auth/authority.h"

#include <gmock/gmock.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "common/files.h"
#include "common/testing/hand_clock.h"
#include "common/tls/probe.h"

namespace imgd {
namespace {

using std::chrono::hours;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;

struct AuthorityTest : testing::Test {
  void SetUp() override {
    const auto* info = testing::UnitTest::GetInstance()->current_test_info();
    folder =
        std::filesystem::path(testing::TempDir()) / fmt::format("imgd_ca_{}_{}", info->name(), ::getpid());
    std::filesystem::remove_all(folder);
    std::filesystem::create_directories(folder);
    settings.folder = folder;
  }
  void TearDown() override { std::filesystem::remove_all(folder); }
  std::unique_ptr<Authority> Open() {
    auto opened = Authority::Open(settings, &clock);
    EXPECT_TRUE(opened.has_value()) << opened.error().message;
    return opened ? std::move(*opened) : nullptr;
  }
  Error Refused() {
    auto opened = Authority::Open(settings, &clock);
    EXPECT_FALSE(opened.has_value());
    return opened ? Error() : opened.error();
  }
  std::string Text(const char* name) { return ReadFile(folder / name).value_or(""); }
  tls::CertificateFacts Server() { return tls::FactsOf(Text("server.crt")).value(); }

  HandClock clock{SystemClock().Wall()};
  AuthoritySettings settings;
  std::filesystem::path folder;
};

TEST_F(AuthorityTest, TheCaIsMadeOnceAndItsKeyIsTheOwnersAlone) {
  const std::string pin = Open()->pin();
  EXPECT_EQ(Open()->pin(), pin);
  EXPECT_EQ(tls::FactsOf(Text("ca.crt"))->sha256, pin);
  for (const char* name : {"ca.key", "server.key"}) {
    struct stat found {};
    ASSERT_EQ(::stat((folder / name).c_str(), &found), 0);
    EXPECT_EQ(found.st_mode & 0777, 0600u) << name;
  }
}

TEST_F(AuthorityTest, TheServersCertificateIsForThisMachineAndShowsTheCa) {
  settings.names = {"gpu-head", "[fd00::1]", "0.0.0.0"};
  Open();
  EXPECT_THAT(Server().names, Contains("DNS:gpu-head"));
  EXPECT_THAT(Server().names, Contains("IP:fd00::1"));
  EXPECT_THAT(Server().names, Contains("IP:127.0.0.1"));
  EXPECT_THAT(Server().names, testing::Not(Contains("IP:0.0.0.0")));
  EXPECT_THAT(tls::Certificates(Text("server.crt")), ElementsAre(testing::_, Text("ca.crt")));
  EXPECT_TRUE(tls::IsSignedBy(Text("server.crt"), Text("ca.crt")));
}

TEST_F(AuthorityTest, ItIsRenewedAtTwoThirdsOfItsTimeWithTheSameKey) {
  const auto authority = Open();
  const auto first = Server();
  clock.Pass(hours(4 * 24));
  EXPECT_FALSE(authority->RenewServer().value());
  clock.Pass(hours(24));
  EXPECT_TRUE(authority->RenewServer().value());
  EXPECT_NE(Server().sha256, first.sha256);
  EXPECT_EQ(Server().key_sha256, first.key_sha256);
  EXPECT_GT(Server().not_after, first.not_after);
  EXPECT_FALSE(authority->RenewServer().value());
}

TEST_F(AuthorityTest, AnotherNameOfTheMachineNeedsAnotherCertificate) {
  Open();
  const auto first = Server();
  settings.names = {"gpu-head"};
  Open();
  EXPECT_NE(Server().sha256, first.sha256);
}

TEST_F(AuthorityTest, ALostKeyOfTheCaIsSaidAndNothingIsMadeAnew) {
  Open();
  const std::string certificate = Text("ca.crt");
  std::filesystem::remove(folder / "ca.key");
  const Error error = Refused();
  EXPECT_EQ(error.code, ErrorCode::kFailedPrecondition);
  EXPECT_THAT(error.message, HasSubstr("ca.crt is there and its key"));
  EXPECT_THAT(error.hint, HasSubstr("from a backup"));
  EXPECT_EQ(Text("ca.crt"), certificate);
}

TEST_F(AuthorityTest, AnOperatorsCaSignsAndFilesThatAreNoPairAreRefused) {
  const auto theirs = NewSigner("their CA", clock.now, {clock.now.micros + 3'600'000'000});
  settings.ca_certificate = folder / "theirs.crt";
  settings.ca_key = folder / "theirs.key";
  ASSERT_TRUE(WriteFileAtomically(settings.ca_certificate, theirs->certificate));
  ASSERT_TRUE(WriteFileAtomically(settings.ca_key, theirs->key));
  EXPECT_EQ(Open()->pin(), tls::FactsOf(theirs->certificate)->sha256);
  EXPECT_TRUE(tls::IsSignedBy(Text("server.crt"), theirs->certificate));
  EXPECT_FALSE(std::filesystem::exists(folder / "ca.key"));
  ASSERT_TRUE(WriteFileAtomically(settings.ca_key, tls::NewKey().value()));
  EXPECT_THAT(Refused().message, HasSubstr("is not that of the certificate"));
}

TEST_F(AuthorityTest, ACheckMakesNothingAndFindsWhatTheStartWouldRefuse) {
  const auto check = [this] {
    const auto checked = Authority::Check(settings, &clock);
    return checked ? std::string() : checked.error().message;
  };
  EXPECT_EQ(check(), "");
  EXPECT_TRUE(std::filesystem::is_empty(folder)) << "it would be made";
  ASSERT_TRUE(Open());
  EXPECT_EQ(check(), "");
  std::filesystem::rename(folder / "ca.key", folder / "away");
  EXPECT_THAT(check(), HasSubstr("ca.crt is there and its key"));
  ASSERT_TRUE(WriteFileAtomically(folder / "ca.key", tls::NewKey().value()));
  EXPECT_THAT(check(), HasSubstr("is not that of the certificate"));
  std::filesystem::rename(folder / "away", folder / "ca.key");

  settings.ca_certificate = folder / "server.crt";
  settings.ca_key = folder / "server.key";
  EXPECT_THAT(check(), HasSubstr("is not that of a CA"));
  EXPECT_THAT(Refused().message, HasSubstr("is not that of a CA"));
  settings.ca_certificate = settings.ca_key = "";
  settings.certificate = folder / "server.crt";
  settings.key = folder / "nowhere";
  EXPECT_THAT(check(), HasSubstr("nowhere"));
  settings.key = folder / "server.key";
  EXPECT_EQ(check(), "");
  clock.Pass(hours(8 * 24));
  EXPECT_THAT(check(), HasSubstr("has run out, and nobody takes it"));
}

TEST_F(AuthorityTest, ANodesCertificateIsGoodForADayWithTheHourBeforeItWasMade) {
  const auto authority = Open();
  const std::string request = tls::MakeRequest(tls::NewKey().value()).value();
  const auto facts = tls::FactsOf(authority->SignNode(request, "a").value()).value();
  constexpr int64_t kHour = 3'600'000'000;
  EXPECT_EQ(facts.not_after.micros - facts.not_before.micros, 24 * kHour);
  EXPECT_EQ(facts.not_after.micros / kHour, (clock.now.micros + 23 * kHour) / kHour);
}

/// Else whoever has a node's key could be imgd for those who know only its CA's hash.
TEST_F(AuthorityTest, ANodeIsNoCaOnTheWayToThePinnedOne) {
  const auto authority = Open();
  const std::string key = tls::NewKey().value();
  const std::string node = authority->SignNode(tls::MakeRequest(key).value(), "a").value();
  const auto forged = SignKey({node, key}, tls::NewKey().value(),
                              {.common_name = "imgd",
                               .names = {"DNS:gpu-head"},
                               .for_server = true,
                               .from = clock.now,
                               .until = {clock.now.micros + 3'600'000'000}});
  ASSERT_TRUE(forged.has_value());
  const std::string ca = authority->root();
  EXPECT_FALSE(tls::LeadsTo({*forged, node, ca}, 2));
  EXPECT_FALSE(tls::FindPinned({*forged, node, ca}, authority->pin(), "gpu-head"));
  EXPECT_EQ(tls::FindPinned({Text("server.crt"), ca}, authority->pin(), "gpu-head").value(), ca);
  EXPECT_FALSE(tls::FindPinned({*forged, ca}, authority->pin(), "gpu-head"));
  EXPECT_TRUE(tls::LeadsTo({ca}, 0));
}

TEST_F(AuthorityTest, AnOperatorsCertificateThatRanOutOrSoonWillIsToldOfAndImgdsOwnIsNot) {
  const auto own = Open();
  const Signer signer{Text("ca.crt"), Text("ca.key")};
  settings.certificate = folder / "theirs.crt";
  settings.key = folder / "theirs.key";
  const std::string key = tls::NewKey().value();
  const WallTime until{clock.now.micros + 30LL * 24 * 3'600'000'000};
  const auto made = SignKey(signer, key,
                            {.common_name = "imgd",
                             .names = {"DNS:gpu-head"},
                             .for_server = true,
                             .from = clock.now,
                             .until = until});
  ASSERT_TRUE(WriteFileAtomically(settings.certificate, *made + signer.certificate));
  ASSERT_TRUE(WriteFileAtomically(settings.key, key));
  EXPECT_THAT(Open()->Warnings(), testing::IsEmpty());
  const auto said = "the certificate in " + settings.certificate;
  clock.Pass(hours(24 * 24));
  EXPECT_THAT(Open()->Warnings(), ElementsAre(HasSubstr(said + " soon runs out: it is good from ")));
  clock.Pass(hours(6 * 24));
  const auto expired = Open();
  EXPECT_THAT(expired->Warnings(), ElementsAre(HasSubstr(said + " has run out, and nobody takes it: ")));
  EXPECT_THAT(expired->Warnings(), ElementsAre(HasSubstr(" to " + tls::DateOf(until))));
  EXPECT_THAT(own->Warnings(), testing::IsEmpty()) << "imgd renews it by itself";
  clock.Pass(-hours(30 * 24) - std::chrono::minutes(30));
  EXPECT_THAT(expired->Warnings(), ElementsAre(HasSubstr(said + " is not good yet")));
  clock.Pass(hours(3654 * 24));
  EXPECT_THAT(own->Warnings(), ElementsAre(HasSubstr("ca.crt has run out")));
}

TEST_F(AuthorityTest, ANodesCertificateSaysWhoseItIsAndFor24Hours) {
  const auto authority = Open();
  const std::string key = tls::NewKey().value();
  const std::string certificate = authority->SignNode(tls::MakeRequest(key).value(), "gpu/7 ").value();
  const auto facts = tls::FactsOf(certificate).value();
  ASSERT_EQ(facts.names.size(), 1u);
  const auto identity = IdentityOf(facts.names.front().substr(4)).value();
  EXPECT_EQ(identity.node, "gpu/7 ");
  EXPECT_EQ(identity.key_sha256, tls::PublicHashOf(key).value());
  EXPECT_LE(facts.not_after.micros - clock.now.micros, 24LL * 3600 * 1'000'000);
  EXPECT_TRUE(tls::IsSignedBy(certificate, authority->root()));
  EXPECT_FALSE(IdentityOf("https://example.org/"));
  EXPECT_FALSE(IdentityOf("imgd://node/x"));
}

}  // namespace
}  // namespace imgd
