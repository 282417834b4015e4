#include "server/web/report_handlers.h"

#include <charconv>

#include "common/notify_rules.h"
#include "common/text.h"
#include "common/yaml.h"
#include "imgd/v1/report.pb.h"
#include "server/rpc/limits.h"
#include "server/web/errors.h"
#include "server/web/json.h"

namespace imgd::web {
namespace {

Result<JobId> JobOf(const Request& request) {
  const std::string& text = request.parameters.at("job");
  uint64_t id = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), id);
  if (error == std::errc() && end == text.data() + text.size() && id > 0 && id <= INT64_MAX) return JobId(id);
  return Fail(ErrorCode::kNotFound, "there is no job of this number");
}

/// The body as a message that keeps its limits.
template <typename Message>
Result<Message> Read(const Request& request) {
  Message message;
  IMGD_TRY(FromJson(request.body, message));
  IMGD_TRY(CheckLimits(message));
  return message;
}

/// Whom the file wants to be told. The run has begun, by a trainer that may be of another version: what can't
/// be read is passed over.
void ReadWhoIsTold(HandStartOrder& order) {
  auto file = YamlMap::Parse(order.yaml, "");
  if (!file) return;
  if (auto project = file->String("project"); project && IsName(*project))
    order.start.project = std::move(*project);
  order.notify = ReadNotifyRules(*file, "notify");
  if (order.notify) std::erase_if(*order.notify, [](const NotifyRule& rule) { return !IsName(rule.to); });
}

HandStartOrder OrderOf(const v1::StartReportRequest& message, const Request& request) {
  HandStartOrder order{.start = {.name = message.name(),
                                 .owner = message.owner().empty() ? "unknown" : message.owner(),
                                 .nodes = message.nodes(),
                                 .ranks_per_node = message.ranks_per_node(),
                                 .checkpoint_dir = message.checkpoint_dir(),
                                 .hosts = {message.hosts().begin(), message.hosts().end()},
                                 .token = request.token},
                       .yaml = message.job_yaml(),
                       .idempotency_key = message.idempotency_key()};
  ReadWhoIsTold(order);
  return order;
}

}  // namespace

Handler StartReport(Engine* engine) {
  return [engine](const Request& request, const Answer& answer) {
    const auto message = Read<v1::StartReportRequest>(request);
    if (!message) {
      answer(ErrorResponse(message.error()));
      return;
    }
    engine->StartByHand(OrderOf(*message, request), [answer](const Result<HandAnswer>& stored) {
      if (!stored) {
        answer(ErrorResponse(stored.error()));
        return;
      }
      v1::StartReportResponse response;
      response.set_job_id(stored->job.value());
      response.set_sequence(stored->sequence);
      response.set_existed(stored->existed);
      answer({.body = ToJson(response)});
    });
  };
}

Handler ReportEvents(Engine* engine) {
  return [engine](const Request& request, const Answer& answer) {
    const auto job = JobOf(request);
    auto message = Read<v1::ReportEventsRequest>(request);
    if (!job || !message) {
      answer(ErrorResponse(!job ? job.error() : message.error()));
      return;
    }
    HandReport report{.job = *job, .token = request.token, .events = std::move(*message->mutable_events())};
    engine->ReportByHand(std::move(report), [answer](const Result<HandAnswer>& stored) {
      if (!stored) {
        answer(ErrorResponse(stored.error()));
        return;
      }
      v1::ReportEventsResponse response;
      response.set_sequence(stored->sequence);
      answer({.body = ToJson(response)});
    });
  };
}

}  // namespace imgd::web
