#pragma once

#include <string>
#include <vector>

#include "common/job_file.h"
#include "imgd/v1/dataset.grpc.pb.h"
#include "server/engine/engine.h"
#include "server/engine/read_pool.h"

namespace imgd {

/// DatasetService on the engine and on what is stored, which must outlive it.
class DatasetServiceImpl final : public v1::DatasetService::CallbackService {
 public:
  DatasetServiceImpl(Engine* engine, ReadPool* pool) : engine_(engine), pool_(pool) {}
  grpc::ServerUnaryReactor* RegisterDataset(grpc::CallbackServerContext* context,
                                            const v1::RegisterDatasetRequest* request,
                                            v1::RegisterDatasetResponse* response) override;
  grpc::ServerUnaryReactor* ListDatasets(grpc::CallbackServerContext* context,
                                         const v1::ListDatasetsRequest* request,
                                         v1::ListDatasetsResponse* response) override;
  grpc::ServerUnaryReactor* GetDataset(grpc::CallbackServerContext* context,
                                       const v1::GetDatasetRequest* request,
                                       v1::GetDatasetResponse* response) override;
  grpc::ServerUnaryReactor* ReportDataset(grpc::CallbackServerContext* context,
                                          const v1::ReportDatasetRequest* request,
                                          v1::ReportDatasetResponse* response) override;
  grpc::ServerUnaryReactor* RemoveDataset(grpc::CallbackServerContext* context,
                                          const v1::RemoveDatasetRequest* request,
                                          v1::RemoveDatasetResponse* response) override;

 private:
  Engine* engine_;
  ReadPool* pool_;
};

/// The job file with the addresses in place of "dataset:NAME", and exactly as it is where it has none. `spec`
/// is what `yaml` says. Those sets that conversions are still to make are added to `unmade`. Errors:
/// kInvalidArgument at the field's place, for each name that nobody registered.
tl::expected<std::string, std::vector<Error>> ResolveDatasets(
    const std::string& yaml, const std::string& file, const JobSpec& spec,
    const std::map<std::string, DatasetRecord>& datasets, std::vector<UnmadeSet>& unmade);

}  // namespace imgd
