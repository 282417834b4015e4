#include "server/rpc/dataset_service.h"

#include "common/dataset_ref.h"
#include "common/job_changes.h"
#include "common/yaml.h"
#include "server/rpc/errors.h"
#include "server/rpc/limits.h"

namespace imgd {
namespace {

v1::Dataset ToProto(const DatasetRecord& record) {
  v1::Dataset out;
  out.set_name(record.name);
  out.set_address(record.address);
  out.set_images(record.images);
  out.set_classes(record.classes);
  out.set_owner(record.owner);
  out.set_registered_us(record.registered.micros);
  out.set_made_by(record.made_by.value());
  return out;
}

/// As a YAML value: in double quotes.
std::string Quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out + '"';
}

}  // namespace

Result<std::string> ResolveDatasets(const std::string& yaml, const std::string& file, const JobSpec& spec,
                                    const std::map<std::string, DatasetRecord>& datasets,
                                    std::vector<UnmadeSet>& unmade) {
  std::vector<JobChange> changes;
  std::vector<std::pair<std::string, std::string>> fields = {{"data.train", spec.data.train},
                                                             {"data.val", spec.data.val}};
  for (size_t i = 0; i < spec.phases.size(); ++i)
    fields.emplace_back(fmt::format("phases.{}.train", i), spec.phases[i].train);
  for (const auto& [field, value] : fields) {
    const auto ref = ParseDatasetRef(value);
    if (!ref) continue;
    const auto found = datasets.find(ref->name);
    if (found == datasets.end()) {
      std::vector<std::string> names;
      for (const auto& [name, record] : datasets) names.push_back(name);
      const auto nearest = NearestWord(ref->name, names);
      Error error{.code = ErrorCode::kInvalidArgument,
                  .message = fmt::format("{}: no data set '{}' is registered", field, ref->name),
                  .hint = nearest
                              ? fmt::format("did you mean '{}'?", *nearest)
                              : "imgcli dataset register gives one a name; imgcli dataset list shows them"};
      return tl::unexpected(PlaceJobErrors({std::move(error)}, yaml, file, {}).front());
    }
    if (found->second.made_by != JobId()) unmade.push_back({field, ref->name, found->second.made_by});
    std::string address = found->second.address;
    if (!ref->below.empty()) {
      while (address.ends_with('/')) address.pop_back();
      address += ref->below;
    }
    changes.push_back({.assignment = fmt::format("{}={}", field, Quoted(address)), .shown = field});
  }
  return ChangeJobText(yaml, file, changes);
}

grpc::ServerUnaryReactor* DatasetServiceImpl::RegisterDataset(grpc::CallbackServerContext* context,
                                                              const v1::RegisterDatasetRequest* request,
                                                              v1::RegisterDatasetResponse* response) {
  auto* reactor = context->DefaultReactor();
  if (const auto checked = CheckLimits(*request); !checked) {
    reactor->Finish(ToStatus(checked.error()));
    return reactor;
  }
  const auto& asked = request->dataset();
  DatasetOrder order{.record = {.name = asked.name(),
                                .address = asked.address(),
                                .images = asked.images(),
                                .classes = asked.classes(),
                                .owner = asked.owner().empty() ? "unknown" : asked.owner()},
                     .replace = request->replace()};
  engine_->ChangeDataset(std::move(order), [response, reactor](const Result<DatasetAnswer>& answer) {
    if (!answer) {
      reactor->Finish(ToStatus(answer.error()));
      return;
    }
    *response->mutable_dataset() = ToProto(answer->record);
    response->set_existed(answer->existed);
    reactor->Finish(grpc::Status::OK);
  });
  return reactor;
}

grpc::ServerUnaryReactor* DatasetServiceImpl::ListDatasets(grpc::CallbackServerContext* context,
                                                           const v1::ListDatasetsRequest*,
                                                           v1::ListDatasetsResponse* response) {
  auto* reactor = context->DefaultReactor();
  for (const auto& [name, record] : *engine_->View()->datasets) *response->add_datasets() = ToProto(record);
  reactor->Finish(grpc::Status::OK);
  return reactor;
}

grpc::ServerUnaryReactor* DatasetServiceImpl::RemoveDataset(grpc::CallbackServerContext* context,
                                                            const v1::RemoveDatasetRequest* request,
                                                            v1::RemoveDatasetResponse*) {
  auto* reactor = context->DefaultReactor();
  DatasetOrder order{.record = {.name = request->name()}, .remove = true};
  engine_->ChangeDataset(std::move(order), [reactor](const Result<DatasetAnswer>& answer) {
    reactor->Finish(answer ? grpc::Status::OK : ToStatus(answer.error()));
  });
  return reactor;
}

}  // namespace imgd
