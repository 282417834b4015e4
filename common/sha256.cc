#include "common/sha256.h"

#include <openssl/hmac.h>

#include <cstdlib>

namespace imgd {
namespace {

/// Looked up once: by EVP_sha256() OpenSSL 3 would do so for each digest, which takes as long as a short one.
const EVP_MD* Algorithm() {
  static const EVP_MD* const kAlgorithm = EVP_MD_fetch(nullptr, "SHA256", nullptr);
  if (kAlgorithm == nullptr) std::abort();  // an OpenSSL without its default provider: nothing can be trusted
  return kAlgorithm;
}

}  // namespace

Sha256::Sha256() : context_(EVP_MD_CTX_new()) { EVP_DigestInit_ex(context_.get(), Algorithm(), nullptr); }

void Sha256::Update(std::string_view bytes) { EVP_DigestUpdate(context_.get(), bytes.data(), bytes.size()); }

std::string Sha256::Finish() {
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned int size = 0;
  EVP_DigestFinal_ex(context_.get(), digest, &size);
  return Hex({reinterpret_cast<const char*>(digest), size});
}

std::string Sha256Of(std::string_view bytes) { return Hex(Sha256Bytes(bytes)); }

std::string Sha256Bytes(std::string_view bytes) {
  std::string out(32, '\0');
  unsigned size = 32;
  EVP_Digest(bytes.data(), bytes.size(), reinterpret_cast<unsigned char*>(out.data()), &size, Algorithm(),
             nullptr);
  return out;
}

std::string HmacSha256(std::string_view key, std::string_view bytes) {
  std::string out(32, '\0');
  unsigned size = 32;
  HMAC(Algorithm(), key.data(), static_cast<int>(key.size()),
       reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size(),
       reinterpret_cast<unsigned char*>(out.data()), &size);
  return out;
}

std::string Hex(std::string_view bytes) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string out;
  out.reserve(2 * bytes.size());
  for (const char c : bytes) {
    out += kDigits[static_cast<uint8_t>(c) >> 4];
    out += kDigits[static_cast<uint8_t>(c) & 15];
  }
  return out;
}

std::string Base64(std::string_view bytes) {
  std::string out(4 * ((bytes.size() + 2) / 3) + 1, '\0');
  const int size =
      EVP_EncodeBlock(reinterpret_cast<unsigned char*>(out.data()),
                      reinterpret_cast<const unsigned char*>(bytes.data()), static_cast<int>(bytes.size()));
  out.resize(static_cast<size_t>(size));
  return out;
}

}  // namespace imgd
