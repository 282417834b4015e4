#include <fmt/format.h>
#include <grpcpp/grpcpp.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <chrono>
#include <cstring>
#include <random>
#include <thread>

#include "common/clock.h"
#include "common/files.h"
#include "imgd/v1/job.grpc.pb.h"
#include "tests/bench/control_load.h"

namespace imgd {
namespace {

/// Where start_mark tells when it began.
Result<UniqueFd> Listen(const std::filesystem::path& path) {
  UniqueFd fd(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  sockaddr_un address{.sun_family = AF_UNIX, .sun_path = {}};
  std::strncpy(address.sun_path, path.c_str(), sizeof address.sun_path - 1);
  std::filesystem::remove(path);
  if (::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    return FailErrno(errno, fmt::format("cannot listen on {}", path.native()));
  }
  const timeval patience{.tv_sec = 20, .tv_usec = 0};
  ::setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  return fd;
}

Result<Instant> NextMark(const UniqueFd& socket) {
  int64_t nanoseconds = 0;
  if (::recv(socket.get(), &nanoseconds, sizeof nanoseconds, 0) != sizeof nanoseconds) {
    return FailErrno(errno, "no rank began");
  }
  return Instant(std::chrono::nanoseconds(nanoseconds));
}

/// Its node is idle from then on.
Status WaitForEnd(v1::JobService::Stub& stub, uint64_t job) {
  while (true) {
    grpc::ClientContext context;
    v1::GetJobRequest request;
    request.set_id(job);
    v1::GetJobResponse response;
    const auto status = stub.GetJob(&context, request, &response);
    if (!status.ok()) return Fail(ErrorCode::kUnavailable, "GetJob: {}", status.error_message());
    if (response.job().state() >= v1::JOB_STATE_COMPLETED) return {};
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

}  // namespace

Status RunStarts(const StartLoad& load) {
  IMGD_ASSIGN(const auto socket, Listen(load.socket));
  const auto stub = v1::JobService::NewStub(OwnChannel(load.target));
  std::minstd_rand random(1);
  std::vector<double> milliseconds;
  // The first opens the connection and is not counted.
  for (size_t i = 0; i <= load.jobs; ++i) {
    grpc::ClientContext context;
    v1::SubmitJobRequest request;
    request.set_job_yaml(load.job_yaml);
    request.set_file_name("job.yaml");
    request.set_owner("bench");
    request.set_idempotency_key(fmt::format("start-{}", i));
    v1::SubmitJobResponse response;
    const Instant begun = std::chrono::steady_clock::now();
    const auto status = stub->SubmitJob(&context, request, &response);
    if (!status.ok()) return Fail(ErrorCode::kUnavailable, "SubmitJob: {}", status.error_message());
    IMGD_ASSIGN(const Instant started, NextMark(socket));
    if (i > 0) milliseconds.push_back(std::chrono::duration<double, std::milli>(started - begun).count());
    IMGD_TRY(WaitForEnd(*stub, response.job().id()));
    // At no fixed moment between the daemon's and the agent's own timers.
    std::this_thread::sleep_for(std::chrono::milliseconds(20 + random() % 60));
  }
  fmt::print("{{\"starts\": {}, \"p50_ms\": {:.3f}, \"p99_ms\": {:.3f}, \"max_ms\": {:.3f}}}\n",
             milliseconds.size(), Quantile(milliseconds, 0.5), Quantile(milliseconds, 0.99),
             Quantile(milliseconds, 1));
  return {};
}

}  // namespace imgd
