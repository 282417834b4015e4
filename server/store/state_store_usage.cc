#include "server/store/sql.h"
#include "server/store/state_store.h"

/// The part of state.db that is of what users and projects have had.
namespace imgd {

Result<std::map<std::string, Usage>> StateStore::LoadUsage() {
  return database_->Guard([this] {
    std::map<std::string, Usage> usage;
    auto& query = database_->Prepare("SELECT owner, device_seconds, at_us FROM usage");
    while (query.executeStep()) {
      usage[query.getColumn(0).getString()] = {query.getColumn(1).getDouble(),
                                               {query.getColumn(2).getInt64()}};
    }
    query.reset();
    return usage;
  });
}

void StateStore::SaveUsage(const std::string& owner, const Usage& usage) {
  batch_->Write([&](Database& database) {
    RunSql(database, "INSERT OR REPLACE INTO usage (owner, device_seconds, at_us) VALUES (?, ?, ?)", owner,
           usage.device_seconds, usage.at.micros);
  });
}

void StateStore::RemoveUsage(const std::string& owner) {
  batch_->Write(
      [&owner](Database& database) { RunSql(database, "DELETE FROM usage WHERE owner = ?", owner); });
}

Result<std::map<std::string, Account>> StateStore::LoadAccounts() {
  return database_->Guard([this] {
    std::map<std::string, Account> accounts;
    auto& query =
        database_->Prepare("SELECT name, period, since_us, device_seconds, cost, last_us FROM accounts");
    while (query.executeStep()) {
      const int period = query.getColumn(1).getInt();
      if (period < 1 || period > static_cast<int>(kPeriods.size())) continue;
      Account& account = accounts[query.getColumn(0).getString()];
      account.Put(static_cast<Period>(period), {.since = {query.getColumn(2).getInt64()},
                                                .device_seconds = query.getColumn(3).getDouble(),
                                                .cost = query.getColumn(4).getDouble()});
      account.PutLast({query.getColumn(5).getInt64()});
    }
    query.reset();
    return accounts;
  });
}

void StateStore::SaveAccount(const std::string& name, const Account& account) {
  batch_->Write([&](Database& database) {
    for (const Period period : kPeriods) {
      const Tally& tally = account.Of(period);
      RunSql(database, "INSERT OR REPLACE INTO accounts VALUES (?, ?, ?, ?, ?, ?)", name,
             static_cast<int>(period), tally.since.micros, tally.device_seconds, tally.cost,
             account.last().micros);
    }
  });
}

void StateStore::RemoveAccount(const std::string& name) {
  batch_->Write(
      [&name](Database& database) { RunSql(database, "DELETE FROM accounts WHERE name = ?", name); });
}

}  // namespace imgd
