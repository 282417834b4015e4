#pragma once

#include <string>

#include "imgd/v1/job.grpc.pb.h"
#include "server/engine/engine.h"
#include "server/engine/read_pool.h"
#include "server/policy/policy.h"
#include "server/rpc/job_file_cache.h"
#include "server/rpc/submission.h"

namespace imgd {

/// JobService on the engine and the reading threads, which must outlive it. Thread-safe; no call holds a
/// thread while it waits.
class JobServiceImpl final : public v1::JobService::CallbackService {
 public:
  /// `checkpoint_dir` is where jobs that name none keep their checkpoints; `commands`: jobs may be any
  /// program.
  JobServiceImpl(Engine* engine, ReadPool* pool, const Clock* clock, std::string checkpoint_dir,
                 Policies policies, bool commands);

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
  grpc::ServerUnaryReactor* GetMetrics(grpc::CallbackServerContext* context,
                                       const v1::GetMetricsRequest* request,
                                       v1::GetMetricsResponse* response) override;

 private:
  void SubmitChecked(CheckedSubmit submit, v1::SubmitJobResponse* response,
                     grpc::ServerUnaryReactor* reactor);
  void FinishDryRun(SubmitOrder order, v1::SubmitJobResponse* response, grpc::ServerUnaryReactor* reactor);
  /// Reads the job for an answer and ends the call with it.
  void AnswerWithJob(JobId id, v1::Job* job, grpc::ServerUnaryReactor* reactor);

  Engine* engine_;
  ReadPool* pool_;
  const Clock* clock_;
  std::string checkpoint_dir_;
  Policies policies_;
  bool commands_;
  JobFileCache files_;
};

}  // namespace imgd
