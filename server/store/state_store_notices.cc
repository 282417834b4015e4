#include "server/store/sql.h"
#include "server/store/state_store.h"

/// The part of state.db that is of what people are told.
namespace imgd {

void StateStore::SaveNotify(JobId job, const std::string& rules) {
  batch_->Write([&](Database& database) {
    RunSql(database, "INSERT INTO job_notify VALUES (?, ?)", Signed(job.value()), rules);
  });
}

Result<std::optional<std::string>> StateStore::NotifyOf(JobId job) {
  return database_->Guard([&] {
    auto& query = database_->Prepare("SELECT rules FROM job_notify WHERE job = ?");
    query.bind(1, Signed(job.value()));
    std::optional<std::string> rules;
    if (query.executeStep()) rules = query.getColumn(0).getString();
    query.reset();
    return rules;
  });
}

void StateStore::SaveNotice(const Notification& notice) {
  batch_->Write([&notice](Database& database) {
    RunSql(database, "INSERT OR REPLACE INTO notices VALUES (?, ?, ?, ?, ?)", notice.id,
           Signed(notice.job.value()), notice.target, notice.body, notice.created.micros);
  });
}

void StateStore::RemoveNotice(const std::string& id) {
  batch_->Write([&id](Database& database) { RunSql(database, "DELETE FROM notices WHERE id = ?", id); });
}

Result<std::vector<Notification>> StateStore::LoadNotices() {
  return database_->Guard([this] {
    std::vector<Notification> notices;
    auto& query =
        database_->Prepare("SELECT id, job, target, body, created_us FROM notices ORDER BY created_us, id");
    while (query.executeStep()) {
      notices.push_back({.id = query.getColumn(0).getString(),
                         .job = JobId(Unsigned(query.getColumn(1))),
                         .target = query.getColumn(2).getString(),
                         .body = query.getColumn(3).getString(),
                         .created = {query.getColumn(4).getInt64()}});
    }
    query.reset();
    return notices;
  });
}

}  // namespace imgd
