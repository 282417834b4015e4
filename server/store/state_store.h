#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "server/core/actions.h"
#include "server/core/shares.h"
#include "server/core/sweep.h"
#include "server/core/types.h"
#include "server/store/admission.h"
#include "server/store/database.h"
#include "server/store/notification.h"

namespace imgd {

/// A job's row as the code in store/ reads it; the columns of kJobColumns in their order. Throws
/// SQLite::Exception.
extern const char* const kJobColumns;
Result<JobRecord> JobOfRow(SQLite::Statement& row);

/// A data set that has a name.
struct DatasetRecord {
  std::string name;     ///< see IsDatasetName
  std::string address;  ///< what a job's data.train may name
  uint64_t images = 0;  ///< 0: nobody looked
  uint32_t classes = 0;
  std::string owner;
  WallTime registered;
  JobId made_by;         ///< the conversion that is still to make it; JobId(): it is there
  std::string progress;  ///< serialized v1::DatasetProgress of the conversion that runs; empty: none
  WallTime described;    ///< when it was told what the set holds; zero: never
  WallTime verified;     ///< zero: never
  uint64_t broken = 0;   ///< faults that were found then

  bool operator==(const DatasetRecord&) const = default;
};

/// What an idempotency key stands for.
struct KeyRecord {
  JobId job;
  std::string content;  ///< SHA-256 of the job file as it was sent; empty: it is the one that is stored
};

/// When a job ended.
struct EndedJob {
  int64_t ended_us = 0;
  JobId id;
  auto operator<=>(const EndedJob&) const = default;
};

/// Leave to ask something by HTTP. The token itself is not kept.
struct TokenRecord {
  std::string name;
  std::string hash;  ///< SHA-256 of the token, lower-case hexadecimal
  std::string owner;
  std::set<std::string> scopes;  ///< words of server/auth/tokens.h
  WallTime created;
  WallTime expires;  ///< zero: never
};

/// What is loaded when the daemon starts.
struct StoredState {
  std::vector<JobRecord> jobs;  ///< those that have not ended, and the last ones that have
  std::vector<NodeRecord> nodes;
  JobId next_job;
  Generation first_generation;                    ///< of a state that was restored: as in CoreSettings
  std::map<std::string, DatasetRecord> datasets;  ///< by name
  std::map<std::string, Usage> usage;             ///< by user
  std::map<std::string, Account> accounts;        ///< "user ada", "project vision"
  std::map<std::string, TokenRecord> tokens;      ///< by name
  Admissions admissions;
  std::vector<SweepRecord> sweeps;  ///< those of which a job has not ended
};

/// The sweeps that `where` (SQL after FROM sweeps, with one parameter) finds, with their results. Throws
/// SQLite::Exception.
Result<std::vector<SweepRecord>> SweepsOf(Database& database, const std::string& where,
                                          const std::string& parameter);

/// state.db: jobs, their history, nodes. All writes of it. Owned by the core thread.
/// Writes belong to one batch until Commit(): all are stored or none; see WriteBatch for their errors.
class StateStore {
 public:
  /// Opens or makes `folder`/state.db; a new one gets its cluster id, 8 hexadecimal digits.
  static Result<StateStore> Open(const std::filesystem::path& folder);

  const std::string& cluster_id() const { return cluster_id_; }
  Result<StoredState> Load(size_t ended_jobs);

  void SaveJob(const JobRecord& job);
  /// Of a job that is stored, nothing but this.
  void SaveReason(JobId job, const Reason& reason);
  void SaveUsage(const std::string& owner, const Usage& usage);
  void RemoveUsage(const std::string& owner);
  void SaveAccount(const std::string& name, const Account& account);
  void RemoveAccount(const std::string& name);
  void SaveJobFile(JobId job, const std::string& yaml);
  void SaveNode(const NodeRecord& node);
  void DeleteNode(const NodeId& node);
  void SaveCheckpoint(const imgd::SaveCheckpoint& accepted);
  void AppendEvent(uint64_t number, const imgd::AppendEvent& event);
  /// A line of the record of decisions; `job_event`: of a change of a job, its number in the job's history.
  void AppendDecision(uint64_t number, const imgd::AppendDecision& decision, uint64_t job_event = 0);
  /// Nothing of the job is left but what it took, without its name, for some 400 days up to `now`; its number
  /// is not given again. Its sweep goes with the last of its jobs. Cost: by what there is of the job, however
  /// many others there are.
  void DeleteJob(JobId job, WallTime now);
  /// Jobs that ended after `from` and before `until`, by time, at most `most`.
  Result<std::vector<EndedJob>> EndedJobs(EndedJob from, WallTime until, size_t most);
  Result<std::set<JobId>> JobIds();

  /// Forgets the oldest decisions, some 10,000 at most: those beyond the newest `most`, and those from before
  /// `oldest`. The newest of all stays.
  Status TrimDecisions(uint64_t most, WallTime oldest);
  void SaveKey(const std::string& key, const KeyRecord& record);
  /// Where each rank of a start is; kept for as long as the job.
  void SavePlacement(RunKey run, const std::vector<Part>& parts);
  void SaveEventPosition(RunKey run, uint32_t rank, uint64_t sequence);
  /// `yaml`: as it was submitted.
  void SaveSweep(const SweepRecord& sweep, const std::string& yaml);
  void SaveRungResult(const imgd::SaveRungResult& result);
  void SaveDataset(const DatasetRecord& dataset);
  /// Serialized v1::DatasetContents, and v1::DatasetVerification, in the place of what was there.
  void SaveDatasetContents(const std::string& name, const std::string& contents);
  void SaveDatasetVerification(const std::string& name, const std::string& verification);
  void RemoveDatasetFacts(const std::string& name);
  /// With what is known of it.
  void RemoveDataset(const std::string& name);
  void SaveToken(const TokenRecord& token);
  void RemoveToken(const std::string& name);
  /// Without who joined by it.
  void SaveJoinToken(const JoinTokenRecord& token);
  void RemoveJoinToken(const std::string& id);
  void SaveJoinUse(const std::string& token, const JoinUse& use);
  void SaveNodeKey(const NodeKeyRecord& key);
  void SaveInstance(const InstanceRecord& record);
  void RemoveInstance(const std::string& id);

  /// Who is told of the job, as its file says; once for a job.
  void SaveNotify(JobId job, const std::string& rules);
  void SaveNotice(const Notification& notice);
  void RemoveNotice(const std::string& id);

  /// A small write, which shows whether writes succeed.
  void Probe();
  /// True when the batch has written something so far.
  bool HasWrites() const { return batch_->open(); }

  Status Commit() { return batch_->Commit(); }
  void Rollback() { batch_->Rollback(); }

  // These see what the batch has written so far.
  Result<std::optional<KeyRecord>> FindKey(const std::string& key);
  Result<std::optional<JobRecord>> FindJob(JobId job);
  Result<std::string> JobFile(JobId job);
  /// The file that the sweep was made of; empty where this is the number of none.
  Result<std::string> SweepFile(JobId sweep);
  /// The sweep with this number, also one that has ended; nothing where there is none.
  Result<std::optional<SweepRecord>> FindSweep(JobId sweep);
  /// The owner's newest job of that name; of anybody's where the owner is empty.
  Result<std::optional<JobId>> NewestJobNamed(const std::string& name, const std::string& owner);
  /// The same of sweeps.
  Result<std::optional<JobId>> NewestSweepNamed(const std::string& name, const std::string& owner);
  /// True when that start of the job put the rank on the node.
  Result<bool> RankWasOn(RunKey run, uint32_t rank, const NodeId& node);
  Result<std::map<uint32_t, uint64_t>> EventPositions(RunKey run);
  Result<uint64_t> EventPosition(RunKey run, uint32_t rank);
  /// Number of the job's newest event in this file; 0 for none.
  Result<uint64_t> LastEventNumber(JobId job);
  /// Nothing where the job's file does not say.
  Result<std::optional<std::string>> NotifyOf(JobId job);
  /// The oldest first.
  Result<std::vector<Notification>> LoadNotices();
  /// Number of the newest decision; 0 for none.
  Result<uint64_t> LastDecision();

 private:
  explicit StateStore(Database database);
  Status LoadClusterId();
  Result<std::vector<JobRecord>> LoadJobs(size_t ended_jobs);
  Result<std::vector<NodeRecord>> LoadNodes();
  Result<std::map<std::string, DatasetRecord>> LoadDatasets();
  Result<std::map<std::string, Usage>> LoadUsage();
  Result<std::map<std::string, Account>> LoadAccounts();
  Result<std::map<std::string, TokenRecord>> LoadTokens();
  Result<Admissions> LoadAdmissions();
  void LoadInstances(Admissions& out);
  Result<std::vector<SweepRecord>> LoadSweeps();
  const std::string& TextOf(const Needs& needs);
  const std::string& TextOf(const std::vector<Dependency>& after);

  std::unique_ptr<Database> database_;  // its address is batch_'s
  std::unique_ptr<WriteBatch> batch_;
  std::string cluster_id_;
  // As encoded: many jobs in a row have the same.
  std::pair<Needs, std::string> last_needs_;
  std::pair<std::vector<Dependency>, std::string> last_after_;
};

/// The checkpoints of a job that were accepted, newest first. Throws SQLite::Exception.
std::vector<Checkpoint> CheckpointsOf(Database& database, JobId job, size_t most);

}  // namespace imgd
