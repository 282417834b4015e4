#include "server/rpc/testing/fake_agent.h"

#include <chrono>

namespace imgd {

FakeAgent::FakeAgent(const std::shared_ptr<grpc::Channel>& channel, const std::string& node, uint32_t devices,
                     std::vector<v1::RunStatus> runs, const std::string& agent_id,
                     const std::string& filesystem, uint32_t first_device)
    : stub_(v1::AgentService::NewStub(channel)) {
  context_.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(120));
  stream_ = stub_->Connect(&context_);
  v1::ConnectRequest message;
  auto* hello = message.mutable_hello();
  hello->set_node(node);
  hello->set_version("test");
  hello->set_address("127.0.0.1");
  hello->set_filesystem_id(filesystem);
  hello->set_metrics_relayed(true);
  hello->set_agent_id(agent_id.empty() ? "id-" + node : agent_id);
  for (uint32_t i = 0; i < devices; ++i) {
    auto* device = hello->add_devices();
    device->set_index(first_device + i);
    device->set_model("cpu");
  }
  for (auto& run : runs) *hello->add_runs() = std::move(run);
  Send(message);
  const auto answer = Next();
  connected_ = answer && answer->has_welcome();
  if (connected_) welcome_ = answer->welcome();
}

FakeAgent::~FakeAgent() {
  context_.TryCancel();
  if (!ended_) (void)stream_->Finish();
}

grpc::Status FakeAgent::End() {
  ended_ = true;
  stream_->WritesDone();
  v1::ConnectResponse rest;
  while (stream_->Read(&rest)) {
  }
  return stream_->Finish();
}

void FakeAgent::Send(const v1::ConnectRequest& message) { stream_->Write(message); }

std::optional<v1::ConnectResponse> FakeAgent::Next() {
  v1::ConnectResponse message;
  if (!stream_->Read(&message)) return std::nullopt;
  return message;
}

std::optional<v1::ConnectResponse> FakeAgent::NextCommand() {
  while (auto message = Next()) {
    if (!message->has_events_ack() && !message->has_logs_ack()) return message;
  }
  return std::nullopt;
}

void FakeAgent::Heartbeat(std::vector<v1::DeviceReading> readings) {
  v1::ConnectRequest message;
  auto* heartbeat = message.mutable_heartbeat();
  for (auto& reading : readings) *heartbeat->add_readings() = std::move(reading);
  Send(message);
}

void FakeAgent::Metrics(uint64_t number, const std::string& text) {
  v1::ConnectRequest message;
  message.mutable_metrics_page()->set_number(number);
  message.mutable_metrics_page()->set_text(text);
  Send(message);
}

void FakeAgent::Status(const v1::RunStatus& status) {
  v1::ConnectRequest message;
  *message.mutable_run_status() = status;
  Send(message);
}

void FakeAgent::Prepared(const v1::RunId& run) {
  v1::ConnectRequest message;
  *message.mutable_run_prepared()->mutable_run() = run;
  message.mutable_run_prepared()->set_address("127.0.0.1");
  message.mutable_run_prepared()->set_port(29500);
  Send(message);
}

void FakeAgent::Phase(const v1::RunId& run, v1::RunPhase phase, std::vector<v1::RankExit> exits) {
  v1::ConnectRequest message;
  *message.mutable_run_status()->mutable_run() = run;
  message.mutable_run_status()->set_phase(phase);
  for (auto& exit : exits) *message.mutable_run_status()->add_exits() = std::move(exit);
  Send(message);
}

uint64_t FakeAgent::Events(const v1::RunId& run, uint32_t rank, uint64_t sequence,
                           std::vector<v1::TrainerEvent> events) {
  v1::ConnectRequest message;
  auto* out = message.mutable_trainer_events();
  *out->mutable_run() = run;
  out->set_rank(rank);
  for (auto& event : events) {
    event.set_sequence(sequence++);
    if (event.time_us() == 0) event.set_time_us(1'000'000);
    *out->add_events() = std::move(event);
  }
  Send(message);
  while (const auto answer = Next()) {
    if (answer->has_events_ack()) return answer->events_ack().sequence();
  }
  return 0;
}

uint64_t FakeAgent::Lines(const v1::RunId& run, uint32_t rank, uint64_t number,
                          const std::vector<std::string>& texts, int64_t ahead_us) {
  v1::ConnectRequest message;
  auto* out = message.mutable_log_lines();
  *out->mutable_run() = run;
  out->set_rank(rank);
  for (const auto& text : texts) {
    auto* line = out->add_lines();
    line->set_line_number(number++);
    line->set_time_us(static_cast<int64_t>(number) * 1000 + ahead_us);
    line->set_text(text);
  }
  Send(message);
  while (const auto answer = Next()) {
    if (answer->has_logs_ack()) return answer->logs_ack().line_number();
  }
  return 0;
}

v1::RankExit MakeExit(uint32_t rank, int code, int signal, const std::string& line) {
  v1::RankExit exit;
  exit.set_rank(rank);
  exit.set_exit_code(code);
  exit.set_signal(signal);
  exit.set_last_error_line(line);
  return exit;
}

v1::TrainerEvent StartedEvent() {
  v1::TrainerEvent event;
  event.mutable_started()->set_device("cpu");
  return event;
}

v1::TrainerEvent StepEvent(uint64_t step, double loss) {
  v1::TrainerEvent event;
  event.mutable_step()->set_step(step);
  event.mutable_step()->set_loss(loss);
  return event;
}

v1::TrainerEvent CheckpointEvent(const std::string& path, uint64_t step, uint64_t generation) {
  v1::TrainerEvent event;
  event.mutable_checkpoint()->set_path(path);
  event.mutable_checkpoint()->set_step(step);
  event.mutable_checkpoint()->set_generation(generation);
  event.mutable_checkpoint()->set_write_seconds(2.5);
  return event;
}

v1::TrainerEvent FinishedEvent() {
  v1::TrainerEvent event;
  event.mutable_finished();
  return event;
}

v1::TrainerEvent FailedEvent(const std::string& message, bool bad_input) {
  v1::TrainerEvent event;
  event.mutable_failed()->set_message(message);
  event.mutable_failed()->set_bad_input(bad_input);
  return event;
}

}  // namespace imgd
