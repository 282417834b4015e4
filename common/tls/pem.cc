#include "common/tls/pem.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/chrono.h>
#include <openssl/ec.h>
#include <openssl/err.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <ctime>

#include "common/files.h"
#include "common/sha256.h"
#include "common/tls/openssl.h"

namespace imgd::tls {
namespace {

tl::unexpected<Error> OpenSslFailed(std::string_view what) {
  ERR_clear_error();
  return Fail(ErrorCode::kInternal, "OpenSSL could not {}", what);
}

/// SHA-256 of what `write` makes as DER.
template <typename Write>
std::string HashOfDer(Write write) {
  unsigned char* data = nullptr;
  const int size = write(&data);
  if (size <= 0) return "";
  std::string hash = Sha256Of({reinterpret_cast<const char*>(data), static_cast<size_t>(size)});
  OPENSSL_free(data);
  return hash;
}

std::string HashOfPublic(const EVP_PKEY* key) {
  return HashOfDer([key](unsigned char** out) { return i2d_PUBKEY(key, out); });
}

WallTime TimeOf(const ASN1_TIME* time) {
  std::tm parts{};
  if (ASN1_TIME_to_tm(time, &parts) != 1) return {};
  return {static_cast<int64_t>(::timegm(&parts)) * 1'000'000};
}

std::string TextOfString(const ASN1_STRING* text) {
  return {reinterpret_cast<const char*>(ASN1_STRING_get0_data(text)),
          static_cast<size_t>(ASN1_STRING_length(text))};
}

std::string NameOfGeneral(const GENERAL_NAME* name) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  switch (name->type) {
    case GEN_DNS:
      return "DNS:" + TextOfString(name->d.dNSName);
    case GEN_URI:
      return "URI:" + TextOfString(name->d.uniformResourceIdentifier);
    case GEN_IPADD: {
      const int family = ASN1_STRING_length(name->d.iPAddress) == 4 ? AF_INET : AF_INET6;
      ::inet_ntop(family, ASN1_STRING_get0_data(name->d.iPAddress), text.data(), text.size());
      return fmt::format("IP:{}", text.data());
    }
    default:
      return "";
  }
}

std::vector<std::string> NamesOf(const X509* certificate) {
  const std::unique_ptr<GENERAL_NAMES, FreeBy<GENERAL_NAMES_free>> list(
      static_cast<GENERAL_NAMES*>(X509_get_ext_d2i(certificate, NID_subject_alt_name, nullptr, nullptr)));
  std::vector<std::string> names;
  for (int i = 0; list && i < sk_GENERAL_NAME_num(list.get()); ++i) {
    std::string name = NameOfGeneral(sk_GENERAL_NAME_value(list.get(), i));
    if (!name.empty()) names.push_back(std::move(name));
  }
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace

Result<std::string> NewKey() {
  const KeyPtr key(EVP_EC_gen("P-256"));
  std::string text = !key ? "" : TextOf([&key](BIO* out) {
    return PEM_write_bio_PrivateKey(out, key.get(), nullptr, nullptr, 0, nullptr, nullptr);
  });
  if (text.empty()) return OpenSslFailed("make a key");
  return text;
}

Result<std::string> MakeRequest(const std::string& key_text) {
  const KeyPtr key = ReadKey(key_text);
  if (!key) return Fail(ErrorCode::kInvalidArgument, "this is no private key in PEM");
  const RequestPtr request(X509_REQ_new());
  const bool good = request && X509_REQ_set_version(request.get(), X509_REQ_VERSION_1) == 1 &&
                    X509_REQ_set_pubkey(request.get(), key.get()) == 1 &&
                    X509_REQ_sign(request.get(), key.get(), EVP_sha256()) > 0;
  std::string text =
      !good ? "" : TextOf([&request](BIO* out) { return PEM_write_bio_X509_REQ(out, request.get()); });
  if (text.empty()) return OpenSslFailed("make a request for a certificate");
  return text;
}

Result<std::string> CheckRequest(const std::string& text) {
  const RequestPtr request = ReadRequest(text);
  EVP_PKEY* key = request ? X509_REQ_get0_pubkey(request.get()) : nullptr;
  ERR_clear_error();
  if (key == nullptr) return Fail(ErrorCode::kInvalidArgument, "this is no request for a certificate in PEM");
  const bool own = X509_REQ_verify(request.get(), key) == 1;
  ERR_clear_error();
  if (!own)
    return Fail(ErrorCode::kInvalidArgument,
                "the request for a certificate is not signed by the key it is for");
  return HashOfPublic(key);
}

Result<std::string> PublicHashOf(const std::string& key_text) {
  const KeyPtr key = ReadKey(key_text);
  if (!key) return Fail(ErrorCode::kInvalidArgument, "this is no private key in PEM");
  return HashOfPublic(key.get());
}

Result<CertificateFacts> FactsOf(std::string_view pem) {
  const CertificatePtr certificate = ReadCertificate(pem);
  ERR_clear_error();
  if (!certificate) return Fail(ErrorCode::kInvalidArgument, "this is no certificate in PEM");
  CertificateFacts facts;
  facts.sha256 = HashOfDer([&](unsigned char** out) { return i2d_X509(certificate.get(), out); });
  facts.key_sha256 = HashOfPublic(X509_get0_pubkey(certificate.get()));
  facts.not_before = TimeOf(X509_get0_notBefore(certificate.get()));
  facts.not_after = TimeOf(X509_get0_notAfter(certificate.get()));
  facts.names = NamesOf(certificate.get());
  return facts;
}

std::vector<std::string> Certificates(std::string_view pem) {
  std::vector<std::string> out;
  const MemoryPtr memory = MemoryOf(pem);
  while (true) {
    const CertificatePtr certificate(PEM_read_bio_X509(memory.get(), nullptr, nullptr, nullptr));
    if (!certificate) break;
    out.push_back(PemOf(certificate.get()));
  }
  ERR_clear_error();
  return out;
}

bool IsSignedBy(const std::string& certificate_text, const std::string& issuer_text) {
  const CertificatePtr certificate = ReadCertificate(certificate_text);
  const CertificatePtr issuer = ReadCertificate(issuer_text);
  const bool good = certificate && issuer &&
                    X509_check_issued(issuer.get(), certificate.get()) == X509_V_OK &&
                    X509_verify(certificate.get(), X509_get0_pubkey(issuer.get())) == 1;
  ERR_clear_error();
  return good;
}

bool IsCa(const std::string& text) {
  const CertificatePtr certificate = ReadCertificate(text);
  return certificate && X509_check_ca(certificate.get()) != 0;
}

bool LeadsTo(const std::vector<std::string>& chain, size_t place) {
  if (place == 0) return IsSignedBy(chain.front(), chain.front());
  for (size_t i = 0; i < place; ++i) {
    if (!IsCa(chain[i + 1]) || !IsSignedBy(chain[i], chain[i + 1])) return false;
  }
  return true;
}

std::string DateOf(WallTime time) {
  return fmt::format("{:%Y-%m-%d %H:%M:%S} UTC",
                     fmt::gmtime(static_cast<std::time_t>(time.micros / 1'000'000)));
}

std::string WithColons(std::string_view hexadecimal) {
  std::string out;
  for (size_t i = 0; i < hexadecimal.size(); ++i) {
    if (i > 0 && i % 2 == 0) out += ':';
    out += static_cast<char>(std::toupper(static_cast<unsigned char>(hexadecimal[i])));
  }
  return out;
}

Status WriteSecretFile(const std::filesystem::path& path, std::string_view content) {
  const std::string temporary = path.native() + ".new";
  ::unlink(temporary.c_str());
  const UniqueFd fd(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!fd.valid()) return FailErrno(errno, fmt::format("cannot create {}", temporary));
  IMGD_TRY(WriteAll(fd.get(), content, temporary));
  if (::fsync(fd.get()) != 0) return FailErrno(errno, fmt::format("cannot sync {}", temporary));
  if (::rename(temporary.c_str(), path.c_str()) != 0)
    return FailErrno(errno, fmt::format("cannot rename {} to {}", temporary, path.native()));
  return {};
}

}  // namespace imgd::tls
