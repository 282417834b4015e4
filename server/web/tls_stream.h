#pragma once

#include <openssl/ssl.h>

#include <array>
#include <boost/asio/buffer.hpp>
#include <boost/asio/compose.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

namespace imgd::web {

/// The server's end of TLS over TCP: as much of boost::asio::ssl::stream as is needed here. It has memory for
/// what is on its way and no more, where that one keeps 68 KiB for each connection: thousands may listen.
/// What it waits for are operations of next_layer(), whose time limits hold. One operation at a time.
class TlsStream {
 public:
  using Code = boost::system::error_code;
  using next_layer_type = boost::beast::tcp_stream;
  using executor_type = next_layer_type::executor_type;

  TlsStream(boost::asio::ip::tcp::socket socket, boost::asio::ssl::context& context);
  TlsStream(const TlsStream&) = delete;
  TlsStream& operator=(const TlsStream&) = delete;

  executor_type get_executor() { return next_layer_.get_executor(); }
  next_layer_type& next_layer() { return next_layer_; }
  const next_layer_type& next_layer() const { return next_layer_; }

  /// Each calls `handler(Code, size_t bytes)`, never before it returns.
  template <typename Handler>
  void async_handshake(Handler&& handler) {
    Run({.kind = Step::kAccept}, std::forward<Handler>(handler));
  }
  template <typename Buffers, typename Handler>
  void async_read_some(const Buffers& buffers, Handler&& handler) {
    const auto first = First<boost::asio::mutable_buffer>(buffers);
    Run({Step::kRead, first.data(), first.size()}, std::forward<Handler>(handler));
  }
  template <typename Buffers, typename Handler>
  void async_write_some(const Buffers& buffers, Handler&& handler) {
    const auto first = First<boost::asio::const_buffer>(buffers);
    Run({Step::kWrite, const_cast<void*>(first.data()), first.size()}, std::forward<Handler>(handler));
  }

 private:
  /// A call of OpenSSL; of what is written nothing is changed.
  struct Step {
    enum Kind { kAccept, kRead, kWrite } kind;
    void* data = nullptr;
    size_t size = 0;
  };
  struct Outcome {
    Code code;
    size_t bytes = 0;
    bool wants_more = false;  ///< of the other side, and then the same call again
  };
  /// What OpenSSL reads from and writes to in the socket's place.
  struct Wire {
    static constexpr size_t kMost = 4096;            ///< of one read; a record may take several
    std::unique_ptr<std::array<char, kMost>> space;  ///< while something of it is awaited or unread
    std::string_view unread;
    std::string unsent;
  };
  struct Free {
    void operator()(SSL* ssl) const { SSL_free(ssl); }
  };

  /// The call, with what comes and goes between its tries.
  struct Operation {
    TlsStream* stream;
    Step step;
    enum { kBegun, kReceived, kSent, kDone } stage = kBegun;
    bool waited = false;
    Outcome outcome{};

    template <typename Self>
    void operator()(Self& self, Code code = {}, size_t bytes = 0) {
      if (stage == kDone) return self.complete(outcome.code, outcome.bytes);
      waited = waited || stage != kBegun;
      if (code) return self.complete(code == boost::asio::error::eof ? Truncated() : code, 0);
      if (stage == kReceived) stream->Received(bytes);
      if (stage == kSent) {
        stream->Sent();
      } else {
        outcome = stream->Try(step);
      }
      Continue(self);
    }
    template <typename Self>
    void Continue(Self& self) {
      TlsStream& s = *stream;
      if (!s.wire_.unsent.empty()) {
        stage = kSent;
        boost::asio::async_write(s.next_layer_, boost::asio::buffer(s.wire_.unsent), std::move(self));
      } else if (outcome.wants_more) {
        stage = kReceived;
        s.next_layer_.async_read_some(s.Space(), std::move(self));
      } else if (!waited) {
        stage = kDone;
        boost::asio::post(s.get_executor(), std::move(self));
      } else {
        self.complete(outcome.code, outcome.bytes);
      }
    }
  };

  template <typename Buffer, typename Buffers>
  static Buffer First(const Buffers& buffers) {
    const auto end = boost::asio::buffer_sequence_end(buffers);
    for (auto one = boost::asio::buffer_sequence_begin(buffers); one != end; ++one) {
      if (const Buffer buffer(*one); buffer.size() > 0) return buffer;
    }
    return {};
  }
  template <typename Handler>
  void Run(Step step, Handler&& handler) {
    boost::asio::async_compose<Handler, void(Code, size_t)>(Operation{this, step}, handler, next_layer_);
  }
  /// Calls OpenSSL, and sends as much of what comes of it as the socket takes at once.
  Outcome Try(const Step& step);
  boost::asio::mutable_buffer Space();
  void Received(size_t bytes);
  void Sent();
  /// The other side has gone, and did not say before that nothing more comes.
  static Code Truncated();
  static int Put(BIO* bio, const char* data, int size);
  static int Take(BIO* bio, char* data, int size);
  static BIO* MakeBio(Wire* wire);

  next_layer_type next_layer_;
  Wire wire_;  ///< outlives ssl_, which has its address
  std::unique_ptr<SSL, Free> ssl_;
};

}  // namespace imgd::web
