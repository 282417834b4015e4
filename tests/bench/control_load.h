#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "common/error.h"

namespace grpc {
class Channel;
}  // namespace grpc

/// What `./run bench control` puts on a real daemon. Each function prints one line of JSON when it is done.
namespace imgd {

/// The daemon, which is spoken to by TLS.
struct LoadTarget {
  std::string address;  ///< HOST:PORT
  std::string ca;       ///< PEM
  std::string token;    ///< of an admin
};

/// Nodes that only say that they are there: each joins by a key of its own, and has a connection by mutual
/// TLS, a stream, a Hello with 8 devices, and a Heartbeat with their readings every 3 s, evenly spread.
struct AgentLoad {
  LoadTarget target;
  size_t agents = 1;
  double seconds = 20;   ///< measured, after two heartbeats of all; 0: they join and leave
  pid_t daemon_pid = 0;  ///< whose processor time and memory are read
  bool hold = false;     ///< nothing is measured: they are there until the standard input ends
};
/// With `hold` it prints that all have joined, as soon as they have. Errors: an agent that was refused, a
/// connection that broke, a node that is not ready at the end.
Status RunAgents(const AgentLoad& load);

/// Clients with a connection each, which submit the same job over and over.
struct SubmitLoad {
  LoadTarget target;
  size_t clients = 64;
  double seconds = 5;
  /// Of all together, evenly spread, each counted from when it was due; 0: each when the last was
  /// acknowledged.
  double per_second = 0;
  std::string job_yaml;
  std::filesystem::path acknowledged;  ///< a file that gets "ID KEY" for each job that was acknowledged
};
Status RunSubmits(const SubmitLoad& load);

/// One job after the other, each when the node is idle again. The ranks are start_mark, which tells of its
/// beginning by a datagram to `socket`.
struct StartLoad {
  LoadTarget target;
  size_t jobs = 100;
  std::string job_yaml;
  std::filesystem::path socket;
};
Status RunStarts(const StartLoad& load);

/// Fills a daemon's database, through its own store, before the daemon starts: of ten jobs nine have ended.
Status FillStore(const std::filesystem::path& state_dir, uint64_t jobs);

/// What a node shows of itself, as PEM.
struct NodePass {
  std::string key;
  std::string certificate;
};

/// A connection that is shared with nobody, as each client has its own. It shows the token.
std::shared_ptr<grpc::Channel> OwnChannel(const LoadTarget& target);
/// As a node has it: it shows the node's certificate and no token.
std::shared_ptr<grpc::Channel> OwnChannel(const LoadTarget& target, const NodePass& pass);

/// The value below which the share of the values lies; sorts them. Zero when there are none.
double Quantile(std::vector<double>& values, double share);

}  // namespace imgd
