#include "server/web/tls_stream.h"

#include <openssl/bio.h>
#include <openssl/err.h>

#include <algorithm>
#include <boost/asio/ssl/error.hpp>
#include <climits>
#include <cstring>
#include <new>

namespace imgd::web {
namespace {

namespace asio = boost::asio;

long Control(BIO*, int command, long, void*) { return command == BIO_CTRL_FLUSH ? 1 : 0; }

}  // namespace

int TlsStream::Put(BIO* bio, const char* data, int size) {
  static_cast<Wire*>(BIO_get_data(bio))->unsent.append(data, static_cast<size_t>(size));
  return size;
}

int TlsStream::Take(BIO* bio, char* data, int size) {
  auto& wire = *static_cast<Wire*>(BIO_get_data(bio));
  BIO_clear_retry_flags(bio);
  if (wire.unread.empty()) {
    BIO_set_retry_read(bio);
    return -1;
  }
  const size_t taken = std::min(static_cast<size_t>(size), wire.unread.size());
  std::memcpy(data, wire.unread.data(), taken);
  wire.unread.remove_prefix(taken);
  if (wire.unread.empty()) wire.space.reset();
  return static_cast<int>(taken);
}

BIO* TlsStream::MakeBio(Wire* wire) {
  static BIO_METHOD* const method = [] {
    BIO_METHOD* made = BIO_meth_new(BIO_TYPE_SOURCE_SINK, "connection");
    if (made == nullptr) throw std::bad_alloc();
    BIO_meth_set_write(made, Put);
    BIO_meth_set_read(made, Take);
    BIO_meth_set_ctrl(made, Control);
    return made;
  }();
  BIO* bio = BIO_new(method);
  if (bio == nullptr) throw std::bad_alloc();
  BIO_set_data(bio, wire);
  BIO_set_init(bio, 1);
  return bio;
}

TlsStream::TlsStream(asio::ip::tcp::socket socket, asio::ssl::context& context)
    : next_layer_(std::move(socket)), ssl_(SSL_new(context.native_handle())) {
  if (!ssl_) throw std::bad_alloc();
  BIO* bio = MakeBio(&wire_);
  SSL_set_bio(ssl_.get(), bio, bio);
  SSL_set_mode(ssl_.get(), SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
                               SSL_MODE_RELEASE_BUFFERS);
  // What the socket does not take at once is awaited.
  Code ignored;
  next_layer_.socket().non_blocking(true, ignored);
}

TlsStream::Outcome TlsStream::Try(const Step& step) {
  SSL* ssl = ssl_.get();
  const int size = static_cast<int>(std::min<size_t>(step.size, INT_MAX));
  if (step.kind != Step::kAccept && size == 0) return {};
  ERR_clear_error();
  const int result = step.kind == Step::kAccept ? SSL_accept(ssl)
                     : step.kind == Step::kRead ? SSL_read(ssl, step.data, size)
                                                : SSL_write(ssl, step.data, size);
  Outcome outcome;
  const int error = result > 0 ? SSL_ERROR_NONE : SSL_get_error(ssl, result);
  if (error == SSL_ERROR_NONE) {
    outcome.bytes = static_cast<size_t>(result);
  } else if (error == SSL_ERROR_WANT_READ) {
    outcome.wants_more = true;
  } else if (error == SSL_ERROR_ZERO_RETURN) {
    outcome.code = asio::error::eof;
  } else if (const unsigned long number = ERR_get_error(); number != 0) {
    outcome.code = {static_cast<int>(number), asio::error::get_ssl_category()};
  } else {
    outcome.code = Truncated();
  }
  if (!wire_.unsent.empty()) {
    Code code;  // whatever it is, who waits for the rest is told
    wire_.unsent.erase(0, next_layer_.socket().write_some(asio::buffer(wire_.unsent), code));
    if (wire_.unsent.empty()) Sent();
  }
  return outcome;
}

asio::mutable_buffer TlsStream::Space() {
  wire_.space = std::make_unique<std::array<char, Wire::kMost>>();
  return asio::buffer(*wire_.space);
}

void TlsStream::Received(size_t bytes) { wire_.unread = {wire_.space->data(), bytes}; }

// An empty text that is assigned would leave it its memory.
void TlsStream::Sent() { std::string().swap(wire_.unsent); }

TlsStream::Code TlsStream::Truncated() { return asio::ssl::error::stream_truncated; }

}  // namespace imgd::web
