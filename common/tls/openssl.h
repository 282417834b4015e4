#pragma once

#include <openssl/bio.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include <memory>
#include <string>
#include <string_view>

/// Owners of OpenSSL's things, and their way from and to PEM. Only sources include this.
namespace imgd::tls {

template <auto Free>
struct FreeBy {
  template <typename T>
  void operator()(T* thing) const {
    Free(thing);
  }
};
using KeyPtr = std::unique_ptr<EVP_PKEY, FreeBy<EVP_PKEY_free>>;
using CertificatePtr = std::unique_ptr<X509, FreeBy<X509_free>>;
using RequestPtr = std::unique_ptr<X509_REQ, FreeBy<X509_REQ_free>>;
using MemoryPtr = std::unique_ptr<BIO, FreeBy<BIO_free>>;

/// A memory file to read `text` from, which must outlive it.
inline MemoryPtr MemoryOf(std::string_view text) {
  return MemoryPtr(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
}

/// What `write` puts into a memory file; empty where it fails.
template <typename Write>
std::string TextOf(Write write) {
  const MemoryPtr memory(BIO_new(BIO_s_mem()));
  if (!memory || write(memory.get()) != 1) return "";
  char* data = nullptr;
  const long size = BIO_get_mem_data(memory.get(), &data);
  return {data, static_cast<size_t>(size)};
}

inline std::string PemOf(X509* certificate) {
  return TextOf([certificate](BIO* out) { return PEM_write_bio_X509(out, certificate); });
}

/// The first certificate of the text; null where there is none.
inline CertificatePtr ReadCertificate(std::string_view pem) {
  return CertificatePtr(PEM_read_bio_X509(MemoryOf(pem).get(), nullptr, nullptr, nullptr));
}

/// The private key of the text; null where there is none, or one with a password.
inline KeyPtr ReadKey(std::string_view pem) {
  const auto no_password = [](char*, int, int, void*) { return 0; };
  return KeyPtr(PEM_read_bio_PrivateKey(MemoryOf(pem).get(), nullptr, no_password, nullptr));
}

inline RequestPtr ReadRequest(std::string_view pem) {
  return RequestPtr(PEM_read_bio_X509_REQ(MemoryOf(pem).get(), nullptr, nullptr, nullptr));
}

}  // namespace imgd::tls
