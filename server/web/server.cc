#include "server/web/server.h"

#include <spdlog/spdlog.h>

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/strand.hpp>
#include <cerrno>
#include <future>
#include <optional>
#include <thread>
#include <vector>

#include "server/web/session.h"

namespace imgd::web {
namespace {

namespace asio = boost::asio;
namespace ssl = boost::asio::ssl;
using boost::system::error_code;
using tcp = asio::ip::tcp;

Error ListenError(const std::string& address, const error_code& code) {
  const std::string what = fmt::format("web.listen: cannot listen on {}", address);
  if (code == asio::error::address_in_use) {
    return {.code = ErrorCode::kAlreadyExists,
            .message = what + ": the port is in use by another program",
            .hint = "--web-listen HOST:PORT takes another, --web-listen '' none"};
  }
  // It may be one of an interface that comes up later.
  if (code == error_code(EADDRNOTAVAIL, boost::system::system_category()))
    return {.code = ErrorCode::kUnavailable, .message = what + ": it is no address of this machine"};
  const bool forbidden = code == asio::error::access_denied;
  return {.code = forbidden ? ErrorCode::kPermissionDenied : ErrorCode::kInvalidArgument,
          .message = fmt::format("{}: {}", what, code.message())};
}

/// Listens; port 0 takes a free one.
Result<tcp::acceptor> Listen(asio::io_context& context, const std::string& address) {
  const size_t colon = address.rfind(':');
  std::string host = address.substr(0, colon);
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  error_code code;
  tcp::resolver resolver(context);
  const auto found = resolver.resolve(host, address.substr(colon + 1), tcp::resolver::passive, code);
  if (code) return tl::unexpected(ListenError(address, code));
  tcp::acceptor acceptor(asio::make_strand(context));
  const tcp::endpoint endpoint = found.begin()->endpoint();
  const auto step = [&code](auto action) {
    if (!code) action();
  };
  step([&] { acceptor.open(endpoint.protocol(), code); });
  step([&] { acceptor.set_option(asio::socket_base::reuse_address(true), code); });
  step([&] { acceptor.bind(endpoint, code); });
  step([&] { acceptor.listen(asio::socket_base::max_listen_connections, code); });
  if (code) return tl::unexpected(ListenError(address, code));
  return acceptor;
}

Status UseCertificate(ssl::context& context, const WebSettings& settings) {
  const auto failed = [](const char* key, const std::string& file, const error_code& code) {
    return Fail(ErrorCode::kFailedPrecondition, "web.{}: {} can't be used: {}", key, file, code.message());
  };
  error_code code;
  SSL_CTX_set_min_proto_version(context.native_handle(), TLS1_2_VERSION);
  context.set_options(ssl::context::default_workarounds, code);
  context.use_certificate_chain_file(settings.certificate, code);
  if (code) return failed("certificate", settings.certificate, code);
  context.use_private_key_file(settings.key, ssl::context::pem, code);
  if (code) return failed("key", settings.key, code);
  return {};
}

Result<std::shared_ptr<ssl::context>> ContextOf(const WebSettings& settings) {
  auto context = std::make_shared<ssl::context>(ssl::context::tls_server);
  IMGD_TRY(UseCertificate(*context, settings));
  return context;
}

}  // namespace

struct WebServer::Parts {
  Parts(const WebSettings& settings, Router router)
      : shared(std::make_shared<Shared>(settings, std::move(router))) {}

  void Accept() {
    acceptor->async_accept(asio::make_strand(shared->context), [this](error_code code, tcp::socket socket) {
      if (shared->stopping || code == asio::error::operation_aborted) return;
      if (code) return AcceptLater(code);
      Serve(std::move(socket));
      Accept();
    });
  }

  /// Out of descriptors, most likely: at once it would be the same.
  void AcceptLater(const error_code& code) {
    spdlog::warn("msg=\"web: cannot accept a connection: {}\"", code.message());
    again.expires_after(std::chrono::milliseconds(200));
    again.async_wait([this](error_code ended) {
      if (ended) return;
      asio::post(acceptor->get_executor(), [this] {
        if (!shared->stopping) Accept();
      });
    });
  }

  void Serve(tcp::socket socket) {
    // Closed with the socket, where all of them do something.
    if (shared->connections >= shared->settings.most_connections && !shared->MakeRoom()) return;
    ++shared->connections;
    error_code ignored;
    socket.set_option(tcp::no_delay(true), ignored);
    if (tls) {
      std::make_shared<Session<TlsStream>>(shared, std::move(socket), *tls)->Start();
    } else {
      std::make_shared<Session<PlainStream>>(shared, std::move(socket))->Start();
    }
  }

  std::shared_ptr<Shared> shared;
  std::shared_ptr<ssl::context>
      tls;  ///< of the acceptor's strand; connections keep what they need of an old one
  std::optional<tcp::acceptor> acceptor;
  asio::steady_timer again{shared->context};
  /// Connections that wait for an answer have nothing under way that would keep the threads.
  asio::executor_work_guard<asio::io_context::executor_type> work{shared->context.get_executor()};
  std::vector<std::thread> threads;
  int port = 0;
};

WebServer::WebServer(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}
WebServer::~WebServer() { Stop(Duration::zero()); }

Result<std::unique_ptr<WebServer>> WebServer::Start(const WebSettings& settings, Router router) {
  auto parts = std::make_unique<Parts>(settings, std::move(router));
  if (!settings.certificate.empty()) {
    IMGD_ASSIGN(parts->tls, ContextOf(settings));
  }
  IMGD_ASSIGN(parts->acceptor, Listen(parts->shared->context, settings.listen));
  parts->port = parts->acceptor->local_endpoint().port();
  parts->Accept();
  for (int i = 0; i < settings.threads; ++i)
    parts->threads.emplace_back([&context = parts->shared->context] { context.run(); });
  return std::unique_ptr<WebServer>(new WebServer(std::move(parts)));
}

Status WebServer::CheckCertificate(const WebSettings& settings) {
  IMGD_TRY(ContextOf(settings));
  return {};
}

int WebServer::port() const { return parts_->port; }

void WebServer::ReloadCertificate() {
  auto context = ContextOf(parts_->shared->settings);
  if (!context) {
    spdlog::warn("msg=\"the old certificate stays: {}\"", context.error().message);
    return;
  }
  asio::post(parts_->acceptor->get_executor(),
             [parts = parts_.get(), fresh = std::move(*context)] { parts->tls = fresh; });
}

void WebServer::EndListenersOf(const IsTokenOver& is_over) {
  parts_->shared->EndListenersOf([&is_over](const Shared::LetIn& caller) { return is_over(caller.token); });
}

void WebServer::EndListenersOfSession(const std::string& session) {
  parts_->shared->EndListenersOf(
      [&session](const Shared::LetIn& caller) { return caller.session == session; });
}

void WebServer::Stop(Duration patience) {
  if (parts_->shared->stopping.exchange(true)) return;
  std::promise<void> closed;
  asio::post(parts_->acceptor->get_executor(), [parts = parts_.get(), &closed] {
    error_code ignored;
    parts->acceptor->close(ignored);
    parts->again.cancel();
    closed.set_value();
  });
  closed.get_future().get();  // no connection begins from here on
  parts_->shared->AwaitIdle(patience);
  parts_->shared->EndAll();
  parts_->work.reset();
  // Nothing of the connections is left in the queue then.
  for (auto& thread : parts_->threads) thread.join();
}

}  // namespace imgd::web
