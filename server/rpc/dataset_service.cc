#include "server/rpc/dataset_service.h"

#include "common/dataset_ref.h"
#include "common/job_changes.h"
#include "common/yaml.h"
#include "server/rpc/convert.h"
#include "server/rpc/errors.h"
#include "server/rpc/limits.h"

namespace imgd {
namespace {

/// As a YAML value: in double quotes.
std::string Quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out + '"';
}

Status FillFacts(const v1::GetDatasetRequest& request, const DatasetRecord& set, Reader& reader,
                 v1::GetDatasetResponse& out) {
  *out.mutable_dataset() = ToProto(set);
  IMGD_ASSIGN(const auto row, reader.DatasetFacts(set.name));
  auto& facts = *out.mutable_facts();
  if (!row.contents.empty()) facts.mutable_contents()->ParseFromString(row.contents);
  if (!row.verification.empty()) facts.mutable_verification()->ParseFromString(row.verification);
  if (request.described_us() != 0 && request.described_us() != facts.contents().time_us())
    return Fail(ErrorCode::kNotFound, "what was told of data set '{}' then is no longer kept", set.name);
  if (request.pictures() || !facts.has_contents()) return {};
  for (auto& sample : *facts.mutable_contents()->mutable_samples()) sample.clear_picture();
  return {};
}

}  // namespace

tl::expected<std::string, std::vector<Error>> ResolveDatasets(
    const std::string& yaml, const std::string& file, const JobSpec& spec,
    const std::map<std::string, DatasetRecord>& datasets, std::vector<UnmadeSet>& unmade) {
  std::vector<JobChange> changes;
  std::vector<Error> missing;
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
      missing.push_back(
          {.code = ErrorCode::kInvalidArgument,
           .message = fmt::format("{}: no data set '{}' is registered", field, ref->name),
           .hint = nearest ? fmt::format("did you mean '{}'?", *nearest)
                           : "imgcli dataset register gives one a name; imgcli dataset list shows them"});
      continue;
    }
    if (found->second.made_by != JobId()) unmade.push_back({field, ref->name, found->second.made_by});
    std::string address = found->second.address;
    if (!ref->below.empty()) {
      while (address.ends_with('/')) address.pop_back();
      address += ref->below;
    }
    changes.push_back({.assignment = fmt::format("{}={}", field, Quoted(address)), .shown = field});
  }
  if (!missing.empty()) return tl::unexpected(PlaceJobErrors(std::move(missing), yaml, file, {}));
  auto changed = ChangeJobText(yaml, file, changes);
  if (!changed) return tl::unexpected(std::vector<Error>{changed.error()});
  return *changed;
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

grpc::ServerUnaryReactor* DatasetServiceImpl::GetDataset(grpc::CallbackServerContext* context,
                                                         const v1::GetDatasetRequest* request,
                                                         v1::GetDatasetResponse* response) {
  auto* reactor = context->DefaultReactor();
  const auto datasets = engine_->View()->datasets;
  const auto known = datasets->find(request->name());
  if (known == datasets->end()) {
    reactor->Finish(ToStatus(Error{.code = ErrorCode::kNotFound,
                                   .message = fmt::format("there is no data set '{}'", request->name())}));
    return reactor;
  }
  const bool posted = pool_->TryPost([request, response, reactor, set = known->second](Reader& reader) {
    const auto filled = FillFacts(*request, set, reader, *response);
    reactor->Finish(filled ? grpc::Status::OK : ToStatus(filled.error()));
  });
  if (!posted) reactor->Finish(ToStatus(Busy()));
  return reactor;
}

grpc::ServerUnaryReactor* DatasetServiceImpl::ReportDataset(grpc::CallbackServerContext* context,
                                                            const v1::ReportDatasetRequest* request,
                                                            v1::ReportDatasetResponse* response) {
  auto* reactor = context->DefaultReactor();
  if (const auto checked = CheckLimits(*request); !checked) {
    reactor->Finish(ToStatus(checked.error()));
    return reactor;
  }
  DatasetOrder order{.record = {.name = request->name(),
                                .address = request->address(),
                                .owner = request->actor().empty() ? "unknown" : request->actor()},
                     .facts = request->facts()};
  engine_->ChangeDataset(std::move(order), [response, reactor](const Result<DatasetAnswer>& answer) {
    if (answer) *response->mutable_dataset() = ToProto(answer->record);
    reactor->Finish(answer ? grpc::Status::OK : ToStatus(answer.error()));
  });
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
