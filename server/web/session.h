#pragma once

#include <array>
#include <boost/asio/buffer.hpp>
#include <boost/asio/dispatch.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http.hpp>
#include <deque>
#include <memory>
#include <optional>
#include <utility>

#include "server/web/errors.h"
#include "server/web/shared.h"
#include "server/web/tls_stream.h"

namespace imgd::web {

using PlainStream = boost::beast::tcp_stream;

/// One connection: reads a request, has it answered, writes the answer, and again, until somebody ends it or
/// one of the limits does. Everything of it runs on its strand; it lives as long as something is under way.
/// Where an answer has no end, the connection becomes a listener, which it stays.
template <typename Stream>
class Session final : public Listener, public std::enable_shared_from_this<Session<Stream>> {
 public:
  /// The caller has counted it in `shared->connections`.
  template <typename... Arguments>
  explicit Session(std::shared_ptr<Shared> shared, Arguments&&... arguments)
      : shared_(std::move(shared)), stream_(std::forward<Arguments>(arguments)...) {}
  ~Session() override {
    EndRequest();
    if (source_) --shared_->downloads;
    if (closer_ != 0) shared_->Forget(closer_);
    --(listening_ ? shared_->listeners : shared_->connections);
  }
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  void Start() {
    const auto posts = [weak = this->weak_from_this()](void (Session::*action)()) {
      return [weak, action] {
        if (const auto self = weak.lock())
          boost::asio::post(self->stream_.get_executor(), [self, action] { (self.get()->*action)(); });
      };
    };
    closer_ = shared_->Remember({.close = posts(&Session::End), .give_way = posts(&Session::GiveWay)});
    Code unknown;
    address_ = tcp().socket().remote_endpoint(unknown).address();
    NoteWaiting();
    boost::asio::dispatch(stream_.get_executor(), [self = this->shared_from_this()] { self->Begin(); });
  }

  void Send(Piece piece, std::function<void()> then) override {
    shared_->UnlessEnded([&] {
      boost::asio::post(stream_.get_executor(), [self = this->shared_from_this(), piece = std::move(piece),
                                                 then = std::move(then)]() mutable {
        self->Queue(std::move(piece), std::move(then));
      });
    });
  }

 private:
  using Code = boost::beast::error_code;
  using Parser = boost::beast::http::request_parser<boost::beast::http::string_body>;
  static constexpr bool kTls = std::is_same_v<Stream, TlsStream>;
  static constexpr Duration kLinger = std::chrono::seconds(2);
  static constexpr size_t kMostLingerBytes = size_t{16} << 20;
  /// What one read brings at most, beside the head.
  static constexpr size_t kReadBytes = size_t{64} << 10;
  /// The router has a limit for each path; none is above this.
  static constexpr size_t kMostBodyBytes = size_t{16} << 20;

  auto& tcp() { return boost::beast::get_lowest_layer(stream_); }

  void End() { tcp().close(); }

  /// For another connection, while this one is of no use.
  void GiveWay() {
    if (waiting_) return End();
    (void)shared_->MakeRoom();
  }

  void NoteWaiting() {
    waiting_ = true;
    shared_->NoteWaiting(closer_, address_);
  }

  void Begin() {
    if constexpr (kTls) {
      tcp().expires_after(shared_->settings.handshake_limit);
      stream_.async_handshake([self = this->shared_from_this()](Code code, size_t) {
        if (!code) self->ReadHead(self->shared_->settings.head_limit);
      });
    } else {
      ReadHead(shared_->settings.head_limit);
    }
  }

  void ReadHead(Duration limit) {
    if (!waiting_) NoteWaiting();
    parser_.emplace();
    head_only_ = false;
    parser_->header_limit(static_cast<uint32_t>(shared_->settings.most_header_bytes));
    parser_->body_limit(kMostBodyBytes);
    tcp().expires_after(limit);
    boost::beast::http::async_read_header(
        stream_, buffer_, *parser_,
        [self = this->shared_from_this()](Code code, size_t) { self->OnHead(code); });
  }

  void OnHead(Code code) {
    using boost::beast::http::error;
    using boost::beast::http::field;
    waiting_ = false;
    shared_->NoteBusy(closer_);
    if (code == error::end_of_stream) return Close();
    if (code) return RefuseMalformed(code);
    const auto& head = parser_->get();
    head_only_ = head.method() == boost::beast::http::verb::head;
    const auto view = [](auto text) { return std::string_view(text.data(), text.size()); };
    auto match = shared_->router.Find({.method = view(head.method_string()),
                                       .target = view(head.target()),
                                       .authorization = view(head[field::authorization]),
                                       .host = view(head[field::host]),
                                       .origin = view(head[field::origin]),
                                       .fetch_site = view(head["Sec-Fetch-Site"]),
                                       .content_type = view(head[field::content_type]),
                                       .last_event_id = view(head["Last-Event-ID"]),
                                       .accept = view(head[field::accept]),
                                       .accept_encoding = view(head[field::accept_encoding]),
                                       .if_none_match = view(head[field::if_none_match]),
                                       .range = view(head[field::range]),
                                       .if_range = view(head[field::if_range]),
                                       .cookie = view(head[field::cookie]),
                                       .csrf = view(head["X-Imgd-Csrf"])});
    keep_alive_ = head.keep_alive();
    if (!match) {
      // What the caller may still be sending is not read.
      keep_alive_ = keep_alive_ && parser_->is_done();
      return Write(std::move(match.error()));
    }
    match_.emplace(std::move(*match));
    let_in_ = {match_->request.token, match_->request.session};
    session_left_ = match_->request.session_left;
    const auto length = parser_->content_length();
    if (length && *length > match_->route->most_body_bytes) return RefuseBody();
    parser_->body_limit(match_->route->most_body_bytes);
    if (parser_->is_done()) return Ask();
    if (boost::beast::iequals(head[field::expect], "100-continue")) return WriteContinue();
    ReadBody();
  }

  void WriteContinue() {
    continue_.emplace(boost::beast::http::status::continue_, 11);
    tcp().expires_after(shared_->settings.write_limit);
    boost::beast::http::async_write(stream_, *continue_,
                                    [self = this->shared_from_this()](Code code, size_t) {
                                      if (!code) self->ReadBody();
                                    });
  }

  void ReadBody() {
    tcp().expires_after(shared_->settings.body_limit);
    boost::beast::http::async_read(stream_, buffer_, *parser_,
                                   [self = this->shared_from_this()](Code code, size_t) {
                                     if (code) return self->RefuseMalformed(code);
                                     self->Ask();
                                   });
  }

  /// A fault of the network, or a time-out, is nobody's to be told.
  void RefuseMalformed(Code code) {
    using boost::beast::http::error;
    if (code.category() != boost::beast::http::make_error_code(error::end_of_stream).category()) return;
    if (code == error::partial_message) return;
    keep_alive_ = false;
    if (code == error::body_limit) return RefuseBody();
    if (code == error::header_limit || code == error::buffer_overflow) {
      return Write(ErrorResponse(431, "RESOURCE_EXHAUSTED", "the request's headers are too long"));
    }
    Write(ErrorResponse(400, "INVALID_ARGUMENT", "this is no HTTP/1.1 request"));
  }

  void RefuseBody() {
    keep_alive_ = false;
    const size_t most = match_ ? match_->route->most_body_bytes : kMostBodyBytes;
    Write(ErrorResponse(413, "RESOURCE_EXHAUSTED",
                        fmt::format("the request's body is too long: at most {} bytes are taken", most)));
  }

  void Ask() {
    if (!shared_->BeginRequest()) {
      return Write(ErrorResponse(503, "RESOURCE_EXHAUSTED", "too many requests wait already; try again"));
    }
    asked_ = true;
    Request request = std::move(match_->request);
    request.body = std::move(parser_->get().body());
    match_->route->handler(std::move(request), [self = this->shared_from_this()](Response response) {
      // From whatever thread it comes; after the server's end it goes nowhere.
      self->shared_->UnlessEnded([&] {
        boost::asio::post(self->stream_.get_executor(), [self, response = std::move(response)]() mutable {
          self->Give(std::move(response));
        });
      });
    });
  }

  /// It counts as under way until its answer is written, or can't be.
  void EndRequest() {
    if (std::exchange(asked_, false)) shared_->EndRequest();
  }

  void Give(Response response) {
    if (head_only_) return Write(std::move(response));
    if (response.source) return SendSource(std::move(response));
    if (!response.feed) return Write(std::move(response));
    if (parser_->get().version() < 11) {
      keep_alive_ = false;
      return Write(ErrorResponse(505, "INVALID_ARGUMENT", "an answer without an end needs HTTP/1.1"));
    }
    if (++shared_->listeners > shared_->settings.most_listeners) {
      --shared_->listeners;
      return Write(ErrorResponse(503, "RESOURCE_EXHAUSTED", "too many listen already; try again"));
    }
    --shared_->connections;
    listening_ = true;
    shared_->NoteListening(closer_);
    NoteCaller();
    if (!let_in_.session.empty()) EndWithSession();
    Listen(std::move(response));
  }

  void NoteCaller() {
    if (!let_in_.token.empty()) shared_->NoteCaller(closer_, let_in_);
  }

  /// A listener would outlive what it was let in by.
  void EndWithSession() {
    session_end_.emplace(stream_.get_executor());
    session_end_->expires_after(session_left_);
    session_end_->async_wait([weak = this->weak_from_this()](Code code) {
      const auto self = weak.lock();
      if (!code && self) self->End();
    });
  }

  /// The head; its body is what others send from then on. What the caller still says is of no interest, only
  /// that it goes.
  void Listen(Response response) {
    auto head = std::make_shared<std::string>(fmt::format(
        "HTTP/1.1 200 OK\r\nContent-Type: {}\r\nCache-Control: no-store\r\n", response.content_type));
    for (const auto& [name, value] : response.headers) *head += fmt::format("{}: {}\r\n", name, value);
    *head += "Transfer-Encoding: chunked\r\n\r\n";
    match_.reset();
    parser_.reset();
    buffer_ = {};
    tcp().expires_never();
    Linger(0);
    Queue(std::move(head), {});
    EndRequest();
    response.feed(this->shared_from_this());
  }

  /// The head, and then one piece after the other: none is read before the one before it is sent. It counts
  /// as answered from then on, so that the server's end does not wait for it.
  void SendSource(Response response) {
    if (++shared_->downloads > shared_->settings.most_downloads) {
      --shared_->downloads;
      return Write(ErrorResponse(503, "RESOURCE_EXHAUSTED", "too many files are sent already; try again"));
    }
    source_ = std::move(response.source);
    source_left_ = source_->bytes();
    NoteCaller();
    keep_alive_ = keep_alive_ && !shared_->stopping;
    match_.reset();
    SetHead(head_.emplace(), response);
    head_->content_length(source_left_);
    tcp().expires_after(shared_->settings.write_limit);
    boost::beast::http::async_write(stream_, *head_, [self = this->shared_from_this()](Code code, size_t) {
      self->EndRequest();
      if (code) return self->tcp().close();
      self->NextPiece();
    });
  }

  void NextPiece() {
    if (source_left_ == 0) return EndSource();
    source_->Next([self = this->shared_from_this()](Result<std::string> piece) {
      self->shared_->UnlessEnded([&] {
        boost::asio::post(self->stream_.get_executor(),
                          [self, piece = std::move(piece)]() mutable { self->SendPiece(std::move(piece)); });
      });
    });
  }

  void SendPiece(Result<std::string> piece) {
    if (!piece || piece->empty() || piece->size() > source_left_) return tcp().close();
    piece_ = std::move(*piece);
    tcp().expires_after(shared_->settings.write_limit);
    boost::asio::async_write(stream_, boost::asio::buffer(piece_),
                             [self = this->shared_from_this()](Code code, size_t) {
                               if (code) return self->tcp().close();
                               self->source_left_ -= self->piece_.size();
                               self->NextPiece();
                             });
  }

  void EndSource() {
    source_.reset();
    piece_ = {};
    --shared_->downloads;
    shared_->ForgetCaller(closer_);
    if (!keep_alive_) return Close();
    ReadHead(shared_->settings.idle_limit);
  }

  void Queue(Piece piece, std::function<void()> then) {
    if (!tcp().socket().is_open()) return;
    // A caller that is slower than what happens: it can come again and go on from where it was. How long one
    // piece is says nothing of that; `write_limit` is for it.
    if (queued_bytes_ > shared_->settings.most_unsent_bytes) return tcp().close();
    unsent_.emplace_back(std::move(piece), std::move(then));
    if (unsent_.size() == 1) return SendFirst();
    queued_bytes_ += unsent_.back().first->size();
  }

  void SendFirst() {
    tcp().expires_after(shared_->settings.write_limit);
    boost::asio::async_write(stream_, boost::asio::buffer(*unsent_.front().first),
                             [self = this->shared_from_this()](Code code, size_t) {
                               if (code) return self->tcp().close();
                               self->Sent();
                             });
  }

  void Sent() {
    const auto then = std::move(unsent_.front().second);
    unsent_.pop_front();
    if (!unsent_.empty()) {
      queued_bytes_ -= unsent_.front().first->size();
      SendFirst();
    }
    if (then) then();
  }

  template <typename Body>
  void SetHead(boost::beast::http::response<Body>& head, const Response& response) const {
    using boost::beast::http::field;
    head.version(11);
    head.result(static_cast<unsigned>(response.status));
    head.set(field::content_type, response.content_type);
    head.set(field::cache_control, "no-store");
    for (const auto& [name, value] : response.headers) head.set(name, value);
    head.keep_alive(keep_alive_);
  }

  void Write(Response response) {
    keep_alive_ = keep_alive_ && !shared_->stopping;
    match_.reset();
    tcp().expires_after(shared_->settings.write_limit);
    auto then = [self = this->shared_from_this()](Code code, size_t) { self->Written(code); };
    if (head_only_) {
      SetHead(head_.emplace(), response);
      // Of a body without an end nobody knows the length.
      if (!response.feed)
        head_->content_length(response.source ? response.source->bytes() : response.body.size());
      return boost::beast::http::async_write(stream_, *head_, std::move(then));
    }
    SetHead(response_.emplace(), response);
    response_->body() = std::move(response.body);
    response_->prepare_payload();
    boost::beast::http::async_write(stream_, *response_, std::move(then));
  }

  void Written(Code code) {
    EndRequest();
    if (code) return;
    if (!keep_alive_) return Close();
    ReadHead(shared_->settings.idle_limit);
  }

  /// Says that nothing more comes and then reads what the caller still sends, for a moment: a socket that is
  /// closed with bytes unread takes the answer back from those who have not read it yet.
  void Close() {
    Code ignored;
    tcp().socket().shutdown(boost::asio::ip::tcp::socket::shutdown_send, ignored);
    tcp().expires_after(kLinger);
    Linger(0);
  }

  void Linger(size_t bytes) {
    if (bytes > kMostLingerBytes) return tcp().close();
    tcp().async_read_some(boost::asio::buffer(rest_),
                          [self = this->shared_from_this(), bytes](Code code, size_t more) {
                            if (!code) return self->Linger(bytes + more);
                            if (self->listening_) self->tcp().close();
                          });
  }

  std::shared_ptr<Shared> shared_;  ///< goes last: the stream needs its io_context
  Stream stream_;
  boost::beast::flat_buffer buffer_{shared_->settings.most_header_bytes + kReadBytes};
  std::optional<Parser> parser_;
  std::optional<Router::Match> match_;
  std::optional<boost::beast::http::response<boost::beast::http::empty_body>> continue_;
  std::optional<boost::beast::http::response<boost::beast::http::string_body>> response_;
  std::optional<boost::beast::http::response<boost::beast::http::empty_body>>
      head_;  ///< without what follows it
  std::array<char, 4096> rest_{};
  bool keep_alive_ = false;
  bool head_only_ = false;  ///< HEAD is answered
  uint64_t closer_ = 0;
  bool asked_ = false;    ///< a handler has the request
  bool waiting_ = false;  ///< for a request
  boost::asio::ip::address address_;
  Shared::LetIn let_in_;  ///< of the last request
  Duration session_left_{};
  std::optional<boost::asio::steady_timer> session_end_;  ///< of a listener
  bool listening_ = false;
  std::deque<std::pair<Piece, std::function<void()>>> unsent_;  ///< the first one is being sent, others wait
  size_t queued_bytes_ = 0;
  std::shared_ptr<BodySource> source_;  ///< while its body is sent
  uint64_t source_left_ = 0;
  std::string piece_;  ///< of it, that is being sent
};

}  // namespace imgd::web
