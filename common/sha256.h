#pragma once

#include <openssl/evp.h>

#include <memory>
#include <string>
#include <string_view>

namespace imgd {

/// SHA-256 of bytes that come piece by piece.
class Sha256 {
 public:
  Sha256();
  void Update(std::string_view bytes);
  /// Lower-case hexadecimal. Nothing may follow it.
  std::string Finish();

 private:
  struct Free {
    void operator()(EVP_MD_CTX* context) const { EVP_MD_CTX_free(context); }
  };
  std::unique_ptr<EVP_MD_CTX, Free> context_;
};

/// SHA-256 of `bytes` in lower-case hexadecimal.
std::string Sha256Of(std::string_view bytes);

/// SHA-256 of `bytes`, and its HMAC with `key`, as 32 bytes.
std::string Sha256Bytes(std::string_view bytes);
std::string HmacSha256(std::string_view key, std::string_view bytes);

/// Lower-case hexadecimal, and Base64 with padding.
std::string Hex(std::string_view bytes);
std::string Base64(std::string_view bytes);

}  // namespace imgd
