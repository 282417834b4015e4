#include <fmt/format.h>

#include <algorithm>

#include "cli/commands.h"
#include "cli/format.h"
#include "cli/serialize.h"
#include "imgd/v1/usage.pb.h"

namespace imgd::cli {
namespace {

bool IsProject(const v1::AccountUsage& account) { return account.kind() == v1::ACCOUNT_KIND_PROJECT; }

std::string AmountText(uint32_t amount, uint32_t most) {
  return most == 0 ? std::to_string(amount) : fmt::format("{} of {}", amount, most);
}

std::string_view PeriodText(v1::QuotaPeriod period) {
  switch (period) {
    case v1::QUOTA_PERIOD_DAY:
      return "today";
    case v1::QUOTA_PERIOD_WEEK:
      return "this week";
    case v1::QUOTA_PERIOD_TOTAL:
      return "in all";
    default:
      return "this month";
  }
}

/// Of so small a budget two decimals would show nothing.
int DecimalsFor(const v1::BudgetUsage& budget) { return budget.most() > 0 && budget.most() < 1 ? 4 : 2; }

/// "12.50 of 100 this month".
std::string UsedText(const v1::BudgetUsage& budget) {
  const std::string most = budget.most() > 0 ? fmt::format(" of {}", budget.most()) : "";
  return fmt::format("{:.{}f}{} {}", budget.used(), DecimalsFor(budget), most, PeriodText(budget.period()));
}

/// Nothing where there is no quota.
Cell LeftCell(const v1::BudgetUsage& budget) {
  if (budget.most() <= 0) return Cell("");
  const double left = std::max(budget.most() - budget.used(), 0.0);
  return Cell(fmt::format("{:.{}f}", left, DecimalsFor(budget)), left > 0 ? Style::kPlain : Style::kBad);
}

/// When the quotas of what is used begin anew, the first of them; nothing where there are none, or never.
std::string AnewText(const v1::AccountUsage& account) {
  int64_t next = 0;
  for (const auto* budget : {&account.device_hours(), &account.spend()}) {
    if (budget->most() > 0 && budget->until_us() > 0)
      next = next == 0 ? budget->until_us() : std::min(next, budget->until_us());
  }
  return next == 0 ? "" : LocalTime(next);
}

void PrintUsageTable(Context& context, const v1::ListUsageResponse& usage, bool wide) {
  std::vector<Column> columns = {{"KIND"},
                                 {.title = "NAME", .shrink = true},
                                 {"DEVICES", true},
                                 {"WAITING", true},
                                 {"DEVICE-HOURS", true},
                                 {"LEFT", true},
                                 {usage.currency().empty() ? "SPENT" : "SPENT, " + usage.currency(), true},
                                 {"LEFT", true},
                                 {"ANEW FROM"}};
  if (wide) columns.insert(columns.end(), {{"RECENT HOURS", true}, {"SHARE", true}});
  Table table(std::move(columns));
  for (const auto& account : usage.accounts()) {
    std::vector<Cell> row = {Cell(IsProject(account) ? "project" : "user"),
                             Cell(Printable(account.name())),
                             Cell(AmountText(account.devices(), account.most_devices())),
                             Cell(AmountText(account.queued(), account.most_queued())),
                             Cell(UsedText(account.device_hours())),
                             LeftCell(account.device_hours()),
                             Cell(UsedText(account.spend())),
                             LeftCell(account.spend()),
                             Cell(AnewText(account))};
    if (wide) {
      row.emplace_back(fmt::format("{:.2f}", account.recent_device_hours()));
      row.emplace_back(account.share() > 0 ? fmt::format("{}", account.share()) : "");
    }
    table.Add(std::move(row));
  }
  table.Print(context.out(), context.terminal());
}

int RunUsage(Context& context, const std::string& by, OutputFormat format) {
  auto client = context.client();
  if (!client) return context.Fail(client.error());
  auto usage = (*client)->ListUsage();
  if (!usage) return context.Fail(usage.error());
  context.Warn(usage->warning());
  auto& accounts = *usage->mutable_accounts();
  if (!by.empty()) {
    const auto others = std::remove_if(accounts.begin(), accounts.end(), [&by](const auto& account) {
      return IsProject(account) != (by == "project");
    });
    accounts.erase(others, accounts.end());
  }
  if (format == OutputFormat::kJson || format == OutputFormat::kYaml) {
    PrintDocument(context.out(), ToJson(*usage), format);
  } else if (accounts.empty()) {
    context.Say("nobody has had anything yet");
  } else {
    PrintUsageTable(context, *usage, format == OutputFormat::kWide);
  }
  return 0;
}

}  // namespace

void AddUsageCommand(Command app, Context& context) {
  struct Options {
    std::string by;
    OutputFormat format = OutputFormat::kTable;
  };
  auto options = std::make_shared<Options>();
  Command command =
      app.AddSubcommand("usage", "Show what users and projects have had, and what their quotas leave them");
  command.AddOption("--by", options->by, "Only users, or only projects")
      .ValueName("KIND")
      .OneOf({"user", "project"});
  AddOutputOption(command, options->format);
  command.Footer(
      "Device-hours and what was spent are of the quota's period, or of this month where there is no quota;\n"
      "periods begin at midnight UTC. -o wide adds the hours that turns depend on,\n"
      "and the shares by which.\n\n"
      "Examples:\n"
      "  imgcli usage --by project\n"
      "  imgcli usage -o json | jq '.accounts[] | select(.name == \"ada\") | .spend.used'");
  command.Runs([&context, options] { return RunUsage(context, options->by, options->format); });
}

}  // namespace imgd::cli
