#include "server/rpc/usage_service.h"

#include <algorithm>

#include "server/rpc/errors.h"
#include "server/rpc/usage_over_time.h"

namespace imgd {
namespace {

static_assert(static_cast<int>(Period::kDay) == v1::QUOTA_PERIOD_DAY);
static_assert(static_cast<int>(Period::kWeek) == v1::QUOTA_PERIOD_WEEK);
static_assert(static_cast<int>(Period::kMonth) == v1::QUOTA_PERIOD_MONTH);
static_assert(static_cast<int>(Period::kTotal) == v1::QUOTA_PERIOD_TOTAL);

constexpr std::string_view kUserPrefix = "user ";

void FillBudget(const AccountUse& use, const Budget& budget, bool spend, WallTime now, v1::BudgetUsage& out) {
  const Tally tally = use.used.In(budget.per, now);
  const PeriodSpan span = SpanAt(budget.per, now);
  out.set_period(static_cast<v1::QuotaPeriod>(budget.per));
  out.set_used(spend ? tally.cost : tally.device_seconds / 3600);
  out.set_most(budget.most);
  out.set_since_us(span.from.micros);
  if (span.until) out.set_until_us(span.until->micros);
}

void FillAccount(const AccountUse& use, WallTime now, v1::AccountUsage& out) {
  const bool user = use.account.starts_with(kUserPrefix);
  out.set_kind(user ? v1::ACCOUNT_KIND_USER : v1::ACCOUNT_KIND_PROJECT);
  out.set_name(use.account.substr(use.account.find(' ') + 1));
  out.set_devices(use.devices);
  out.set_most_devices(use.quota.devices);
  out.set_queued(use.queued);
  out.set_most_queued(use.quota.queued);
  out.set_recent_device_hours(use.recent_device_seconds / 3600);
  out.set_share(use.share);
  FillBudget(use, use.quota.device_hours, false, now, *out.mutable_device_hours());
  FillBudget(use, use.quota.spend, true, now, *out.mutable_spend());
}

}  // namespace

grpc::ServerUnaryReactor* UsageServiceImpl::ListUsage(grpc::CallbackServerContext* context,
                                                      const v1::ListUsageRequest*,
                                                      v1::ListUsageResponse* response) {
  auto* reactor = context->DefaultReactor();
  const auto view = engine_->View();
  response->set_currency(view->snapshot.currency);
  response->set_warning(view->trouble);
  engine_->ListUsage([this, response, reactor](Result<std::vector<AccountUse>> accounts) {
    if (!accounts) {
      reactor->Finish(ToStatus(accounts.error()));
      return;
    }
    std::stable_partition(accounts->begin(), accounts->end(),
                          [](const AccountUse& use) { return use.account.starts_with(kUserPrefix); });
    for (const auto& use : *accounts) FillAccount(use, clock_->Wall(), *response->add_accounts());
    reactor->Finish(grpc::Status::OK);
  });
  return reactor;
}

grpc::ServerUnaryReactor* UsageServiceImpl::ListUsageOverTime(grpc::CallbackServerContext* context,
                                                              const v1::ListUsageOverTimeRequest* request,
                                                              v1::ListUsageOverTimeResponse* response) {
  auto* reactor = context->DefaultReactor();
  const bool posted =
      pool_->TryPostSlow(ReadPool::Lane::kWork, [this, request, response, reactor](Reader& reader) {
        const auto filled = FillUsageOverTime(*request, clock_->Wall(), reader, *response);
        reactor->Finish(filled ? grpc::Status::OK : ToStatus(filled.error()));
      });
  if (!posted) reactor->Finish(ToStatus(Busy()));
  return reactor;
}

}  // namespace imgd
