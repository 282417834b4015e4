#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "imgd/v1/agent.pb.h"
#include "server/core/reactor.h"
#include "server/engine/admission.h"
#include "server/notify/notify_config.h"
#include "server/store/state_store.h"

// What the engine is asked for, and what it answers.

namespace imgd {

/// A job that another one is to come after, as a person names it.
struct AfterOrder {
  std::string job;  ///< its number, or its name: the newest of that name that the same owner has
  AfterEnd when = AfterEnd::kOk;
};

/// The jobs of a sweep, each with its file.
struct SweepOrder {
  SweepSubmission submission;
  std::vector<std::string> files;  ///< as many as members
};

/// A data set that a job uses, and that a conversion was still to make when it was looked up.
struct UnmadeSet {
  std::string field;  ///< "data.train"
  std::string name;
  JobId made_by;
};

/// A job to be stored, or many.
struct SubmitOrder {
  Submission submission;         ///< of a sweep: its first job's
  std::string yaml;              ///< of a sweep: as it was submitted
  std::string idempotency_key;   ///< empty for none; a known one with the same content returns its job
  std::string content;           ///< SHA-256 of the file as it was sent; empty: `yaml` is what was sent
  std::optional<Error> refusal;  ///< why a new job is refused; a known key returns its job all the same
  std::vector<AfterOrder> after;
  std::optional<SweepOrder> sweep;
  std::vector<UnmadeSet> unmade;                  ///< refused unless the job comes after what makes them
  std::optional<std::vector<NotifyRule>> notify;  ///< who is told of it; nothing: whom the operator says
  std::optional<DatasetRecord>
      makes;             ///< of a conversion: the data set that has its name once it is COMPLETED
  bool dry_run = false;  ///< everything is checked and nothing is stored
};

struct SubmitAnswer {
  JobId job;  ///< of a sweep, the first
  bool existed = false;
  std::optional<JobRecord> record;   ///< as it was stored; nothing when it existed
  uint64_t last_event = 0;           ///< its newest one's number, with the record
  std::optional<SweepRecord> sweep;  ///< with the record
  std::string name;                  ///< of a dry run, as the next; of a sweep, its first job's
  std::vector<Dependency> after;
};

/// A name to be given to a data set, or taken away; or what its `owner` found who looked at `address`.
struct DatasetOrder {
  DatasetRecord record;  ///< only its name counts for removing; the engine sets the time
  bool replace = false;  ///< the name may stand for another address
  bool remove = false;
  std::optional<v1::DatasetFacts> facts = std::nullopt;
};

struct DatasetAnswer {
  DatasetRecord record;
  bool existed = false;  ///< with the same address
};

/// A run that somebody started by hand begins to report.
struct HandStartOrder {
  HandStart start;
  std::string yaml;
  std::string idempotency_key;  ///< never empty; a known one with the same content returns its job
  /// As of a job that is submitted.
  std::optional<std::vector<NotifyRule>> notify = {};
};

/// What it reports: its rank 0's events by number. None: a sign of life.
struct HandReport {
  JobId job;
  std::string token;  ///< name of the token that it was sent with
  google::protobuf::RepeatedPtrField<v1::TrainerEvent> events;
};

struct HandAnswer {
  JobId job;
  uint64_t sequence = 0;  ///< of the last event that is stored
  bool existed = false;   ///< of a start: nothing new was stored
};

/// A token to be made, or taken back.
struct TokenOrder {
  TokenRecord record;  ///< only its name counts for taking back; the engine sets the time of its making
  int64_t ttl_ms = 0;  ///< 0: for ever
  bool remove = false;
  std::string actor = {};  ///< who asks, a name
};

/// What became of an AdmissionOrder.
struct AdmissionAnswer {
  JoinTokenRecord token;  ///< of the orders about tokens
  NodeKeyRecord key;      ///< of the others
};

/// What somebody asks of a job, as Reactor's function of the same name.
struct JobOrder {
  enum class What { kPause, kResume, kMove, kPriority, kTimeLimit } what = What::kPause;
  JobId job;
  std::string actor;
  int priority = 0;            ///< of kPriority
  TimeLimitChange time_limit;  ///< of kTimeLimit
};

/// Where a rank runs.
struct RankSite {
  NodeId node;
  Generation generation;
};

/// What somebody asks of a node.
struct NodeOrder {
  enum class What { kCordon, kDrain, kUncordon, kUndrain, kForget } what = What::kCordon;
  NodeId node;
  std::string reason;  ///< of kCordon and kDrain
  std::string actor;
};

}  // namespace imgd
