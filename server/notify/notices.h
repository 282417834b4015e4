#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/notify_rules.h"
#include "server/core/actions.h"
#include "server/core/types.h"
#include "server/notify/notify_config.h"
#include "server/store/notification.h"

/// What people are told of a job's changes, and who is. Pure.
namespace imgd {

/// What the change is to people; nothing for most. A job that goes back to the queue since it had to make
/// room, or since its node is taken back, was preempted; since its ranks stood still, it was stalled.
std::optional<NoticeEvent> NoticeEventOf(const AppendEvent& event);

/// Rules as job_notify has them, and back. What can't be read is left out.
std::string EncodeRules(const std::vector<NotifyRule>& rules);
std::vector<NotifyRule> DecodeRules(const std::string& text);

/// Names of the targets that are told: by the job's own rules (as EncodeRules has them) where there are some,
/// else by the operator's. Those that imgd.yaml no longer has are left out.
std::vector<std::string> TargetsOf(const NotifyConfig& config, const std::optional<std::string>& own,
                                   const JobRecord& job, NoticeEvent event);

/// `number`: of the change, in the job's history.
Notification MakeNotice(const NotifyConfig& config, const std::string& cluster, const JobRecord& job,
                        const AppendEvent& event, uint64_t number, const std::string& target);

}  // namespace imgd
