#include "server/auth/signing.h"

#include <fmt/ranges.h>
#include <openssl/err.h>
#include <openssl/rand.h>

#include <array>
#include <ctime>

#include "common/tls/openssl.h"
#include "common/tls/pem.h"

namespace imgd {
namespace {

using tls::CertificatePtr;
using tls::FreeBy;
using tls::KeyPtr;

tl::unexpected<Error> CannotSign() {
  ERR_clear_error();
  return Fail(ErrorCode::kInternal, "OpenSSL could not make a certificate");
}

bool AddExtension(X509* certificate, X509* issuer, int kind, const std::string& value) {
  X509V3_CTX context;
  X509V3_set_ctx_nodb(&context);
  X509V3_set_ctx(&context, issuer, certificate, nullptr, nullptr, 0);
  const std::unique_ptr<X509_EXTENSION, FreeBy<X509_EXTENSION_free>> extension(
      X509V3_EXT_conf_nid(nullptr, &context, kind, value.c_str()));
  return extension && X509_add_ext(certificate, extension.get(), -1) == 1;
}

/// With all but its extensions, its issuer and the signature.
CertificatePtr Draft(EVP_PKEY* key, const std::string& common_name, WallTime from, WallTime until) {
  CertificatePtr certificate(X509_new());
  std::array<unsigned char, 16> serial{};
  if (!certificate || RAND_bytes(serial.data(), static_cast<int>(serial.size())) != 1) return nullptr;
  serial[0] &= 0x7F;  // positive
  const std::unique_ptr<BIGNUM, FreeBy<BN_free>> number(
      BN_bin2bn(serial.data(), static_cast<int>(serial.size()), nullptr));
  BN_to_ASN1_INTEGER(number.get(), X509_get_serialNumber(certificate.get()));
  X509_set_version(certificate.get(), X509_VERSION_3);
  ASN1_TIME_set(X509_getm_notBefore(certificate.get()), static_cast<std::time_t>(from.micros / 1'000'000));
  ASN1_TIME_set(X509_getm_notAfter(certificate.get()), static_cast<std::time_t>(until.micros / 1'000'000));
  X509_set_pubkey(certificate.get(), key);
  const auto* common = reinterpret_cast<const unsigned char*>(common_name.c_str());
  X509_NAME_add_entry_by_txt(X509_get_subject_name(certificate.get()), "CN", MBSTRING_UTF8, common, -1, -1,
                             0);
  return certificate;
}

Result<std::string> SignPublic(const Signer& signer, EVP_PKEY* key, const CertificateOrder& order) {
  const CertificatePtr issuer = tls::ReadCertificate(signer.certificate);
  const KeyPtr issuer_key = tls::ReadKey(signer.key);
  const CertificatePtr certificate = Draft(key, order.common_name, order.from, order.until);
  if (!issuer || !issuer_key || !certificate) return CannotSign();
  X509_set_issuer_name(certificate.get(), X509_get_subject_name(issuer.get()));
  const auto add = [&](int kind, const std::string& value) {
    return AddExtension(certificate.get(), issuer.get(), kind, value);
  };
  const bool good = add(NID_basic_constraints, "critical,CA:FALSE") &&
                    add(NID_key_usage, "critical,digitalSignature") &&
                    add(NID_ext_key_usage, order.for_server ? "serverAuth" : "clientAuth") &&
                    add(NID_subject_key_identifier, "hash") && add(NID_authority_key_identifier, "keyid") &&
                    add(NID_subject_alt_name, fmt::format("{}", fmt::join(order.names, ","))) &&
                    X509_sign(certificate.get(), issuer_key.get(), EVP_sha256()) > 0;
  std::string text = good ? tls::PemOf(certificate.get()) : "";
  if (text.empty()) return CannotSign();
  return text;
}

}  // namespace

Result<Signer> NewSigner(const std::string& common_name, WallTime from, WallTime until) {
  IMGD_ASSIGN(std::string key_text, tls::NewKey());
  const KeyPtr key = tls::ReadKey(key_text);
  const CertificatePtr certificate = Draft(key.get(), common_name, from, until);
  if (!certificate) return CannotSign();
  X509_set_issuer_name(certificate.get(), X509_get_subject_name(certificate.get()));
  const auto add = [&](int kind, const std::string& value) {
    return AddExtension(certificate.get(), certificate.get(), kind, value);
  };
  const bool good = add(NID_basic_constraints, "critical,CA:TRUE,pathlen:0") &&
                    add(NID_key_usage, "critical,keyCertSign,cRLSign") &&
                    add(NID_subject_key_identifier, "hash") &&
                    X509_sign(certificate.get(), key.get(), EVP_sha256()) > 0;
  std::string text = good ? tls::PemOf(certificate.get()) : "";
  if (text.empty()) return CannotSign();
  return Signer{std::move(text), std::move(key_text)};
}

Result<std::string> SignKey(const Signer& signer, const std::string& key_text,
                            const CertificateOrder& order) {
  const KeyPtr key = tls::ReadKey(key_text);
  if (!key) return Fail(ErrorCode::kInvalidArgument, "this is no private key in PEM");
  return SignPublic(signer, key.get(), order);
}

Result<std::string> SignRequest(const Signer& signer, const std::string& request_text,
                                const CertificateOrder& order) {
  IMGD_TRY(tls::CheckRequest(request_text));
  const tls::RequestPtr request = tls::ReadRequest(request_text);
  return SignPublic(signer, X509_REQ_get0_pubkey(request.get()), order);
}

}  // namespace imgd
