#include "server/auth/ec2_identity.h"

#include <gmock/gmock.h>
#include <openssl/pkcs7.h>
#include <unistd.h>

#include <filesystem>

#include "common/files.h"
#include "common/sha256.h"
#include "common/tls/openssl.h"
#include "common/tls/pem.h"
#include "server/auth/signing.h"

namespace imgd {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

constexpr const char* kDocument = R"({
  "accountId" : "012345678901",
  "availabilityZone" : "us-east-1b",
  "imageId" : "ami-5fb8c835",
  "instanceId" : "i-1234567890abcdef0",
  "instanceType" : "p4d.24xlarge",
  "pendingTime" : "2026-01-31T12:00:00Z",
  "region" : "us-east-1"
})";

std::string With(const std::string& from, const std::string& to) {
  std::string text = kDocument;
  return text.replace(text.find(from), from.size(), to);
}

/// Whose signatures are EC2's in a test.
struct Ec2 {
  Signer signer = NewSigner("EC2 of a test", {0}, {4'000'000'000'000'000}).value();

  /// As the metadata service has it: Base64 in lines, without header and footer.
  std::string Sign(const std::string& document, bool apart = false) const {
    const auto certificate = tls::ReadCertificate(signer.certificate);
    const auto key = tls::ReadKey(signer.key);
    const auto content = tls::MemoryOf(document);
    const std::unique_ptr<PKCS7, tls::FreeBy<PKCS7_free>> made(
        PKCS7_sign(certificate.get(), key.get(), nullptr, content.get(),
                   PKCS7_BINARY | PKCS7_NOCERTS | (apart ? PKCS7_DETACHED : 0)));
    std::string text = Base64(tls::TextOf([&made](BIO* out) { return i2d_PKCS7_bio(out, made.get()); }));
    for (size_t at = 64; at < text.size(); at += 65) text.insert(at, "\n");
    return text;
  }
};

struct Ec2Test : testing::Test {
  std::string WhyNot(const std::string& document, const std::string& signature) {
    const auto found = IdentifyInstance(rules, document, signature);
    if (found) return "";
    EXPECT_EQ(found.error().code, ErrorCode::kPermissionDenied);
    return found.error().message;
  }
  std::string WhyNotIn(const Ec2Instance& instance) {
    const auto checked = CheckInstance(rules, instance);
    return checked ? "" : checked.error().message;
  }

  Ec2 ec2;
  Ec2Rules rules{.accounts = {"012345678901"},
                 .regions = {{"us-east-1", {ec2.signer.certificate}}},
                 .instances = {},
                 .images = {}};
};

TEST_F(Ec2Test, ASignedDocumentSaysWhichInstanceItIs) {
  const std::string good = ec2.Sign(kDocument);
  for (const std::string& signature :
       {good, "-----BEGIN PKCS7-----\n" + good + "\n-----END PKCS7-----\n", ec2.Sign(kDocument, true)}) {
    const auto found = IdentifyInstance(rules, kDocument, signature);
    ASSERT_TRUE(found.has_value()) << found.error().message;
    EXPECT_EQ(found->id, "i-1234567890abcdef0");
    EXPECT_EQ(found->account, "012345678901");
    EXPECT_EQ(found->region, "us-east-1");
    EXPECT_EQ(found->image, "ami-5fb8c835");
    EXPECT_EQ(found->started.micros, 1'769'860'800'000'000);
    EXPECT_EQ(WhyNotIn(*found), "");
  }
}

TEST_F(Ec2Test, WhatAnotherHasSignedIsNotEc2s) {
  const Ec2 other;
  EXPECT_THAT(WhyNot(kDocument, other.Sign(kDocument)),
              HasSubstr("was not signed by EC2 for the region us-east-1"));
  // The signer's own certificate in the signature is of no use to it.
  const auto certificate = tls::ReadCertificate(other.signer.certificate);
  const auto key = tls::ReadKey(other.signer.key);
  const std::string text = kDocument;
  const auto content = tls::MemoryOf(text);
  const std::unique_ptr<PKCS7, tls::FreeBy<PKCS7_free>> made(
      PKCS7_sign(certificate.get(), key.get(), nullptr, content.get(), PKCS7_BINARY));
  EXPECT_THAT(
      WhyNot(kDocument, Base64(tls::TextOf([&](BIO* out) { return i2d_PKCS7_bio(out, made.get()); }))),
      HasSubstr("was not signed by EC2"));
  // That of one region signs for no other.
  rules.regions["eu-west-1"] = {other.signer.certificate};
  EXPECT_THAT(WhyNot(kDocument, other.Sign(kDocument)), HasSubstr("was not signed by EC2"));
}

TEST_F(Ec2Test, AChangedDocumentIsNoProof) {
  const std::string changed = With("012345678901", "999999999999");
  EXPECT_THAT(WhyNot(changed, ec2.Sign(kDocument)), HasSubstr("another one than was signed"));
  EXPECT_THAT(WhyNot(changed, ec2.Sign(kDocument, true)), HasSubstr("was not signed by EC2"));
}

TEST_F(Ec2Test, AnotherRegionAccountInstanceOrImageIsNotLetIn) {
  const std::string elsewhere = With("\"us-east-1\"", "\"eu-west-1\"");
  EXPECT_THAT(WhyNot(elsewhere, ec2.Sign(elsewhere)), HasSubstr("of the region eu-west-1 are not let in"));
  const std::string theirs = With("012345678901", "999999999999");
  const auto stranger = IdentifyInstance(rules, theirs, ec2.Sign(theirs));
  ASSERT_TRUE(stranger.has_value());
  EXPECT_THAT(WhyNotIn(*stranger),
              HasSubstr("is of the account 999999999999, whose instances are not let in"));
  const auto ours = IdentifyInstance(rules, kDocument, ec2.Sign(kDocument));
  ASSERT_TRUE(ours.has_value());
  rules.images = {"ami-other"};
  EXPECT_THAT(WhyNotIn(*ours), HasSubstr("was made of the image ami-5fb8c835"));
  rules.images = {"ami-other", "ami-5fb8c835"};
  rules.instances = {"i-0"};
  EXPECT_THAT(WhyNotIn(*ours), HasSubstr("is not among those that are let in"));
  rules.instances.insert("i-1234567890abcdef0");
  EXPECT_EQ(WhyNotIn(*ours), "");
}

TEST_F(Ec2Test, GarbageIsRefusedWithoutRepeatingIt) {
  const std::string good = ec2.Sign(kDocument);
  const std::string evil = R"({"region": "us-east-1\" msg=\"all is well"})";
  for (const std::string& document : {std::string(), std::string("{"), std::string("[]"), evil,
                                      std::string(100'000, ' '), std::string(R"({"region": 7})")}) {
    EXPECT_THAT(WhyNot(document, good), HasSubstr("is no instance identity document"));
  }
  EXPECT_THAT(WhyNot(evil, good), Not(HasSubstr("all is well")));
  for (const std::string& signature :
       {std::string(), std::string("****"), std::string("AAAA"), good.substr(0, 64),
        std::string(200'000, 'A'), Base64(tls::NewKey().value())}) {
    EXPECT_THAT(WhyNot(kDocument, signature), HasSubstr("as the signature of its identity document is none"));
  }
  std::string broken = good;
  broken[broken.size() / 2] = broken[broken.size() / 2] == 'A' ? 'B' : 'A';
  EXPECT_NE(WhyNot(kDocument, broken), "");
  for (const char* gone : {"instanceId", "accountId", "pendingTime"}) {
    const std::string without = With(gone, "nothing");
    EXPECT_THAT(WhyNot(without, ec2.Sign(without)), HasSubstr("lacks an instance, an account or a time"));
  }
}

TEST_F(Ec2Test, TheConfigurationNamesTheFilesOfTheCertificates) {
  const auto folder = std::filesystem::path(testing::TempDir()) / fmt::format("imgd_ec2_{}", ::getpid());
  std::filesystem::create_directories(folder);
  const auto file = folder / "us-east-1.pem";
  const auto read = [](const std::string& text) {
    auto root = YamlMap::Parse(text, "imgd.yaml").value();
    const Ec2JoinConfig config = ReadEc2Join(root);
    root.Finish();
    EXPECT_TRUE(root.Errors().empty()) << root.Errors().front().ToString();
    return config;
  };
  const auto config = read(fmt::format(
      "ec2_join: {{accounts: [012345678901], regions: {{us-east-1: {}}}, any_instance: true, max_age: 30m}}",
      file.native()));
  EXPECT_TRUE(CheckEc2Join(config));
  EXPECT_THAT(LoadEc2Rules(config).error().message, HasSubstr("ec2_join.regions.us-east-1: "));
  ASSERT_TRUE(WriteFileAtomically(file, "no certificate"));
  EXPECT_THAT(LoadEc2Rules(config).error().message, HasSubstr("has no certificate in PEM"));
  ASSERT_TRUE(WriteFileAtomically(file, Ec2().signer.certificate + ec2.signer.certificate));
  rules = LoadEc2Rules(config).value();
  EXPECT_EQ(rules.most_age, std::chrono::minutes(30));
  EXPECT_THAT(rules.accounts, ElementsAre("012345678901"));
  EXPECT_EQ(WhyNot(kDocument, ec2.Sign(kDocument)), "") << "a new certificate beside the old one";
  std::filesystem::remove_all(folder);

  EXPECT_FALSE(read("ec2_join: {}").On());
  EXPECT_THAT(CheckEc2Join(read("ec2_join: {accounts: ['1']}")).error().message, HasSubstr("no regions"));
  EXPECT_THAT(CheckEc2Join(read("ec2_join: {max_age: 2h}")).error().message, HasSubstr("no accounts"));
  EXPECT_THAT(
      CheckEc2Join(read("ec2_join: {accounts: ['1'], regions: {a: /b}, images: [ami-1]}")).error().message,
      HasSubstr("found '1'; 12 digits"));
}

TEST(Ec2Join, WhoseInstancesJoinHasToBeSaid) {
  const auto check = [](const std::string& more) {
    auto root =
        YamlMap::Parse("ec2_join: {accounts: ['012345678901'], regions: {a: /b}" + more + "}", "imgd.yaml")
            .value();
    const auto checked = CheckEc2Join(ReadEc2Join(root));
    return checked ? "" : checked.error().message;
  };
  EXPECT_THAT(check(""), HasSubstr("found neither images nor instances"));
  EXPECT_THAT(check(", any_instance: false"), HasSubstr("found neither images nor instances"));
  EXPECT_EQ(check(", any_instance: true"), "");
  EXPECT_EQ(check(", images: [ami-1]"), "");
  EXPECT_EQ(check(", instances: [i-1]"), "");
  EXPECT_THAT(check(", images: []"), HasSubstr("ec2_join.images: found an empty list"));
  EXPECT_THAT(check(", any_instance: true, instances: [i-1]"), HasSubstr("found beside instances"));
}

}  // namespace
}  // namespace imgd
