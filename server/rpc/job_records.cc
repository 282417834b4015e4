#include "server/rpc/checkpoint_list.h"
#include "server/rpc/errors.h"
#include "server/rpc/job_service.h"
#include "server/rpc/limits.h"

/// What imgd keeps of a job beside its states: checkpoints, figures of classes; and that all of it goes.
namespace imgd {
namespace {

/// Of which pictures may be asked for; the store keeps no more.
constexpr size_t kMostSamples = 3;

Status FillClasses(JobId id, Reader& reader, v1::GetClassesResponse& out) {
  IMGD_ASSIGN(const auto row, reader.Job(id, false));
  if (!row) return tl::unexpected(NoJob(id));
  IMGD_ASSIGN(const auto event, reader.Latest(id, EventKind::kClasses));
  if (event) out.mutable_figures()->ParseFromString(event->payload);
  return {};
}

/// The pictures of older events are gone with them.
Status FillSamples(const v1::GetSamplesRequest& request, Reader& reader, v1::GetSamplesResponse& out) {
  const JobId id(request.id());
  IMGD_ASSIGN(const auto row, reader.Job(id, false));
  if (!row) return tl::unexpected(NoJob(id));
  IMGD_ASSIGN(const auto events, reader.Newest(id, EventKind::kSamples, kMostSamples));
  for (const auto& event : events) {
    if (request.event() != 0 && request.event() != event.number) continue;
    out.mutable_samples()->ParseFromString(event.payload);
    out.set_event(event.number);
    break;
  }
  if (request.event() != 0 && !out.has_samples()) {
    return Fail(ErrorCode::kNotFound, "images of event {} of job {} are not kept", request.event(), id);
  }
  if (out.has_samples() && !request.pictures()) {
    for (auto& image : *out.mutable_samples()->mutable_images()) image.clear_picture();
  }
  return {};
}

grpc::Status StatusOfRecord(const Status& status) {
  return status ? grpc::Status::OK : ToStatus(status.error());
}

}  // namespace

grpc::ServerUnaryReactor* JobServiceImpl::DeleteJob(grpc::CallbackServerContext* context,
                                                    const v1::DeleteJobRequest* request,
                                                    v1::DeleteJobResponse*) {
  auto* reactor = context->DefaultReactor();
  if (const auto checked = CheckLimits(*request); !checked) {
    reactor->Finish(ToStatus(checked.error()));
    return reactor;
  }
  const std::string actor = request->actor().empty() ? "unknown" : request->actor();
  engine_->Delete(JobId(request->id()), fmt::format("user:{}", actor),
                  [reactor](const Status& status) { reactor->Finish(StatusOfRecord(status)); });
  return reactor;
}

grpc::ServerUnaryReactor* JobServiceImpl::ListCheckpoints(grpc::CallbackServerContext* context,
                                                          const v1::ListCheckpointsRequest* request,
                                                          v1::ListCheckpointsResponse* response) {
  auto* reactor = context->DefaultReactor();
  const bool posted =
      pool_->TryPostSlow(ReadPool::Lane::kFolders, [request, response, reactor](Reader& reader) {
        reactor->Finish(StatusOfRecord(FillCheckpoints(JobId(request->id()), reader, *response)));
      });
  if (!posted) reactor->Finish(ToStatus(Busy()));
  return reactor;
}

grpc::ServerUnaryReactor* JobServiceImpl::GetClasses(grpc::CallbackServerContext* context,
                                                     const v1::GetClassesRequest* request,
                                                     v1::GetClassesResponse* response) {
  auto* reactor = context->DefaultReactor();
  const bool posted = pool_->TryPost([request, response, reactor](Reader& reader) {
    reactor->Finish(StatusOfRecord(FillClasses(JobId(request->id()), reader, *response)));
  });
  if (!posted) reactor->Finish(ToStatus(Busy()));
  return reactor;
}

grpc::ServerUnaryReactor* JobServiceImpl::GetSamples(grpc::CallbackServerContext* context,
                                                     const v1::GetSamplesRequest* request,
                                                     v1::GetSamplesResponse* response) {
  auto* reactor = context->DefaultReactor();
  const bool posted = pool_->TryPost([request, response, reactor](Reader& reader) {
    reactor->Finish(StatusOfRecord(FillSamples(*request, reader, *response)));
  });
  if (!posted) reactor->Finish(ToStatus(Busy()));
  return reactor;
}

}  // namespace imgd
