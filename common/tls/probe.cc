#include "common/tls/probe.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "common/files.h"
#include "common/tls/openssl.h"
#include "common/tls/pem.h"

namespace imgd::tls {
namespace {

using ContextPtr = std::unique_ptr<SSL_CTX, FreeBy<SSL_CTX_free>>;
using SslPtr = std::unique_ptr<SSL, FreeBy<SSL_free>>;

std::string NameOfTarget(const ProbeTarget& target) {
  const bool v6 = target.host.find(':') != std::string::npos;
  return fmt::format(fmt::runtime(v6 ? "[{}]:{}" : "{}:{}"), target.host, target.port);
}

/// Waits until the socket can be read or written; false after `end`.
bool Await(int fd, short events, Instant end) {
  const auto left =
      std::chrono::duration_cast<std::chrono::milliseconds>(end - std::chrono::steady_clock::now()).count();
  pollfd wanted{.fd = fd, .events = events, .revents = 0};
  return left > 0 && ::poll(&wanted, 1, static_cast<int>(left)) > 0;
}

Result<UniqueFd> ConnectTo(const ProbeTarget& target, Instant end) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const std::string name = NameOfTarget(target);
  if (const int error = ::getaddrinfo(target.host.c_str(), target.port.c_str(), &hints, &found); error != 0)
    return Fail(ErrorCode::kUnavailable, "{}: its name is not known ({})", name, ::gai_strerror(error));
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(found, &::freeaddrinfo);
  int error = ETIMEDOUT;
  for (const addrinfo* entry = found; entry != nullptr; entry = entry->ai_next) {
    UniqueFd fd(::socket(entry->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!fd.valid()) continue;
    if (::connect(fd.get(), entry->ai_addr, entry->ai_addrlen) != 0 && errno != EINPROGRESS) {
      error = errno;
      continue;
    }
    if (!Await(fd.get(), POLLOUT, end)) continue;
    socklen_t size = sizeof error;
    if (::getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &size) == 0 && error == 0) return fd;
  }
  return Fail(ErrorCode::kUnavailable, "{}: {}", name, std::strerror(error));
}

/// A client's side of TLS whose bytes are moved by hand: no write raises SIGPIPE, and every wait has an end.
class Conversation {
 public:
  Conversation(const ProbeTarget& target, Instant end) : target_(target), end_(end) {}

  /// Errors: kUnavailable for the network; the handshake's own failures are in `verified` and `refused`.
  Status Begin(bool verify);
  /// A server that takes no such client says so after the handshake only (TLS 1.3): reads a first word.
  Status Listen();

  std::vector<std::string> Chain() const {
    std::vector<std::string> out;
    const STACK_OF(X509)* chain = SSL_get_peer_cert_chain(ssl_.get());
    for (int i = 0; chain != nullptr && i < sk_X509_num(chain); ++i)
      out.push_back(PemOf(sk_X509_value(chain, i)));
    return out;
  }
  /// Whether the server takes HTTP/2, which gRPC is.
  bool TakesHttp2() const {
    const unsigned char* name = nullptr;
    unsigned int length = 0;
    SSL_get0_alpn_selected(ssl_.get(), &name, &length);
    return length > 0;
  }
  long verified() const { return ssl_ ? SSL_get_verify_result(ssl_.get()) : X509_V_OK; }

 private:
  Status SetUp(bool verify);
  /// Sends what waits to be sent, and then takes in what has come. False at the end of the connection.
  bool Exchange(bool receive);
  /// Runs `step` until it succeeds or fails for good.
  template <typename Step>
  Status Repeat(Step step);

  const ProbeTarget& target_;
  Instant end_;
  UniqueFd fd_;
  ContextPtr context_;
  SslPtr ssl_;
};

Status Conversation::SetUp(bool verify) {
  context_.reset(SSL_CTX_new(TLS_client_method()));
  if (!context_) return Fail(ErrorCode::kInternal, "OpenSSL gives no TLS");
  SSL_CTX_set_min_proto_version(context_.get(), TLS1_2_VERSION);
  if (target_.ca.empty()) {
    SSL_CTX_set_default_verify_paths(context_.get());
  } else {
    for (const auto& text : Certificates(target_.ca))
      X509_STORE_add_cert(SSL_CTX_get_cert_store(context_.get()), ReadCertificate(text).get());
  }
  if (!target_.certificate.empty()) {
    SSL_CTX_use_certificate(context_.get(), ReadCertificate(target_.certificate).get());
    SSL_CTX_use_PrivateKey(context_.get(), ReadKey(target_.key).get());
  }
  constexpr std::array<unsigned char, 3> kHttp2 = {2, 'h', '2'};
  SSL_CTX_set_alpn_protos(context_.get(), kHttp2.data(), kHttp2.size());
  SSL_CTX_set_verify(context_.get(), verify ? SSL_VERIFY_PEER : SSL_VERIFY_NONE, nullptr);
  ssl_.reset(SSL_new(context_.get()));
  if (!ssl_) return Fail(ErrorCode::kInternal, "OpenSSL gives no TLS");
  in6_addr address{};
  const bool is_address = ::inet_pton(AF_INET, target_.host.c_str(), &address) == 1 ||
                          ::inet_pton(AF_INET6, target_.host.c_str(), &address) == 1;
  if (is_address) {
    X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl_.get()), target_.host.c_str());
  } else {
    SSL_set_tlsext_host_name(ssl_.get(), target_.host.c_str());
    SSL_set1_host(ssl_.get(), target_.host.c_str());
  }
  SSL_set_bio(ssl_.get(), BIO_new(BIO_s_mem()), BIO_new(BIO_s_mem()));
  SSL_set_connect_state(ssl_.get());
  return {};
}

bool Conversation::Exchange(bool receive) {
  std::array<char, 16 << 10> bytes{};
  while (BIO_pending(SSL_get_wbio(ssl_.get())) > 0) {
    const int have = BIO_read(SSL_get_wbio(ssl_.get()), bytes.data(), bytes.size());
    for (int sent = 0; sent < have;) {
      if (!Await(fd_.get(), POLLOUT, end_)) return false;
      const ssize_t n =
          ::send(fd_.get(), bytes.data() + sent, static_cast<size_t>(have - sent), MSG_NOSIGNAL);
      if (n <= 0) return false;
      sent += static_cast<int>(n);
    }
  }
  if (!receive) return true;
  if (!Await(fd_.get(), POLLIN, end_)) return false;
  const ssize_t n = ::recv(fd_.get(), bytes.data(), bytes.size(), 0);
  if (n <= 0) return false;
  BIO_write(SSL_get_rbio(ssl_.get()), bytes.data(), static_cast<int>(n));
  return true;
}

template <typename Step>
Status Conversation::Repeat(Step step) {
  while (true) {
    ERR_clear_error();
    const int result = step();
    const int why = SSL_get_error(ssl_.get(), result);
    const unsigned long error = ERR_peek_error();
    const bool more = result <= 0 && why == SSL_ERROR_WANT_READ;
    const bool alive = Exchange(more);  // an alert of ours goes out too
    if (result > 0) return {};
    if (!more) {
      const char* reason = ERR_reason_error_string(error);
      ERR_clear_error();
      if (reason != nullptr) return Fail(ErrorCode::kFailedPrecondition, "{}", reason);
    }
    if (!more || !alive)
      return Fail(ErrorCode::kUnavailable, "{} ended the connection", NameOfTarget(target_));
  }
}

Status Conversation::Begin(bool verify) {
  IMGD_TRY(SetUp(verify));
  IMGD_ASSIGN(fd_, ConnectTo(target_, end_));
  return Repeat([this] { return SSL_do_handshake(ssl_.get()); });
}

Status Conversation::Listen() {
  std::array<char, 1> first{};
  return Repeat([this, &first] { return SSL_read(ssl_.get(), first.data(), first.size()); });
}

/// OpenSSL's words for a server that speaks something else.
bool SoundsPlain(const std::string& reason) {
  return reason == "wrong version number" || reason == "packet length too long" || reason == "http request";
}

constexpr std::string_view kWhichPort =
    "the port for gRPC (listen in imgd.yaml, usually 7650) is wanted, not the dashboard's (web.listen, "
    "usually 7651)";

Error NoGrpc(const ProbeTarget& target) {
  return {.code = ErrorCode::kFailedPrecondition,
          .message = fmt::format("what answers on {} speaks TLS, but not gRPC", NameOfTarget(target)),
          .hint = std::string(kWhichPort)};
}

/// Of a handshake that failed for another reason than the server's certificate.
Error NoTls(const ProbeTarget& target, const Error& error) {
  const std::string name = NameOfTarget(target);
  if (SoundsPlain(error.message)) {
    return {.code = ErrorCode::kFailedPrecondition,
            .message = fmt::format("{} does not speak TLS ({})", name, error.message),
            .hint = fmt::format("is TLS on there? http://HOST:PORT means plain text; {}", kWhichPort)};
  }
  if (error.code == ErrorCode::kUnavailable) return error;
  return {.code = ErrorCode::kFailedPrecondition,
          .message = fmt::format("TLS with {} fails: {}", name, error.message)};
}

Error RefusedCertificate(const Conversation& conversation, const ProbeTarget& target, const Clock& clock) {
  const std::string name = NameOfTarget(target);
  const std::vector<std::string> chain = conversation.Chain();
  const auto facts = chain.empty() ? Result<CertificateFacts>() : FactsOf(chain.front());
  const long why = conversation.verified();
  Error error{.code = ErrorCode::kPermissionDenied};
  if (facts && (why == X509_V_ERR_CERT_NOT_YET_VALID || why == X509_V_ERR_CERT_HAS_EXPIRED)) {
    error.message =
        fmt::format("the certificate of {} is good from {} to {}, and by this machine's clock it is {}", name,
                    DateOf(facts->not_before), DateOf(facts->not_after), DateOf(clock.Wall()));
    error.hint = "one of the two clocks is wrong, or imgd could not renew it (its log says why)";
  } else if (facts && (why == X509_V_ERR_HOSTNAME_MISMATCH || why == X509_V_ERR_IP_ADDRESS_MISMATCH)) {
    std::string names;
    for (const auto& each : facts->names) names += (names.empty() ? "" : ", ") + each;
    error.message = fmt::format("the certificate of {} is for other names: {}", name, names);
    error.hint = fmt::format("use one of these, or add {} to tls.names in imgd.yaml", target.host);
  } else {
    error.message = fmt::format("the certificate of {} was not signed by the CA that is trusted here: {}",
                                name, X509_verify_cert_error_string(why));
    error.hint = "if imgd's CA was made anew, log in or join again (docs/operations.md, Who may talk)";
  }
  return error;
}

}  // namespace

ProbeTarget TargetOf(const std::string& address) {
  const size_t colon = address.rfind(':');
  std::string host = address.substr(0, colon);
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  return {.host = std::move(host), .port = address.substr(colon + 1)};
}

Result<std::vector<std::string>> FetchChain(const ProbeTarget& target) {
  Conversation conversation(target, std::chrono::steady_clock::now() + target.timeout);
  if (const auto begun = conversation.Begin(false); !begun)
    return tl::unexpected(NoTls(target, begun.error()));
  return conversation.Chain();
}

Result<std::string> FindPinned(const std::vector<std::string>& chain, const std::string& sha256,
                               const std::string& server) {
  std::string last = "no certificate";
  for (size_t i = 0; i < chain.size(); ++i) {
    IMGD_ASSIGN(const auto facts, FactsOf(chain[i]));
    last = facts.sha256;
    if (facts.sha256 == sha256 && LeadsTo(chain, i)) return chain[i];
  }
  return tl::unexpected(
      Error{.code = ErrorCode::kPermissionDenied,
            .message = fmt::format("{} is another imgd than expected: its CA has the SHA-256 {}, not {}; "
                                   "nothing was sent to it",
                                   server, last, sha256),
            .hint = "the address is wrong, imgd's CA was made anew, or somebody listens in between"});
}

std::optional<Error> WhyNoTls(const ProbeTarget& target, const Clock& clock) {
  Conversation conversation(target, std::chrono::steady_clock::now() + target.timeout);
  const auto begun = conversation.Begin(true);
  if (begun) {
    if (!conversation.TakesHttp2()) return NoGrpc(target);
    if (conversation.Listen()) return std::nullopt;
    if (target.certificate.empty()) return std::nullopt;
    return Error{.code = ErrorCode::kPermissionDenied,
                 .message = fmt::format("{} does not take this machine's certificate", NameOfTarget(target)),
                 .hint = "it has expired by imgd's clock, or imgd has another CA by now"};
  }
  if (conversation.verified() != X509_V_OK) return RefusedCertificate(conversation, target, clock);
  return NoTls(target, begun.error());
}

}  // namespace imgd::tls
