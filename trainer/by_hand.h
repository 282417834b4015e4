#pragma once

#include <functional>
#include <optional>
#include <string>

#include "common/error.h"
#include "common/job_file.h"
#include "trainer/environment.h"
#include "trainer/report/http_reporter.h"

namespace imgd::trainer {

/// What the command line says of telling imgd about a run that it did not start.
struct ReportArguments {
  std::string url;         ///< --report; empty: nothing is told
  std::string token_file;  ///< --report-token-file; empty: IMGD_REPORT_TOKEN
  std::string ca_file;     ///< --report-ca
};

/// What is told to imgd; nothing where nothing was asked for, where an agent does it already, and for other
/// ranks than 0, which tells it for all. `get` answers like getenv(3). Errors: kInvalidArgument, on every
/// rank, as CheckReportUrl(); on rank 0 for a token or a file of certificates that lacks.
Result<std::optional<report::HttpReport>> ReportByHand(const ReportArguments& arguments, const JobSpec& job,
                                                       const Environment& env,
                                                       const std::function<const char*(const char*)>& get);

}  // namespace imgd::trainer
