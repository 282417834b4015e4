#include <fmt/format.h>
#include <grpcpp/alarm.h>
#include <grpcpp/grpcpp.h>

#include <chrono>
#include <condition_variable>
#include <fstream>
#include <mutex>

#include "common/clock.h"
#include "imgd/v1/job.grpc.pb.h"
#include "tests/bench/control_load.h"

namespace imgd {
namespace {

/// What all clients share.
struct Race {
  const SubmitLoad* load;
  Duration interval;  ///< of one client's submits; 0: each when the last was acknowledged
  Instant end;
  std::mutex mutex;
  std::condition_variable changed;
  size_t running = 0;
  std::string error;  ///< all guarded by mutex
};

/// One client. Touched by one call at a time.
class Client {
 public:
  Client(Race* race, size_t number)
      : race_(race),
        number_(number),
        channel_(OwnChannel(race->load->target)),
        stub_(v1::JobService::NewStub(channel_)) {
    request_.set_job_yaml(race->load->job_yaml);
    request_.set_file_name("job.yaml");
    request_.set_owner("bench");
  }

  bool Connect() {
    return channel_->WaitForConnected(std::chrono::system_clock::now() + std::chrono::seconds(10));
  }

  /// The first submit; the others go out from the answers.
  void Start(Instant due) {
    due_ = due;
    SubmitWhenDue();
  }

  const std::vector<double>& milliseconds() const { return milliseconds_; }
  void WriteAcknowledged(std::ostream& out) const {
    for (size_t i = 0; i < acknowledged_.size(); ++i)
      out << acknowledged_[i] << " bench-" << number_ << "-" << i << "\n";
  }

 private:
  void SubmitWhenDue() {
    const Duration early = due_ - std::chrono::steady_clock::now();
    if (early <= Duration::zero()) return Submit();
    const auto at = std::chrono::system_clock::now() +
                    std::chrono::duration_cast<std::chrono::system_clock::duration>(early);
    alarm_.Set(at, [this](bool) { Submit(); });
  }

  void Submit() {
    context_ = std::make_unique<grpc::ClientContext>();
    response_.Clear();
    request_.set_idempotency_key(fmt::format("bench-{}-{}", number_, milliseconds_.size()));
    stub_->async()->SubmitJob(context_.get(), &request_, &response_,
                              [this](const grpc::Status& status) { OnAnswer(status); });
  }

  void OnAnswer(const grpc::Status& status) {
    const Instant now = std::chrono::steady_clock::now();
    if (!status.ok()) {
      End(status.error_message());
      return;
    }
    milliseconds_.push_back(std::chrono::duration<double, std::milli>(now - due_).count());
    acknowledged_.push_back(response_.job().id());
    due_ = race_->interval == Duration::zero() ? now : due_ + race_->interval;
    if (due_ < race_->end) {
      SubmitWhenDue();
    } else {
      End("");
    }
  }

  void End(const std::string& error) {
    const std::lock_guard lock(race_->mutex);
    --race_->running;
    if (race_->error.empty()) race_->error = error;
    race_->changed.notify_all();
  }

  Race* race_;
  size_t number_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::JobService::Stub> stub_;
  std::unique_ptr<grpc::ClientContext> context_;
  v1::SubmitJobRequest request_;
  v1::SubmitJobResponse response_;
  grpc::Alarm alarm_;
  Instant due_{};
  std::vector<double> milliseconds_;
  std::vector<uint64_t> acknowledged_;
};

Duration DurationOf(double seconds) {
  return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(seconds));
}

}  // namespace

Status RunSubmits(const SubmitLoad& load) {
  const auto turn = load.per_second > 0 ? DurationOf(1 / load.per_second) : Duration::zero();
  Race race{.load = &load, .interval = turn * load.clients, .end = {}, .running = load.clients};
  std::vector<std::unique_ptr<Client>> clients;
  for (size_t i = 0; i < load.clients; ++i) {
    clients.push_back(std::make_unique<Client>(&race, i));
    if (!clients.back()->Connect())
      return Fail(ErrorCode::kUnavailable, "{} can't be reached", load.target.address);
  }
  const Instant begun = std::chrono::steady_clock::now();
  race.end = begun + DurationOf(load.seconds);
  for (size_t i = 0; i < clients.size(); ++i) clients[i]->Start(begun + turn * i);
  {
    std::unique_lock lock(race.mutex);
    race.changed.wait(lock, [&race] { return race.running == 0; });
    if (!race.error.empty()) return Fail(ErrorCode::kUnavailable, "SubmitJob: {}", race.error);
  }
  const double took = std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
  std::vector<double> all;
  std::ofstream acknowledged(load.acknowledged);
  for (const auto& client : clients) {
    all.insert(all.end(), client->milliseconds().begin(), client->milliseconds().end());
    client->WriteAcknowledged(acknowledged);
  }
  if (!acknowledged.flush()) return Fail(ErrorCode::kInternal, "cannot write {}", load.acknowledged.native());
  fmt::print(
      "{{\"submits\": {}, \"seconds\": {:.3f}, \"per_second\": {:.1f}, \"p50_ms\": {:.3f}, \"p99_ms\": "
      "{:.3f}, "
      "\"max_ms\": {:.3f}}}\n",
      all.size(), took, static_cast<double>(all.size()) / took, Quantile(all, 0.5), Quantile(all, 0.99),
      Quantile(all, 1));
  return {};
}

}  // namespace imgd
