#pragma once

#include <functional>
#include <string>

#include "cli/client.h"

namespace imgd::cli {

/// The job that JOB on the command line means: a number, or a name. Of several jobs with the name it is the
/// one that has not ended; when all have, the newest. Errors: kNotFound for none (with the nearest name) and
/// for more than one that has not ended. With `on_retry` imgd is asked again in an outage, as by CancelJob.
Reply<uint64_t> FindJob(Client& client, const std::string& reference,
                        const std::function<void()>& on_retry = {});
/// All about the job that JOB means. Errors: as FindJob.
Reply<v1::GetJobResponse> GetJobOf(Client& client, const std::string& reference);

}  // namespace imgd::cli
