#pragma once

#include <string>
#include <vector>

#include "common/job_file.h"
#include "imgd/v1/dataset.grpc.pb.h"
#include "server/engine/engine.h"

namespace imgd {

/// DatasetService on the engine, which must outlive it.
class DatasetServiceImpl final : public v1::DatasetService::CallbackService {
 public:
  explicit DatasetServiceImpl(Engine* engine) : engine_(engine) {}
  grpc::ServerUnaryReactor* RegisterDataset(grpc::CallbackServerContext* context,
                                            const v1::RegisterDatasetRequest* request,
                                            v1::RegisterDatasetResponse* response) override;
  grpc::ServerUnaryReactor* ListDatasets(grpc::CallbackServerContext* context,
                                         const v1::ListDatasetsRequest* request,
                                         v1::ListDatasetsResponse* response) override;
  grpc::ServerUnaryReactor* RemoveDataset(grpc::CallbackServerContext* context,
                                          const v1::RemoveDatasetRequest* request,
                                          v1::RemoveDatasetResponse* response) override;

 private:
  Engine* engine_;
};

/// The job file with the addresses in place of "dataset:NAME", and exactly as it is where it has none. `spec`
/// is what `yaml` says. Those sets that conversions are still to make are added to `unmade`. Errors:
/// kInvalidArgument at the field's place, for a name that nobody registered.
Result<std::string> ResolveDatasets(const std::string& yaml, const std::string& file, const JobSpec& spec,
                                    const std::map<std::string, DatasetRecord>& datasets,
                                    std::vector<UnmadeSet>& unmade);

}  // namespace imgd
