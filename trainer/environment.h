#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include "common/error.h"
#include "common/job_file.h"

namespace imgd::trainer {

/// What the process was told by its environment: torchrun's variables and imgd's own (docs/job-file.md).
struct Environment {
  int rank = 0;
  int world_size = 1;
  int local_rank = 0;
  int local_world_size = 1;
  std::string master_address = "127.0.0.1";
  uint16_t master_port = 29500;
  std::optional<int> master_fd;     ///< already listening socket of the rendezvous store, rank 0 only
  bool store_is_elsewhere = false;  ///< torchrun's agent serves the store, so rank 0 must not
  std::string attempt;              ///< torchrun's restart count; keeps an older attempt's keys apart
  std::string host_address;         ///< this node's own address for collectives; empty for the default
  std::string gloo_interface;       ///< GLOO_SOCKET_IFNAME; used where host_address is empty

  std::string nvjpeg_library;  ///< for data.decoder: nvjpeg; empty for the usual one
  std::string cudart_library;  ///< likewise

  std::filesystem::path run_dir;  ///< empty: progress goes to the terminal
  uint64_t job_id = 0;
  uint64_t generation = 0;
  std::filesystem::path checkpoint_dir;              ///< or an address in S3; empty: from the job file
  std::optional<std::filesystem::path> resume_file;  ///< resume.json

  /// Steps that the command line wants a profile of.
  struct Profile {
    std::filesystem::path trace;  ///< file
    uint64_t first_step = 10;     ///< steps done before; the first ones are not like the others
    uint64_t steps = 5;
    bool kernels_only = false;  ///< on a GPU: no operators, whose recording slows the launches
  };
  std::optional<Profile> profile;

  std::string trace_file;  ///< where the samples of each step are written down; empty: nowhere

  std::chrono::seconds join_timeout{300};        ///< for all ranks to meet
  std::chrono::seconds collective_timeout{600};  ///< for one collective
};

/// Reads the variables through `get`, which answers like getenv(3).
/// Errors: kInvalidArgument, naming the variable, what was found and what is allowed.
Result<Environment> ReadEnvironment(const std::function<const char*(const char*)>& get);

/// The run's folder on this machine: the job's checkpoint folder, or where that is in S3 the run's directory,
/// or without one ./checkpoints with the job's name.
std::filesystem::path LocalFolderOf(const JobSpec& spec, const Environment& env);

/// Where files of figures and profiles go: report.dir, or `logs` in the local folder.
std::filesystem::path FiguresFolder(const JobSpec& spec, const Environment& env);

}  // namespace imgd::trainer
