#include "server/web/certificate.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <ifaddrs.h>
#include <limits.h>
#include <netinet/in.h>
#include <openssl/ec.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509v3.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <memory>
#include <set>
#include <vector>

#include "common/files.h"

namespace imgd::web {
namespace {

namespace fs = std::filesystem;

template <auto Free>
struct FreeBy {
  template <typename T>
  void operator()(T* thing) const {
    Free(thing);
  }
};
using Key = std::unique_ptr<EVP_PKEY, FreeBy<EVP_PKEY_free>>;
using Certificate = std::unique_ptr<X509, FreeBy<X509_free>>;
using Memory = std::unique_ptr<BIO, FreeBy<BIO_free>>;

bool IsAddress(const std::string& host) {
  std::array<unsigned char, 16> bytes{};
  return ::inet_pton(AF_INET, host.c_str(), bytes.data()) == 1 ||
         ::inet_pton(AF_INET6, host.c_str(), bytes.data()) == 1;
}

std::string HostName() {
  std::array<char, HOST_NAME_MAX + 1> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "";
}

/// What clients may call this machine: "DNS:gpu-head", "IP:10.0.0.1".
std::set<std::string> SubjectNames(const std::string& host) {
  std::set<std::string> names = {"DNS:localhost", "IP:127.0.0.1", "IP:::1"};
  const auto add = [&names](const std::string& name) {
    // What stands in a list with commas and colons must have none of its own.
    const bool plain =
        !name.empty() && name.size() <= 253 && name.find_first_of(",;= \t\"\\") == std::string::npos;
    if (plain) names.insert((IsAddress(name) ? "IP:" : "DNS:") + name);
  };
  add(HostName());
  if (host.starts_with('[') && host.ends_with(']')) {
    add(host.substr(1, host.size() - 2));
  } else if (host != "0.0.0.0") {
    add(host);
  }
  ifaddrs* interfaces = nullptr;
  if (::getifaddrs(&interfaces) != 0) return names;
  const std::unique_ptr<ifaddrs, FreeBy<freeifaddrs>> owner(interfaces);
  constexpr size_t kMostNames = 64;
  for (const auto* at = interfaces; at != nullptr && names.size() < kMostNames; at = at->ifa_next) {
    if (at->ifa_addr == nullptr) continue;
    std::array<char, INET6_ADDRSTRLEN> text{};
    if (at->ifa_addr->sa_family == AF_INET) {
      const auto* v4 = reinterpret_cast<const sockaddr_in*>(at->ifa_addr);
      ::inet_ntop(AF_INET, &v4->sin_addr, text.data(), text.size());
    } else if (at->ifa_addr->sa_family == AF_INET6) {
      const auto* v6 = reinterpret_cast<const sockaddr_in6*>(at->ifa_addr);
      ::inet_ntop(AF_INET6, &v6->sin6_addr, text.data(), text.size());
    }
    add(text.data());
  }
  return names;
}

bool AddExtension(X509* certificate, int kind, const std::string& value) {
  X509V3_CTX context;
  X509V3_set_ctx_nodb(&context);
  X509V3_set_ctx(&context, certificate, certificate, nullptr, nullptr, 0);
  const std::unique_ptr<X509_EXTENSION, FreeBy<X509_EXTENSION_free>> extension(
      X509V3_EXT_conf_nid(nullptr, &context, kind, value.c_str()));
  return extension && X509_add_ext(certificate, extension.get(), -1) == 1;
}

Certificate Sign(EVP_PKEY* key, const std::set<std::string>& names) {
  constexpr long kTenYears = 3650L * 24 * 3600;
  Certificate certificate(X509_new());
  std::array<unsigned char, 16> serial{};
  if (!certificate || RAND_bytes(serial.data(), static_cast<int>(serial.size())) != 1) return nullptr;
  serial[0] &= 0x7F;  // positive
  const std::unique_ptr<BIGNUM, FreeBy<BN_free>> number(
      BN_bin2bn(serial.data(), static_cast<int>(serial.size()), nullptr));
  BN_to_ASN1_INTEGER(number.get(), X509_get_serialNumber(certificate.get()));
  X509_set_version(certificate.get(), X509_VERSION_3);
  // A clock that runs a bit behind does not refuse it.
  X509_gmtime_adj(X509_getm_notBefore(certificate.get()), -3600);
  X509_gmtime_adj(X509_getm_notAfter(certificate.get()), kTenYears);
  X509_set_pubkey(certificate.get(), key);
  X509_NAME* name = X509_get_subject_name(certificate.get());
  const auto* common = reinterpret_cast<const unsigned char*>("imgd");
  X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC, common, -1, -1, 0);
  X509_set_issuer_name(certificate.get(), name);
  const bool good =
      AddExtension(certificate.get(), NID_basic_constraints, "critical,CA:FALSE") &&
      AddExtension(certificate.get(), NID_key_usage, "critical,digitalSignature") &&
      AddExtension(certificate.get(), NID_ext_key_usage, "serverAuth") &&
      AddExtension(certificate.get(), NID_subject_key_identifier, "hash") &&
      AddExtension(certificate.get(), NID_subject_alt_name, fmt::format("{}", fmt::join(names, ","))) &&
      X509_sign(certificate.get(), key, EVP_sha256()) > 0;
  return good ? std::move(certificate) : nullptr;
}

/// What `write` puts into a memory file.
template <typename Write>
std::string TextOf(Write write) {
  const Memory memory(BIO_new(BIO_s_mem()));
  if (!memory || write(memory.get()) != 1) return "";
  char* data = nullptr;
  const long size = BIO_get_mem_data(memory.get(), &data);
  return {data, static_cast<size_t>(size)};
}

/// A new file that nobody else can read, in the place of an old one.
Status WriteSecretFile(const fs::path& path, const std::string& content) {
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

}  // namespace

Result<CertificateFiles> OwnCertificate(const fs::path& folder, const std::string& host) {
  CertificateFiles files{.certificate = folder / "web.crt", .key = folder / "web.key"};
  std::error_code ignored;
  if (fs::exists(files.certificate, ignored) && fs::exists(files.key, ignored)) return files;
  const Key key(EVP_EC_gen("P-256"));
  const Certificate certificate = key ? Sign(key.get(), SubjectNames(host)) : nullptr;
  if (!certificate) return Fail(ErrorCode::kInternal, "OpenSSL could not make a certificate");
  const std::string key_text = TextOf([&key](BIO* out) {
    return PEM_write_bio_PrivateKey(out, key.get(), nullptr, nullptr, 0, nullptr, nullptr);
  });
  const std::string text =
      TextOf([&certificate](BIO* out) { return PEM_write_bio_X509(out, certificate.get()); });
  if (text.empty() || key_text.empty())
    return Fail(ErrorCode::kInternal, "OpenSSL could not write a certificate");
  // The certificate last: without it both are made again.
  IMGD_TRY(WriteSecretFile(files.key, key_text));
  IMGD_TRY(WriteFileAtomically(files.certificate, text));
  return files;
}

Result<std::string> FingerprintOf(const fs::path& path) {
  IMGD_ASSIGN(const std::string text, ReadFile(path, size_t{1} << 20));
  const Memory memory(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
  const Certificate certificate(PEM_read_bio_X509(memory.get(), nullptr, nullptr, nullptr));
  if (!certificate)
    return Fail(ErrorCode::kFailedPrecondition, "web.certificate: {} has no certificate in PEM",
                path.native());
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned int size = 0;
  X509_digest(certificate.get(), EVP_sha256(), digest.data(), &size);
  std::string out;
  for (unsigned int i = 0; i < size; ++i) out += fmt::format("{}{:02X}", i == 0 ? "" : ":", digest[i]);
  return out;
}

}  // namespace imgd::web
