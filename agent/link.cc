#include "agent/link.h"

#include <grpcpp/grpcpp.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <random>
#include <thread>

#include "agent/channel.h"
#include "agent/network.h"
#include "common/doctor/reach.h"
#include "common/files.h"
#include "common/tls/probe.h"
#include "imgd/v1/agent.grpc.pb.h"

namespace imgd {
namespace {

using Stream = grpc::ClientReaderWriter<v1::ConnectRequest, v1::ConnectResponse>;

constexpr size_t kMaxInbox = 256;

Error FromStatus(const grpc::Status& status, const std::string& server) {
  switch (status.error_code()) {
    case grpc::StatusCode::OK:
      return {.code = ErrorCode::kUnavailable,
              .message = fmt::format("imgd at {} ended the connection", server)};
    case grpc::StatusCode::UNAVAILABLE:
    case grpc::StatusCode::CANCELLED:
      return {
          .code = ErrorCode::kUnavailable,
          .message = fmt::format("the connection to imgd at {} broke: {}", server, status.error_message())};
    default:
      return {.code = ErrorCode::kFailedPrecondition,
              .message = fmt::format("imgd at {} refuses this agent: {}", server, status.error_message())};
  }
}

}  // namespace

struct Link::Impl {
  explicit Impl(LinkOptions given)
      : options(std::move(given)), wake(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

  void Run();
  /// One connection, from the attempt to its end.
  void Connect();
  bool WaitUntilConnected(grpc::Channel& channel);
  /// Why there is no connection.
  Error WhyNotConnected(const NodeTls& shown);
  /// Renews the certificate whenever that is due, until the link ends.
  void KeepRenewed();
  void ReadAll(Stream& stream, uint64_t number);
  void WriteAll(Stream& stream, uint64_t number);
  void Push(Event event);  ///< with the mutex held
  void Cancel();           ///< with the mutex held

  const LinkOptions options;
  const UniqueFd wake;
  std::mutex mutex;
  std::condition_variable changed;
  // All below is guarded by mutex.
  bool stop = false;
  bool confirmed = false;  ///< the daemon took the agent in on this connection
  uint64_t last_number = 0;
  uint64_t open_number = 0;  ///< connection that stands; 0 for none
  grpc::ClientContext* context = nullptr;
  std::deque<Event> inbox;
  std::deque<v1::ConnectRequest> outbox;
  Duration backoff{};
  std::thread thread;   // of the constructor and destructor
  std::thread renewer;  // as above
};

void Link::Impl::Push(Event event) {
  inbox.push_back(std::move(event));
  const uint64_t one = 1;
  (void)!::write(wake.get(), &one, sizeof one);
}

void Link::Impl::Cancel() {
  if (context != nullptr) context->TryCancel();
}

void Link::Impl::Run() {
  std::minstd_rand random(std::random_device{}());
  std::unique_lock lock(mutex);
  backoff = options.first_backoff;
  while (!stop) {
    lock.unlock();
    Connect();
    lock.lock();
    if (!stop) {
      if (confirmed) backoff = options.first_backoff;
      // Between half of it and all of it: agents that lost the daemon together come back one by one.
      const double share = std::uniform_real_distribution<double>(0.5, 1.0)(random);
      changed.wait_for(lock, std::chrono::duration_cast<Duration>(backoff * share), [&] { return stop; });
      backoff = std::min(backoff * 2, options.max_backoff);
      confirmed = false;
    }
  }
}

bool Link::Impl::WaitUntilConnected(grpc::Channel& channel) {
  // gRPC's own wait ends by a timer, and its timers by the time of day: one that is set back holds them up.
  // Nothing comes from this queue, but who waits at one reads from the connections, for as long as is said
  // here.
  grpc::CompletionQueue queue;
  const gpr_timespec slice = gpr_time_from_millis(20, GPR_TIMESPAN);
  const Instant give_up = std::chrono::steady_clock::now() + options.connect_timeout;
  while (std::chrono::steady_clock::now() < give_up) {
    if (channel.GetState(/*try_to_connect=*/true) == GRPC_CHANNEL_READY) return true;
    void* tag = nullptr;
    bool ok = false;
    queue.AsyncNext(&tag, &ok, gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC), slice));
    const std::scoped_lock lock(mutex);
    if (stop) return false;
  }
  return false;
}

Error Link::Impl::WhyNotConnected(const NodeTls& shown) {
  const Error unreached{.code = ErrorCode::kUnavailable,
                        .message = fmt::format("imgd at {} can't be reached", options.server)};
  const auto where = ParseHostPort(options.server);
  {
    const std::scoped_lock lock(mutex);
    if (stop || !where) return unreached;
  }
  if (options.node_key == nullptr) {
    if (doctor::TryToReach(options.server, std::chrono::seconds(1)).outcome !=
        doctor::Reach::Outcome::kAnswersTls)
      return unreached;
    return WantsTls(options.server);
  }
  auto why = tls::WhyNoTls({.host = where->host,
                            .port = where->port,
                            .timeout = std::chrono::seconds(2),
                            .ca = shown.ca,
                            .certificate = shown.certificate,
                            .key = shown.key},
                           SystemClock());
  if (!why || why->code == ErrorCode::kUnavailable) return unreached;
  if (why->code == ErrorCode::kPermissionDenied) options.node_key->NoteRefused();
  return {.code = why->code, .message = why->ToString()};
}

void Link::Impl::KeepRenewed() {
  constexpr Duration kLeast = std::chrono::seconds(1);
  constexpr Duration kMost = std::chrono::minutes(10);
  Duration retry = kLeast;
  std::unique_lock lock(mutex);
  while (!stop) {
    lock.unlock();
    const auto due = options.node_key->UntilDue();
    lock.lock();
    const bool now = due && *due == Duration::zero();
    const Duration wait = now ? retry : std::clamp(due.value_or(kLeast), kLeast, kMost);
    changed.wait_for(lock, wait, [&] { return stop; });
    if (stop || !now) continue;
    lock.unlock();
    const bool good = options.node_key->Get().has_value();
    lock.lock();
    retry = good ? kLeast : std::min(retry * 2, kMost);
  }
}

void Link::Impl::Connect() {
  NodeTls shown;
  auto credentials = grpc::InsecureChannelCredentials();
  if (options.node_key != nullptr) {
    auto tls = options.node_key->Get();
    if (!tls) {
      const std::scoped_lock lock(mutex);
      Push(Closed{0, tls.error()});
      return;
    }
    shown = std::move(*tls);
    credentials = CredentialsOf(shown);
  }
  const auto channel = MakeChannel(options.server, credentials);
  if (!WaitUntilConnected(*channel)) {
    Error why = WhyNotConnected(shown);
    const std::scoped_lock lock(mutex);
    Push(Closed{0, std::move(why)});
    return;
  }
  const auto stub = v1::AgentService::NewStub(channel);
  grpc::ClientContext call;
  const auto stream = stub->Connect(&call);
  uint64_t number = 0;
  {
    const std::scoped_lock lock(mutex);
    if (stop) call.TryCancel();
    context = &call;
    number = ++last_number;
    open_number = number;
    outbox.clear();
    Push(Opened{number});
  }
  std::thread writer([&] { WriteAll(*stream, number); });
  ReadAll(*stream, number);
  {
    const std::scoped_lock lock(mutex);
    open_number = 0;
    outbox.clear();
    changed.notify_all();
  }
  writer.join();  // the stream has ended, so that a write that waits fails
  const grpc::Status status = stream->Finish();
  const bool refused = status.error_code() == grpc::StatusCode::PERMISSION_DENIED ||
                       status.error_code() == grpc::StatusCode::UNAUTHENTICATED;
  if (refused && options.node_key != nullptr) options.node_key->NoteRefused();
  const std::scoped_lock lock(mutex);
  context = nullptr;
  Push(Closed{number, FromStatus(status, options.server)});
}

void Link::Impl::ReadAll(Stream& stream, uint64_t number) {
  v1::ConnectResponse response;
  while (stream.Read(&response)) {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return stop || inbox.size() < kMaxInbox; });
    if (stop) return;
    Push(Message{number, std::move(response)});
  }
}

void Link::Impl::WriteAll(Stream& stream, uint64_t number) {
  std::unique_lock lock(mutex);
  while (true) {
    changed.wait(lock, [&] { return stop || open_number != number || !outbox.empty(); });
    if (stop || open_number != number) return;
    const v1::ConnectRequest request = std::move(outbox.front());
    outbox.pop_front();
    lock.unlock();
    const bool written = stream.Write(request);
    lock.lock();
    if (!written) return;  // the reader sees the end as well
  }
}

Link::Link(LinkOptions options) : impl_(std::make_unique<Impl>(std::move(options))) {
  impl_->thread = std::thread([impl = impl_.get()] { impl->Run(); });
  if (impl_->options.node_key != nullptr)
    impl_->renewer = std::thread([impl = impl_.get()] { impl->KeepRenewed(); });
}

Link::~Link() {
  {
    const std::scoped_lock lock(impl_->mutex);
    impl_->stop = true;
    impl_->Cancel();
    impl_->changed.notify_all();
  }
  if (impl_->options.node_key != nullptr) impl_->options.node_key->Cancel();
  impl_->thread.join();
  if (impl_->renewer.joinable()) impl_->renewer.join();
}

int Link::event_fd() const { return impl_->wake.get(); }

std::vector<Link::Event> Link::Take() {
  const std::scoped_lock lock(impl_->mutex);
  uint64_t count = 0;
  (void)!::read(impl_->wake.get(), &count, sizeof count);
  std::vector<Event> events(std::make_move_iterator(impl_->inbox.begin()),
                            std::make_move_iterator(impl_->inbox.end()));
  impl_->inbox.clear();
  impl_->changed.notify_all();
  return events;
}

void Link::Send(uint64_t connection, v1::ConnectRequest request) {
  const std::scoped_lock lock(impl_->mutex);
  if (connection == 0 || connection != impl_->open_number) return;
  auto& outbox = impl_->outbox;
  if (request.has_heartbeat()) {
    // A node with much to send is not silent; one that waits still says no more than this one.
    if (!outbox.empty() && outbox.front().has_heartbeat()) outbox.pop_front();
    outbox.push_front(std::move(request));
  } else {
    outbox.push_back(std::move(request));
  }
  impl_->changed.notify_all();
}

void Link::Reset(uint64_t connection) {
  const std::scoped_lock lock(impl_->mutex);
  if (connection == impl_->open_number) impl_->Cancel();
}

void Link::Confirm(uint64_t connection) {
  const std::scoped_lock lock(impl_->mutex);
  if (connection == impl_->open_number) impl_->confirmed = true;
}

}  // namespace imgd
