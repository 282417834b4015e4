#include "trainer/data/hash.h"

#include <fmt/core.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

namespace imgd::data {

std::string Hex(std::string_view bytes) {
  std::string out;
  for (const char c : bytes) out += fmt::format("{:02x}", static_cast<uint8_t>(c));
  return out;
}

std::string Sha256(std::string_view text) {
  std::string out(32, '\0');
  unsigned size = 32;
  EVP_Digest(text.data(), text.size(), reinterpret_cast<unsigned char*>(out.data()), &size, EVP_sha256(),
             nullptr);
  return out;
}

std::string Sha256Hex(std::string_view text) { return Hex(Sha256(text)); }

std::string HmacSha256(std::string_view key, std::string_view text) {
  std::string out(32, '\0');
  unsigned size = 32;
  HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()),
       reinterpret_cast<const unsigned char*>(text.data()), text.size(),
       reinterpret_cast<unsigned char*>(out.data()), &size);
  return out;
}

struct Digest::Impl {
  EVP_MD_CTX* context = EVP_MD_CTX_new();
  ~Impl() { EVP_MD_CTX_free(context); }
};

Digest::Digest(Kind kind) : impl_(std::make_unique<Impl>()) {
  EVP_DigestInit_ex(impl_->context, kind == Kind::kMd5 ? EVP_md5() : EVP_sha256(), nullptr);
}
Digest::~Digest() = default;

void Digest::Add(std::span<const uint8_t> bytes) {
  EVP_DigestUpdate(impl_->context, bytes.data(), bytes.size());
}

std::string Digest::Finish() {
  std::string out(EVP_MAX_MD_SIZE, '\0');
  unsigned size = 0;
  EVP_DigestFinal_ex(impl_->context, reinterpret_cast<unsigned char*>(out.data()), &size);
  out.resize(size);
  return Hex(out);
}

}  // namespace imgd::data
