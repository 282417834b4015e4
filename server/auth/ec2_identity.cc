#include "server/auth/ec2_identity.h"

#include <openssl/err.h>
#include <openssl/pkcs7.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "common/files.h"
#include "common/text.h"
#include "common/times.h"
#include "common/tls/openssl.h"
#include "common/tls/pem.h"

namespace imgd {
namespace {

using nlohmann::json;
using tls::CertificatePtr;
using tls::FreeBy;

using SignedPtr = std::unique_ptr<PKCS7, FreeBy<PKCS7_free>>;
using CertificateStack = STACK_OF(X509);

void FreeStack(CertificateStack* stack) { sk_X509_free(stack); }

/// The certificates in it are others' own.
using StackPtr = std::unique_ptr<CertificateStack, FreeBy<FreeStack>>;

constexpr size_t kMostShownBytes = 64 << 10;
constexpr size_t kMostFileBytes = size_t{1} << 20;

tl::unexpected<Error> NoEntry(std::string message, std::string hint = "") {
  return tl::unexpected(
      Error{.code = ErrorCode::kPermissionDenied, .message = std::move(message), .hint = std::move(hint)});
}

json ParseDocument(const std::string& text) {
  auto parsed = json::parse(text, nullptr, /*allow_exceptions=*/false);
  return parsed.is_object() ? parsed : json::object();
}

std::string TextIn(const json& document, const char* name) {
  const auto found = document.find(name);
  return found != document.end() && found->is_string() ? found->get<std::string>() : "";
}

bool IsPlain(std::string_view text) {
  return !text.empty() && text.size() <= 64 && std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-';
  });
}

/// Of Base64, whose lines may be broken anywhere, with or without PEM's header and footer. Null for what is
/// no signature.
SignedPtr ReadSignature(std::string text) {
  if (text.size() > kMostShownBytes) return nullptr;
  for (const char* mark : {"-----BEGIN PKCS7-----", "-----END PKCS7-----"}) {
    if (const size_t at = text.find(mark); at != std::string::npos)
      text.erase(at, std::string_view(mark).size());
  }
  std::erase_if(text, [](char c) { return c == '\n' || c == '\r' || c == ' ' || c == '\t'; });
  if (text.empty() || text.size() % 4 != 0) return nullptr;
  std::string bytes(text.size() / 4 * 3, '\0');
  const int length =
      EVP_DecodeBlock(reinterpret_cast<unsigned char*>(bytes.data()),
                      reinterpret_cast<const unsigned char*>(text.data()), static_cast<int>(text.size()));
  if (length <= 0) return nullptr;
  // Padding was decoded as zeros; the structure itself says where it ends.
  const auto* at = reinterpret_cast<const unsigned char*>(bytes.data());
  SignedPtr out(d2i_PKCS7(nullptr, &at, length));
  ERR_clear_error();
  if (!out || PKCS7_type_is_signed(out.get()) != 1) return nullptr;
  return out;
}

/// What was signed, provided that one of the certificates' keys did: the content that the signature has in
/// it, or `document` where it has none. Nothing for any other signature.
std::optional<std::string> VerifiedContent(PKCS7* signature, const std::vector<std::string>& certificates,
                                           const std::string& document) {
  const StackPtr stack(sk_X509_new_null());
  std::vector<CertificatePtr> owners;
  for (const auto& pem : certificates) {
    owners.push_back(tls::ReadCertificate(pem));
    if (!owners.back() || sk_X509_push(stack.get(), owners.back().get()) <= 0) return std::nullopt;
  }
  const bool apart = PKCS7_get_detached(signature) == 1;
  const auto given = apart ? tls::MemoryOf(document) : nullptr;
  // Certificates in the signature itself count for nothing: those of the operator are trusted by themselves,
  // as EC2's, which no CA has signed.
  constexpr int kFlags = PKCS7_NOINTERN | PKCS7_NOVERIFY | PKCS7_NOCHAIN | PKCS7_BINARY;
  std::string content = tls::TextOf(
      [&](BIO* out) { return PKCS7_verify(signature, stack.get(), nullptr, given.get(), out, kFlags); });
  ERR_clear_error();
  if (content.empty()) return std::nullopt;
  return content;
}

bool IsId(const std::string& text, std::string_view prefix) {
  return text.size() > prefix.size() && text.starts_with(prefix) && IsPlain(text);
}

bool IsAccount(const std::string& text) {
  return text.size() == 12 && text.find_first_not_of("0123456789") == std::string::npos;
}

}  // namespace

Result<Ec2Rules> LoadEc2Rules(const Ec2JoinConfig& config) {
  const auto set_of = [](const std::optional<std::vector<std::string>>& list) {
    return list ? std::set<std::string>(list->begin(), list->end()) : std::set<std::string>();
  };
  Ec2Rules rules{.accounts = {config.accounts.begin(), config.accounts.end()},
                 .regions = {},
                 .instances = set_of(config.instances),
                 .images = set_of(config.images),
                 .most_age = std::chrono::milliseconds(config.max_age_ms)};
  for (const auto& [region, file] : config.regions) {
    const auto text = ReadFile(file, kMostFileBytes);
    if (!text) {
      return Fail(text.error().code, "ec2_join.regions.{}: {}", region, text.error().message);
    }
    rules.regions[region] = tls::Certificates(*text);
    if (rules.regions[region].empty()) {
      return Fail(ErrorCode::kInvalidArgument, "ec2_join.regions.{}: {} has no certificate in PEM", region,
                  file);
    }
  }
  return rules;
}

Result<Ec2Instance> IdentifyInstance(const Ec2Rules& rules, const std::string& document,
                                     const std::string& signature) {
  const json claimed = document.size() <= kMostShownBytes ? ParseDocument(document) : json::object();
  const std::string region = TextIn(claimed, "region");
  if (!IsPlain(region)) return NoEntry("what it shows is no instance identity document of EC2");
  const auto certificates = rules.regions.find(region);
  if (certificates == rules.regions.end()) {
    return NoEntry(fmt::format("instances of the region {} are not let in", region),
                   "ec2_join.regions in imgd.yaml has them, with EC2's certificate for each");
  }
  const SignedPtr signed_data = ReadSignature(signature);
  if (!signed_data) return NoEntry("what it shows as the signature of its identity document is none");
  const auto content = VerifiedContent(signed_data.get(), certificates->second, document);
  if (!content) {
    return NoEntry(
        fmt::format("its identity document was not signed by EC2 for the region {}, as imgd knows it",
                    region),
        "the file of ec2_join.regions in imgd.yaml is EC2's RSA-2048 certificate for that region");
  }
  const json known = ParseDocument(*content);
  if (known != claimed) return NoEntry("its identity document is another one than was signed");
  Ec2Instance instance{.id = TextIn(known, "instanceId"),
                       .account = TextIn(known, "accountId"),
                       .region = region,
                       .image = TextIn(known, "imageId"),
                       .started = {}};
  const auto started = ParseTime(TextIn(known, "pendingTime"));
  if (!IsId(instance.id, "i-") || !IsAccount(instance.account) || !started)
    return NoEntry("its identity document, which EC2 signed, lacks an instance, an account or a time");
  instance.started = {*started};
  return instance;
}

Status CheckInstance(const Ec2Rules& rules, const Ec2Instance& instance) {
  const auto lets_in = [](const std::set<std::string>& allowed, const std::string& one) {
    return allowed.empty() || allowed.contains(one);
  };
  if (!rules.accounts.contains(instance.account)) {
    return NoEntry(fmt::format("the EC2 instance {} is of the account {}, whose instances are not let in",
                               instance.id, instance.account),
                   "ec2_join.accounts in imgd.yaml has those that are");
  }
  if (!lets_in(rules.instances, instance.id)) {
    return NoEntry(fmt::format("the EC2 instance {} is not among those that are let in", instance.id),
                   "ec2_join.instances in imgd.yaml has them");
  }
  if (!lets_in(rules.images, instance.image)) {
    return NoEntry(fmt::format("the EC2 instance {} was made of the image {}, which is not among those that "
                               "are let in",
                               instance.id, IsPlain(instance.image) ? instance.image : "of no name"),
                   "ec2_join.images in imgd.yaml has them");
  }
  return {};
}

}  // namespace imgd
