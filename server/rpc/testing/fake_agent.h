#pragma once

#include <grpcpp/grpcpp.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "imgd/v1/agent.grpc.pb.h"

namespace imgd {

/// An agent that says what a test tells it to. Not thread-safe. Every wait ends with the stream's deadline,
/// so that a test fails instead of hanging.
class FakeAgent {
 public:
  /// Opens a stream and says Hello with so many devices. `agent_id` defaults to one made of the name.
  /// `filesystem`: agents of the same one see the same folders. `first_device`: its index; others follow.
  FakeAgent(const std::shared_ptr<grpc::Channel>& channel, const std::string& node, uint32_t devices,
            std::vector<v1::RunStatus> runs = {}, const std::string& agent_id = "",
            const std::string& filesystem = "fs", uint32_t first_device = 0);
  ~FakeAgent();

  const v1::Welcome& welcome() const { return welcome_; }
  bool connected() const { return connected_; }
  /// How the stream ended; ends it.
  grpc::Status End();

  /// The next command; acknowledgements are passed over. Nothing when the stream ended.
  std::optional<v1::ConnectResponse> NextCommand();
  /// The next of both.
  std::optional<v1::ConnectResponse> Next();

  /// `readings`: of its devices, in their order.
  void Heartbeat(std::vector<v1::DeviceReading> readings = {});
  /// The answer to a ShowMetrics.
  void Metrics(uint64_t number, const std::string& text);
  void Status(const v1::RunStatus& status);
  void Prepared(const v1::RunId& run);
  void Phase(const v1::RunId& run, v1::RunPhase phase, std::vector<v1::RankExit> exits = {});
  /// Events of a rank, from `sequence` on. Returns what was acknowledged.
  uint64_t Events(const v1::RunId& run, uint32_t rank, uint64_t sequence,
                  std::vector<v1::TrainerEvent> events);
  /// Lines of a rank's log, from `number` on, by a clock that is so far ahead. Returns what was acknowledged.
  uint64_t Lines(const v1::RunId& run, uint32_t rank, uint64_t number, const std::vector<std::string>& texts,
                 int64_t ahead_us = 0);

 private:
  void Send(const v1::ConnectRequest& message);

  std::unique_ptr<v1::AgentService::Stub> stub_;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReaderWriter<v1::ConnectRequest, v1::ConnectResponse>> stream_;
  v1::Welcome welcome_;
  bool connected_ = false;
  bool ended_ = false;
};

v1::RankExit MakeExit(uint32_t rank, int code, int signal = 0, const std::string& line = "");
v1::TrainerEvent StartedEvent();
v1::TrainerEvent StepEvent(uint64_t step, double loss);
v1::TrainerEvent CheckpointEvent(const std::string& path, uint64_t step, uint64_t generation);
v1::TrainerEvent FinishedEvent();
v1::TrainerEvent FailedEvent(const std::string& message, bool bad_input);

}  // namespace imgd
