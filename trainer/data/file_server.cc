#include "trainer/data/file_server.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <map>
#include <thread>
#include <vector>

#include "common/url.h"
#include "trainer/data/http_request.h"
#include "trainer/data/served_file.h"

namespace imgd::data {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kMostHeadBytes = 16 << 10;
constexpr uint64_t kFilesBeside = 64;  ///< that the process may have open beside the connections'

/// What is common to all connections.
struct Site {
  UniqueFd root;
  std::atomic<int> connections = 0;
  std::atomic<uint64_t> requests = 0;
  std::atomic<uint64_t> bytes = 0;
};

std::string_view Reason(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 206:
      return "Partial Content";
    case 301:
      return "Moved Permanently";
    case 304:
      return "Not Modified";
    case 400:
      return "Bad Request";
    case 403:
      return "Forbidden";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 412:
      return "Precondition Failed";
    case 416:
      return "Range Not Satisfiable";
    case 503:
      return "Service Unavailable";
    default:
      return "Error";
  }
}

/// One client: reads a request, sends its answer, and so on. Of one thread.
class Conversation {
 public:
  Conversation(Site& site, UniqueFd fd) : site_(site), fd_(std::move(fd)) { ++site_.connections; }
  ~Conversation() { --site_.connections; }
  Conversation(const Conversation&) = delete;
  Conversation& operator=(const Conversation&) = delete;

  int fd() const { return fd_.get(); }
  Clock::time_point last_move() const { return last_move_; }
  bool sending() const { return !out_.empty() || left_ > 0; }

  /// Goes on as far as it can without waiting. False: it is over.
  bool Go() {
    for (;;) {
      if (sending()) {
        const int sent = Send();
        if (sent <= 0) return sent == 0;
        if (!keep_alive_) return false;
      }
      const size_t end = in_.find("\r\n\r\n");
      if (end != std::string::npos) {
        Answer(std::string_view(in_).substr(0, end + 4));
        in_.erase(0, end + 4);
        continue;
      }
      if (in_.size() > kMostHeadBytes) {
        Refuse(400, "the request's head is too long");
        keep_alive_ = false;
        in_.clear();
        continue;
      }
      char buffer[4096];
      const ssize_t n = ::recv(fd(), buffer, sizeof buffer, 0);
      if (n < 0) return errno == EAGAIN || errno == EINTR;
      if (n == 0) return false;
      in_.append(buffer, static_cast<size_t>(n));
      last_move_ = Clock::now();
    }
  }

 private:
  /// 1: all is sent; 0: the client must take some first; -1: it is gone.
  int Send();
  void Answer(std::string_view text);
  void AnswerFile(const RequestHead& head);
  void AnswerFolder(const RequestHead& head);
  void Refuse(int status, std::string_view why) {
    Begin(status, fmt::format("content-type: text/plain\r\ncontent-length: {}\r\n", why.size() + 1));
    out_ += why;
    out_ += '\n';
  }
  void RefuseFile(ErrorCode why) {
    if (why == ErrorCode::kPermissionDenied) return Refuse(403, "no permission");
    if (why == ErrorCode::kNotFound) return Refuse(404, "no such file");
    Refuse(503, "the server can't open the file just now");
  }
  void Begin(int status, std::string_view headers) {
    left_ = 0;
    out_ = fmt::format("HTTP/1.1 {} {}\r\n{}{}\r\n", status, Reason(status), headers,
                       keep_alive_ ? "" : "connection: close\r\n");
    out_sent_ = 0;
  }

  Site& site_;
  UniqueFd fd_;
  std::string in_;
  std::string out_;  ///< head, and a short body
  size_t out_sent_ = 0;
  std::string path_;  ///< of file_
  ServedFile file_;   ///< the last one, which is likely to be asked for again
  Clock::time_point opened_{};
  off_t at_ = 0;
  uint64_t left_ = 0;  ///< of the file's range
  bool keep_alive_ = true;
  Clock::time_point last_move_ = Clock::now();
};

int Conversation::Send() {
  while (out_sent_ < out_.size()) {
    const int more = left_ > 0 ? MSG_MORE : 0;
    const ssize_t n = ::send(fd(), out_.data() + out_sent_, out_.size() - out_sent_, MSG_NOSIGNAL | more);
    if (n < 0) return errno == EAGAIN || errno == EINTR ? 0 : -1;
    out_sent_ += static_cast<size_t>(n);
    last_move_ = Clock::now();
  }
  out_.clear();
  out_sent_ = 0;
  while (left_ > 0) {
    const ssize_t n =
        ::sendfile(fd(), file_.fd.get(), &at_, static_cast<size_t>(std::min<uint64_t>(left_, 1 << 20)));
    if (n < 0) return errno == EAGAIN || errno == EINTR ? 0 : -1;
    if (n == 0) return -1;  // the file has become shorter than was said
    left_ -= static_cast<uint64_t>(n);
    site_.bytes += static_cast<uint64_t>(n);
    last_move_ = Clock::now();
  }
  return 1;
}

void Conversation::Answer(std::string_view text) {
  ++site_.requests;
  const auto head = ParseRequestHead(text);
  keep_alive_ = head && head->keep_alive && !head->has_body;
  if (!head) return Refuse(400, "this is no HTTP/1.1 request");
  const bool no_body = head->method == "HEAD";
  if (!no_body && head->method != "GET") return Refuse(405, "only GET and HEAD");
  if (!IsServedPath(head->path)) return Refuse(404, "no such file");
  // The last one is taken to be what it was for a second.
  if (path_ != head->path || Clock::now() - opened_ > std::chrono::seconds(1)) {
    path_.clear();
    auto opened = OpenBelow(site_.root.get(), head->path);
    if (!opened) {
      RefuseFile(opened.error().code);
    } else {
      file_ = std::move(*opened);
      path_ = head->path;
      opened_ = Clock::now();
    }
  }
  if (!path_.empty()) {
    if (file_.is_folder) {
      AnswerFolder(*head);
      path_.clear();
    } else {
      AnswerFile(*head);
    }
  }
  if (!no_body) return;
  out_.resize(out_.find("\r\n\r\n") + 4);
  left_ = 0;
}

void Conversation::AnswerFolder(const RequestHead& head) {
  if (!head.path.ends_with('/')) {
    const std::string name = head.path.substr(head.path.rfind('/') + 1);
    return Begin(301, fmt::format("location: ./{}/\r\ncontent-length: 0\r\n", PercentEncode(name)));
  }
  const bool html = head.header("accept").find("text/html") != std::string_view::npos;
  const std::string body = html ? ListingHtml(file_, head.path) : ListingJson(file_);
  Begin(200, fmt::format("content-type: {}\r\ncontent-length: {}\r\n",
                         html ? "text/html" : "application/json", body.size()));
  out_ += body;
}

void Conversation::AnswerFile(const RequestHead& head) {
  const std::string about = fmt::format("etag: {}\r\nlast-modified: {}\r\naccept-ranges: bytes\r\n",
                                        file_.etag, HttpTime(file_.changed));
  const auto lists = [&](std::string_view header) {
    return header == "*" || header.find(file_.etag) != std::string_view::npos;
  };
  if (const auto match = head.header("if-match"); !match.empty() && !lists(match))
    return Begin(412, about + "content-length: 0\r\n");
  if (const auto none = head.header("if-none-match"); !none.empty() && lists(none)) return Begin(304, about);
  const auto if_range = head.header("if-range");
  const bool ranged = if_range.empty() || if_range == file_.etag || if_range == HttpTime(file_.changed);
  const AskedRange range = ParseRange(ranged ? head.header("range") : "", file_.size);
  if (range.kind == AskedRange::Kind::kNone)
    return Begin(416, fmt::format("{}content-range: bytes */{}\r\ncontent-length: 0\r\n", about, file_.size));
  const bool part = range.kind == AskedRange::Kind::kPart;
  const std::string place = !part ? ""
                                  : fmt::format("content-range: bytes {}-{}/{}\r\n", range.first,
                                                range.first + range.size - 1, file_.size);
  Begin(part ? 206 : 200, fmt::format("{}{}content-type: application/octet-stream\r\ncontent-length: {}\r\n",
                                      about, place, range.size));
  at_ = static_cast<off_t>(range.first);
  left_ = range.size;
}

/// A loop over the connections that its thread took.
class Worker {
 public:
  Worker(Site& site, int listener, int stop, const FileServerOptions& options)
      : site_(site),
        listener_(listener),
        stop_(stop),
        options_(options),
        epoll_(::epoll_create1(EPOLL_CLOEXEC)) {
    Watch(listener_, EPOLLIN | EPOLLEXCLUSIVE, EPOLL_CTL_ADD);
    Watch(stop_, EPOLLIN, EPOLL_CTL_ADD);
  }

  void Run() {
    epoll_event events[64];
    auto swept = Clock::now();
    for (;;) {
      const int count = ::epoll_wait(epoll_.get(), events, 64, 1000);
      for (int i = 0; i < count; ++i) {
        const int fd = events[i].data.fd;
        if (fd == stop_) return;
        if (fd == listener_) {
          Accept();
        } else {
          Serve(fd);
        }
      }
      if (Clock::now() - swept > std::chrono::seconds(1)) {
        swept = Clock::now();
        const auto oldest = swept - std::chrono::seconds(options_.idle_seconds);
        std::erase_if(open_, [&](const auto& one) { return one.second->last_move() < oldest; });
      }
    }
  }

 private:
  void Watch(int fd, uint32_t what, int how) {
    epoll_event event{};
    event.events = what;
    event.data.fd = fd;
    ::epoll_ctl(epoll_.get(), how, fd, &event);
  }

  void Accept() {
    UniqueFd fd(::accept4(listener_, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!fd.valid()) return;
    if (site_.connections >= options_.most_connections) {
      constexpr std::string_view kFull =
          "HTTP/1.1 503 Service Unavailable\r\nretry-after: 1\r\ncontent-length: 0\r\nconnection: "
          "close\r\n\r\n";
      ::send(fd.get(), kFull.data(), kFull.size(), MSG_NOSIGNAL);
      return;
    }
    const int on = 1;
    ::setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    const int raw = fd.get();
    open_[raw] = std::make_unique<Conversation>(site_, std::move(fd));
    Watch(raw, EPOLLIN, EPOLL_CTL_ADD);
    Serve(raw);
  }

  void Serve(int fd) {
    const auto found = open_.find(fd);
    if (found == open_.end()) return;
    if (!found->second->Go()) {
      open_.erase(found);
      return;
    }
    Watch(fd, found->second->sending() ? EPOLLOUT : EPOLLIN, EPOLL_CTL_MOD);
  }

  Site& site_;
  int listener_;
  int stop_;
  const FileServerOptions& options_;
  UniqueFd epoll_;
  std::map<int, std::unique_ptr<Conversation>> open_;
};

Result<UniqueFd> Listen(const FileServerOptions& options) {
  sockaddr_storage address{};
  auto* four = reinterpret_cast<sockaddr_in*>(&address);
  auto* six = reinterpret_cast<sockaddr_in6*>(&address);
  socklen_t size = 0;
  if (::inet_pton(AF_INET, options.address.c_str(), &four->sin_addr) == 1) {
    four->sin_family = AF_INET;
    four->sin_port = htons(static_cast<uint16_t>(options.port));
    size = sizeof *four;
  } else if (::inet_pton(AF_INET6, options.address.c_str(), &six->sin6_addr) == 1) {
    six->sin6_family = AF_INET6;
    six->sin6_port = htons(static_cast<uint16_t>(options.port));
    size = sizeof *six;
  } else {
    return Fail(ErrorCode::kInvalidArgument,
                "'{}' is no address to listen on, such as 127.0.0.1, 0.0.0.0 or ::1", options.address);
  }
  UniqueFd fd(::socket(address.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  const int on = 1;
  ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (!fd.valid() || ::bind(fd.get(), reinterpret_cast<sockaddr*>(&address), size) != 0 ||
      ::listen(fd.get(), 256) != 0)
    return FailErrno(errno, fmt::format("cannot listen on {} port {}", options.address, options.port));
  return fd;
}

}  // namespace

class FileServer::Impl {
 public:
  explicit Impl(const FileServerOptions& given) : options(given) {}
  ~Impl() {
    const uint64_t one = 1;
    static_cast<void>(!::write(stop.get(), &one, sizeof one));
    for (auto& thread : threads) thread.join();
  }
  FileServerOptions options;
  Site site;
  UniqueFd listener;
  UniqueFd stop{::eventfd(0, EFD_CLOEXEC)};
  int port = 0;
  std::vector<std::thread> threads;
};

FileServer::FileServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
FileServer::~FileServer() = default;

Result<std::unique_ptr<FileServer>> FileServer::Start(const FileServerOptions& options) {
  auto impl = std::make_unique<Impl>(options);
  // A socket and a file each; beyond what may be open, connections are refused in words.
  const auto most = static_cast<uint64_t>(options.most_connections);
  const uint64_t open_files = AllowOpenFiles(2 * most + kFilesBeside);
  impl->options.most_connections = static_cast<int>(
      std::clamp<uint64_t>(open_files / 2 - std::min(open_files / 2, kFilesBeside / 2), 1, most));
  impl->site.root = UniqueFd(::open(options.folder.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!impl->site.root.valid()) return FailErrno(errno, fmt::format("cannot serve {}", options.folder));
  IMGD_ASSIGN(impl->listener, Listen(options));
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  ::getsockname(impl->listener.get(), reinterpret_cast<sockaddr*>(&address), &size);
  impl->port = ntohs(address.ss_family == AF_INET ? reinterpret_cast<sockaddr_in*>(&address)->sin_port
                                                  : reinterpret_cast<sockaddr_in6*>(&address)->sin6_port);
  Impl* raw = impl.get();
  for (int i = 0; i < options.threads; ++i) {
    impl->threads.emplace_back(
        [raw] { Worker(raw->site, raw->listener.get(), raw->stop.get(), raw->options).Run(); });
  }
  return std::unique_ptr<FileServer>(new FileServer(std::move(impl)));
}

int FileServer::port() const { return impl_->port; }
std::string FileServer::url() const {
  const std::string& address = impl_->options.address;
  const bool six = address.find(':') != std::string::npos;
  return fmt::format(fmt::runtime(six ? "http://[{}]:{}/" : "http://{}:{}/"), address, impl_->port);
}
uint64_t FileServer::requests() const { return impl_->site.requests; }
uint64_t FileServer::bytes() const { return impl_->site.bytes; }

}  // namespace imgd::data
