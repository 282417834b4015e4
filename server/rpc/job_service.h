#pragma once

#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "imgd/v1/job.grpc.pb.h"
#include "server/engine/engine.h"
#include "server/engine/read_pool.h"
#include "server/policy/policy.h"
#include "server/rpc/callers.h"
#include "server/rpc/job_file_cache.h"
#include "server/rpc/note_limit.h"
#include "server/rpc/submission.h"

namespace imgd {

/// JobService on the engine and the reading threads, which must outlive it. Thread-safe; no call holds a
/// thread while it waits.
class JobServiceImpl final : public v1::JobService::CallbackService {
 public:
  /// What jobs get and may ask for.
  struct OwnRules {
    std::string checkpoint_dir;  ///< of jobs that name none
    Policies policies;
    bool commands = false;                 ///< jobs may be any program
    std::set<std::string> notify_targets;  ///< that `notify` may name
  };

  JobServiceImpl(Engine* engine, const Callers* callers, ReadPool* pool, const Clock* clock, OwnRules rules);
  /// For what is submitted from now on.
  void SetRules(OwnRules rules);

  grpc::ServerUnaryReactor* SubmitJob(grpc::CallbackServerContext* context,
                                      const v1::SubmitJobRequest* request,
                                      v1::SubmitJobResponse* response) override;
  grpc::ServerUnaryReactor* GetJob(grpc::CallbackServerContext* context, const v1::GetJobRequest* request,
                                   v1::GetJobResponse* response) override;
  grpc::ServerUnaryReactor* ListJobs(grpc::CallbackServerContext* context, const v1::ListJobsRequest* request,
                                     v1::ListJobsResponse* response) override;
  grpc::ServerUnaryReactor* CancelJob(grpc::CallbackServerContext* context,
                                      const v1::CancelJobRequest* request,
                                      v1::CancelJobResponse* response) override;
  grpc::ServerUnaryReactor* GetSweep(grpc::CallbackServerContext* context, const v1::GetSweepRequest* request,
                                     v1::GetSweepResponse* response) override;
  grpc::ServerUnaryReactor* CancelSweep(grpc::CallbackServerContext* context,
                                        const v1::CancelSweepRequest* request,
                                        v1::CancelSweepResponse* response) override;
  grpc::ServerUnaryReactor* ChangeJob(grpc::CallbackServerContext* context,
                                      const v1::ChangeJobRequest* request,
                                      v1::ChangeJobResponse* response) override;
  grpc::ServerUnaryReactor* ProfileJob(grpc::CallbackServerContext* context,
                                       const v1::ProfileJobRequest* request,
                                       v1::ProfileJobResponse* response) override;
  grpc::ServerWriteReactor<v1::WatchJobResponse>* WatchJob(grpc::CallbackServerContext* context,
                                                           const v1::WatchJobRequest* request) override;
  grpc::ServerWriteReactor<v1::ReadLogsResponse>* ReadLogs(grpc::CallbackServerContext* context,
                                                           const v1::ReadLogsRequest* request) override;
  grpc::ServerUnaryReactor* ListLogs(grpc::CallbackServerContext* context, const v1::ListLogsRequest* request,
                                     v1::ListLogsResponse* response) override;
  grpc::ServerUnaryReactor* DeleteJob(grpc::CallbackServerContext* context,
                                      const v1::DeleteJobRequest* request,
                                      v1::DeleteJobResponse* response) override;
  grpc::ServerUnaryReactor* ListCheckpoints(grpc::CallbackServerContext* context,
                                            const v1::ListCheckpointsRequest* request,
                                            v1::ListCheckpointsResponse* response) override;
  grpc::ServerUnaryReactor* GetClasses(grpc::CallbackServerContext* context,
                                       const v1::GetClassesRequest* request,
                                       v1::GetClassesResponse* response) override;
  grpc::ServerUnaryReactor* GetSamples(grpc::CallbackServerContext* context,
                                       const v1::GetSamplesRequest* request,
                                       v1::GetSamplesResponse* response) override;
  grpc::ServerUnaryReactor* GetMetrics(grpc::CallbackServerContext* context,
                                       const v1::GetMetricsRequest* request,
                                       v1::GetMetricsResponse* response) override;

 private:
  std::shared_ptr<const OwnRules> Rules() const;
  void SubmitChecked(const v1::SubmitJobRequest* request, CheckedSubmit submit,
                     v1::SubmitJobResponse* response, grpc::ServerUnaryReactor* reactor);
  /// `errors`: why it would not be stored now.
  void SubmitRefused(const v1::SubmitJobRequest* request, std::vector<Error> errors,
                     v1::SubmitJobResponse* response, grpc::ServerUnaryReactor* reactor);
  /// For the engine's thread, which has no time to look for the place. `request` lives until the answer.
  void RefuseAtItsPlace(const v1::SubmitJobRequest& request, Error error, grpc::ServerUnaryReactor* reactor);
  /// `yaml`: the job's file, where it is new.
  void AnswerStored(SubmitAnswer answer, const std::string& yaml, v1::SubmitJobResponse* response,
                    grpc::ServerUnaryReactor* reactor);
  void FinishDryRun(const v1::SubmitJobRequest* request, SubmitOrder order, v1::SubmitJobResponse* response,
                    grpc::ServerUnaryReactor* reactor);
  /// Reads the job for an answer and ends the call with it.
  void AnswerWithJob(JobId id, v1::Job* job, grpc::ServerUnaryReactor* reactor);

  Engine* engine_;
  const Callers* callers_;
  ReadPool* pool_;
  const Clock* clock_;
  mutable std::mutex rules_mutex_;
  std::shared_ptr<const OwnRules> rules_;  // guarded by rules_mutex_
  JobFileCache files_;
  NoteLimit attached_;
};

}  // namespace imgd
