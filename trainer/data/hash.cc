#include "trainer/data/hash.h"

#include <openssl/evp.h>

#include "common/sha256.h"

namespace imgd::data {

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
