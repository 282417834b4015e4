#include "common/remote/http_client.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <condition_variable>
#include <mutex>

#include "common/remote/curl.h"

namespace imgd {
namespace {

using Clock = std::chrono::steady_clock;
using Kind = HttpTrouble::Kind;

constexpr size_t kMostHeaderBytes = 64 << 10;
constexpr size_t kMostExcerptBytes = 4 << 10;
constexpr int kMostRedirects = 5;
constexpr Milliseconds kMostWait{5'000};
constexpr Milliseconds kPollInterval{100};
/// Fewer in the time of a stall are as good as none.
constexpr size_t kLeastBytes = 1 << 10;

/// A handle with the connections that it keeps.
struct Connection {
  explicit Connection(const Curl& functions)
      : curl(functions), multi(curl.multi_init()), easy(curl.easy_init()) {}
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;
  ~Connection() {
    if (easy != nullptr) curl.easy_cleanup(easy);
    if (multi != nullptr) curl.multi_cleanup(multi);
  }
  const Curl& curl;
  CURLM* multi;
  CURL* easy;
};

/// One request while it is under way; curl's callbacks come back to it.
struct Exchange {
  const HttpBody& body;
  std::string_view to_send = {};
  size_t sent_bytes = 0;
  HttpAnswer answer = {};
  size_t header_bytes = 0;
  bool begun = false;   ///< `body.begin` was asked
  bool wanted = false;  ///< what it said
  std::optional<Error> refusal;
  Clock::time_point began = Clock::now();
  Clock::time_point last_byte = began;
  std::optional<Clock::time_point> counted_since;  ///< nothing before the first byte
  size_t counted_bytes = 0;

  Status Begin() {
    if (begun) return {};
    begun = true;
    IMGD_ASSIGN(wanted, body.begin(answer));
    return {};
  }
  bool Refuse(Error error) {
    refusal = std::move(error);
    return false;
  }
  size_t OnRead(std::span<char> room);
  bool OnHeader(std::string_view line);
  bool OnBody(std::span<const uint8_t> bytes);
  void Count(size_t bytes) {
    last_byte = Clock::now();
    if (!counted_since) counted_since = last_byte;
    counted_bytes += bytes;
  }
  std::optional<std::string> Stalled(const HttpOptions& options);
};

/// Why the try has failed, if it has: a server that sends a byte now and then would hold it for ever.
std::optional<std::string> Exchange::Stalled(const HttpOptions& options) {
  const auto now = Clock::now();
  const Milliseconds most = options.stall;
  if (options.whole.count() > 0 && now - began > options.whole)
    return fmt::format("it took longer than {} ms", options.whole.count());
  if (now - last_byte > most) return fmt::format("no answer for {} ms", most.count());
  if (!counted_since || now - *counted_since <= most) return std::nullopt;
  if (counted_bytes < kLeastBytes)
    return fmt::format("only {} bytes came in {} ms", counted_bytes, most.count());
  counted_since = now;
  counted_bytes = 0;
  return std::nullopt;
}

/// The next bytes of what is sent.
size_t Exchange::OnRead(std::span<char> room) {
  const auto piece = to_send.substr(sent_bytes, room.size());
  std::ranges::copy(piece, room.begin());
  sent_bytes += piece.size();
  Count(piece.size());
  return piece.size();
}

bool Exchange::OnHeader(std::string_view line) {
  Count(line.size());
  header_bytes += line.size();
  if (header_bytes > kMostHeaderBytes)
    return Refuse({.code = ErrorCode::kDataLoss, .message = "the answer's headers have no end"});
  TakeHeaderLine(line, answer);
  return true;
}

bool Exchange::OnBody(std::span<const uint8_t> bytes) {
  Count(bytes.size());
  Status status = Begin();
  if (status && wanted) status = body.take(bytes);
  if (!status) return Refuse(status.error());
  if (wanted) return true;
  const size_t room = kMostExcerptBytes - answer.excerpt.size();
  answer.excerpt.append(reinterpret_cast<const char*>(bytes.data()), std::min(room, bytes.size()));
  return bytes.size() < room;  // enough of it: the connection is closed
}

size_t HeaderCallback(char* data, size_t, size_t size, void* exchange) {
  return static_cast<Exchange*>(exchange)->OnHeader({data, size}) ? size : 0;
}

size_t BodyCallback(char* data, size_t, size_t size, void* user) {
  const std::span bytes(reinterpret_cast<const uint8_t*>(data), size);
  return static_cast<Exchange*>(user)->OnBody(bytes) ? size : 0;
}

size_t ReadCallback(char* data, size_t, size_t size, void* exchange) {
  return static_cast<Exchange*>(exchange)->OnRead({data, size});
}

/// A connection that was kept had been closed meanwhile: the body goes out again.
int SeekCallback(void* user, curl_off_t offset, int origin) {
  auto& exchange = *static_cast<Exchange*>(user);
  if (origin != SEEK_SET || offset < 0 || static_cast<size_t>(offset) > exchange.to_send.size())
    return CURL_SEEKFUNC_FAIL;
  exchange.sent_bytes = static_cast<size_t>(offset);
  return CURL_SEEKFUNC_OK;
}

HttpTrouble TroubleOf(const Curl& curl, CURLcode code, const char* words) {
  Error error{.code = ErrorCode::kUnavailable, .message = *words != 0 ? words : curl.easy_strerror(code)};
  switch (code) {
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_RESOLVE_PROXY:
    case CURLE_COULDNT_CONNECT:
    case CURLE_OPERATION_TIMEDOUT:  // only connecting is timed by curl
    case CURLE_SSL_CONNECT_ERROR:   // such as https to a server that speaks http
      return {error, Kind::kUnreachable};
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CACERT_BADFILE:
      error.hint =
          "AWS_CA_BUNDLE, CURL_CA_BUNDLE or SSL_CERT_FILE may name a file with the certificates to trust";
      [[fallthrough]];
    case CURLE_URL_MALFORMAT:
      error.code = ErrorCode::kFailedPrecondition;
      return {error, Kind::kFinal};
    case CURLE_OUT_OF_MEMORY:
      error.code = ErrorCode::kResourceExhausted;
      return {error, Kind::kFinal};
    default:
      return {error, Kind::kRetry};
  }
}

/// curl's list of header lines.
class HeaderList {
 public:
  HeaderList(const Curl& curl, const HttpHeaders& headers) : curl_(curl) {
    for (const auto& [name, value] : headers)
      list_ = curl_.slist_append(list_, fmt::format("{}: {}", name, value).c_str());
    list_ = curl_.slist_append(list_, "Expect:");  // no "100-continue", which is waited for
  }
  HeaderList(const HeaderList&) = delete;
  HeaderList& operator=(const HeaderList&) = delete;
  ~HeaderList() { curl_.slist_free_all(list_); }
  curl_slist* get() const { return list_; }

 private:
  const Curl& curl_;
  curl_slist* list_ = nullptr;
};

void Prepare(const Connection& connection, const HttpRequest& request, const HttpOptions& options,
             const HeaderList& headers, char* words, Exchange& exchange) {
  connection.curl.easy_reset(connection.easy);
  const auto set = [&connection](CURLoption option, auto value) {
    connection.curl.easy_setopt(connection.easy, option, value);
  };
  set(CURLOPT_URL, request.url.ToString().c_str());
  set(CURLOPT_PATH_AS_IS, 1L);
  set(CURLOPT_PROTOCOLS_STR, "http,https");
  set(CURLOPT_HTTP_VERSION, static_cast<long>(CURL_HTTP_VERSION_1_1));
  set(CURLOPT_SUPPRESS_CONNECT_HEADERS, 1L);
  set(CURLOPT_NOSIGNAL, 1L);
  set(CURLOPT_NOPROGRESS, 1L);
  set(CURLOPT_USERAGENT, "imgd");
  set(CURLOPT_CONNECTTIMEOUT_MS, static_cast<long>(options.connect.count()));
  set(CURLOPT_BUFFERSIZE, 256L << 10);
  set(CURLOPT_TCP_KEEPALIVE, 1L);
#if LIBCURL_VERSION_NUM >= 0x075700
  set(CURLOPT_QUICK_EXIT, 1L);  // a request that is broken off waits for no name server
#endif
  set(CURLOPT_ERRORBUFFER, words);
  set(CURLOPT_HTTPHEADER, headers.get());
  set(CURLOPT_HEADERFUNCTION, HeaderCallback);
  set(CURLOPT_HEADERDATA, &exchange);
  set(CURLOPT_WRITEFUNCTION, BodyCallback);
  set(CURLOPT_WRITEDATA, &exchange);
  if (options.direct) set(CURLOPT_PROXY, "");
  if (!options.ca_file.empty()) set(CURLOPT_CAINFO, options.ca_file.c_str());
  if (request.method == "HEAD") set(CURLOPT_NOBODY, 1L);
  if (request.method != "GET" && request.method != "HEAD") set(CURLOPT_CUSTOMREQUEST, request.method.c_str());
  if (request.method != "PUT" && request.method != "POST") return;
  set(CURLOPT_UPLOAD, 1L);
  set(CURLOPT_INFILESIZE_LARGE, static_cast<curl_off_t>(request.body.size()));
  set(CURLOPT_READFUNCTION, ReadCallback);
  set(CURLOPT_READDATA, &exchange);
  set(CURLOPT_SEEKFUNCTION, SeekCallback);
  set(CURLOPT_SEEKDATA, &exchange);
}

/// Until the transfer is over, in one way or the other.
std::optional<HttpTrouble> Drive(Connection& connection, const HttpRequest& request,
                                 const HttpOptions& options, Exchange& exchange, CURLcode& code) {
  const Curl& curl = connection.curl;
  const std::stop_callback wake(request.stop,
                                [&connection] { connection.curl.multi_wakeup(connection.multi); });
  for (;;) {
    int running = 0;
    const CURLMcode performed = curl.multi_perform(connection.multi, &running);
    if (performed != CURLM_OK) {
      return HttpTrouble{{.code = ErrorCode::kInternal, .message = curl.multi_strerror(performed)},
                         Kind::kRetry};
    }
    int left = 0;
    while (const CURLMsg* message = curl.multi_info_read(connection.multi, &left)) {
      if (message->msg != CURLMSG_DONE) continue;
      code = message->data.result;
      return std::nullopt;
    }
    if (request.stop.stop_requested())
      return HttpTrouble{{.code = ErrorCode::kCancelled, .message = "stopped"}, Kind::kFinal};
    if (auto why = exchange.Stalled(options))
      return HttpTrouble{{.code = ErrorCode::kUnavailable, .message = std::move(*why)}, Kind::kRetry};
    const auto interval = std::min(kPollInterval, options.stall);
    curl.multi_poll(connection.multi, nullptr, 0, static_cast<int>(interval.count()), nullptr);
  }
}

bool IsRedirect(int status) {
  return status == 301 || status == 302 || status == 303 || status == 307 || status == 308;
}

HttpTrouble Final(ErrorCode code, std::string message) {
  return {{.code = code, .message = std::move(message)}, Kind::kFinal};
}

}  // namespace

void TakeHeaderLine(std::string_view line, HttpAnswer& answer) {
  if (line.starts_with("HTTP/")) {
    answer.headers.clear();
    const size_t space = line.find(' ');
    if (space != std::string_view::npos)
      std::from_chars(line.data() + space + 1, line.data() + line.size(), answer.status);
    return;
  }
  const size_t colon = line.find(':');
  if (colon == std::string_view::npos) return;
  std::string name(line.substr(0, colon));
  std::ranges::transform(name, name.begin(), [](unsigned char c) { return std::tolower(c); });
  const std::string_view rest = line.substr(colon + 1);
  const size_t first = rest.find_first_not_of(" \t\r\n");
  const size_t last = rest.find_last_not_of(" \t\r\n");
  std::string value;
  if (first != std::string_view::npos) value = rest.substr(first, last - first + 1);
  answer.headers.emplace_back(std::move(name), std::move(value));
}

std::string HttpAnswer::header(std::string_view name) const {
  for (const auto& [known, value] : headers) {
    if (known == name) return value;
  }
  return "";
}

/// Connections that nobody uses at the moment; the last one given back is taken first, so that few are kept
/// busy.
class HttpClient::Pool {
 public:
  std::unique_ptr<Connection> Take(const Curl& curl) {
    {
      const std::lock_guard lock(mutex_);
      if (!idle_.empty()) {
        auto connection = std::move(idle_.back());
        idle_.pop_back();
        return connection;
      }
    }
    auto connection = std::make_unique<Connection>(curl);
    return connection->multi != nullptr && connection->easy != nullptr ? std::move(connection) : nullptr;
  }
  void GiveBack(std::unique_ptr<Connection> connection) {
    const std::lock_guard lock(mutex_);
    if (idle_.size() < 64) idle_.push_back(std::move(connection));
  }

 private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<Connection>> idle_;  ///< guarded by mutex_
};

HttpClient::HttpClient(HttpOptions options) : options_(std::move(options)), pool_(std::make_unique<Pool>()) {}
HttpClient::~HttpClient() = default;

tl::expected<HttpAnswer, HttpTrouble> HttpClient::Try(HttpRequest request, const HttpBody& body) const {
  const Result<Curl>& curl = LoadCurl();
  if (!curl) return tl::unexpected(HttpTrouble{curl.error(), Kind::kFinal});
  for (int hop = 0;; ++hop) {
    auto connection = pool_->Take(*curl);
    if (!connection)
      return tl::unexpected(Final(ErrorCode::kResourceExhausted, "no memory for a connection"));
    const HttpBody watched = {.begin = [&](const HttpAnswer& answer) -> Result<bool> {
                                if (request.follow && IsRedirect(answer.status)) return false;
                                return body.begin(answer);
                              },
                              .take = body.take};
    Exchange exchange{.body = watched, .to_send = request.body};
    char words[CURL_ERROR_SIZE] = "";
    const HeaderList headers(*curl, request.headers);
    Prepare(*connection, request, options_, headers, words, exchange);
    curl->multi_add_handle(connection->multi, connection->easy);
    CURLcode code = CURLE_OK;
    const auto trouble = Drive(*connection, request, options_, exchange, code);
    curl->multi_remove_handle(connection->multi, connection->easy);
    if (trouble) return tl::unexpected(*trouble);  // the connection is closed with its handle
    pool_->GiveBack(std::move(connection));
    if (exchange.refusal) return tl::unexpected(HttpTrouble{*exchange.refusal, Kind::kFinal});
    const bool cut_short = code == CURLE_WRITE_ERROR && exchange.begun && !exchange.wanted;
    if (code != CURLE_OK && !cut_short) return tl::unexpected(TroubleOf(*curl, code, words));
    if (auto begun = exchange.Begin(); !begun)  // no body came
      return tl::unexpected(HttpTrouble{begun.error(), Kind::kFinal});
    const std::string location = exchange.answer.header("location");
    if (!request.follow || !IsRedirect(exchange.answer.status) || location.empty())
      return std::move(exchange.answer);
    if (hop == kMostRedirects)
      return tl::unexpected(Final(ErrorCode::kUnavailable, "more than five redirects, one after the other"));
    const auto next = Resolve(request.url, location);
    if (!next || next->scheme == "s3" || (request.url.scheme == "https" && next->scheme == "http"))
      return tl::unexpected(Final(ErrorCode::kUnavailable,
                                  "a redirect to where none may lead (http, https; not from "
                                  "https to http)"));
    if (next->Origin() != request.url.Origin())
      std::erase_if(request.headers, [](const auto& header) { return header.first == "authorization"; });
    request.url = *next;
  }
}

void Patience::Progress() {
  known_ = true;
  tries_ = 0;
  since_.reset();
  wait_ = options_.first_wait;
}

std::optional<Error> Patience::Again(const HttpTrouble& trouble, const std::stop_token& stop) {
  Error error = trouble.error;
  if (trouble.kind == Kind::kFinal) {
    if (error.code != ErrorCode::kCancelled) error.message = fmt::format("{}: {}", name_, error.message);
    return error;
  }
  const auto now = Clock::now();
  if (!since_) since_ = now;
  ++tries_;
  const bool unreachable = trouble.kind == Kind::kUnreachable && !known_;
  if (!unreachable) known_ = true;
  const auto left = (unreachable ? options_.first_patience : options_.patience) - (now - *since_);
  if (left <= Milliseconds(0)) {
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(now - *since_).count();
    error.message = fmt::format("cannot {} {}, after {} tries in {} s: {}", unreachable ? "reach" : verb_,
                                name_, tries_, seconds, error.message);
    return error;
  }
  if (!told_ && now - *since_ >= options_.quiet && options_.notice) {
    told_ = true;
    options_.notice(fmt::format("cannot reach {}, trying again: {}", name_, error.message));
  }
  const auto until =
      now + std::min<Clock::duration>(left, std::max(wait_, std::min<Milliseconds>(trouble.wait, kMostWait)));
  std::mutex mutex;
  std::unique_lock lock(mutex);
  std::condition_variable_any never;
  never.wait_until(lock, stop, until, [] { return false; });
  if (stop.stop_requested()) return Error{.code = ErrorCode::kCancelled, .message = "stopped"};
  wait_ = std::min(wait_ * 2, kMostWait);
  return std::nullopt;
}

}  // namespace imgd
