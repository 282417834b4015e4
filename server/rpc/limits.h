#pragma once

#include "common/error.h"
#include "imgd/v1/admin.pb.h"
#include "imgd/v1/dataset.pb.h"
#include "imgd/v1/enrol.pb.h"
#include "imgd/v1/job.pb.h"
#include "imgd/v1/node.pb.h"
#include "imgd/v1/report.pb.h"
#include "imgd/v1/session.pb.h"
#include "imgd/v1/token.pb.h"

namespace imgd {

/// What a request may hold, checked before anything of it is stored: an answer that repeats it has to fit
/// into a message of a client that knows nothing of us (gRPC's usual limit is 4 MiB), and lines of text into
/// a terminal. Errors: kInvalidArgument with the field, what was found and what is allowed.
Status CheckLimits(const v1::SubmitJobRequest& request);
Status CheckLimits(const v1::ListJobsRequest& request);
Status CheckLimits(const v1::CancelJobRequest& request);
Status CheckLimits(const v1::DeleteJobRequest& request);
Status CheckLimits(const v1::GetSweepRequest& request);
Status CheckLimits(const v1::CancelSweepRequest& request);
Status CheckLimits(const v1::ChangeJobRequest& request);
Status CheckLimits(const v1::ProfileJobRequest& request);
Status CheckLimits(const v1::SetAsideNodeRequest& request);
Status CheckLimits(const v1::ReturnNodeRequest& request);
Status CheckLimits(const v1::ForgetNodeRequest& request);
Status CheckLimits(const v1::RegisterDatasetRequest& request);
Status CheckLimits(const v1::ReportDatasetRequest& request);
Status CheckLimits(const v1::CreateTokenRequest& request);
Status CheckLimits(const v1::CreateJoinTokenRequest& request);
Status CheckLimits(const v1::RevokeNodeRequest& request);
Status CheckLimits(const v1::BackupRequest& request);
Status CheckLimits(const v1::ReloadRequest& request);
Status CheckLimits(const v1::SessionBegin& begin);
Status CheckLimits(const v1::SessionFrame& frame);
Status CheckLimits(const v1::StartReportRequest& request);
Status CheckLimits(const v1::ReportEventsRequest& request);

}  // namespace imgd
