#include "server/store/sql.h"
#include "server/store/state_store.h"

/// The part of state.db that is of data sets.
namespace imgd {
namespace {

std::string BlobOf(const SQLite::Column& column) {
  return {static_cast<const char*>(column.getBlob()), static_cast<size_t>(column.getBytes())};
}

void SaveFacts(Database& database, const char* sql, const std::string& name, const std::string& blob) {
  auto& statement = database.Prepare(sql);
  statement.bind(1, name);
  statement.bind(2, blob.data(), static_cast<int>(blob.size()));
  statement.exec();
  statement.reset();
}

}  // namespace

Result<std::map<std::string, DatasetRecord>> StateStore::LoadDatasets() {
  return database_->Guard([this] {
    std::map<std::string, DatasetRecord> datasets;
    auto& query = database_->Prepare(
        "SELECT name, address, images, classes, owner, registered_us, made_by, progress, described_us, "
        "verified_us, broken FROM datasets");
    while (query.executeStep()) {
      const std::string name = query.getColumn(0).getString();
      datasets[name] = {.name = name,
                        .address = query.getColumn(1).getString(),
                        .images = Unsigned(query.getColumn(2)),
                        .classes = query.getColumn(3).getUInt(),
                        .owner = query.getColumn(4).getString(),
                        .registered = {query.getColumn(5).getInt64()},
                        .made_by = JobId(Unsigned(query.getColumn(6))),
                        .progress = BlobOf(query.getColumn(7)),
                        .described = {query.getColumn(8).getInt64()},
                        .verified = {query.getColumn(9).getInt64()},
                        .broken = Unsigned(query.getColumn(10))};
    }
    query.reset();
    return datasets;
  });
}

void StateStore::SaveDataset(const DatasetRecord& dataset) {
  batch_->Write([&dataset](Database& database) {
    auto& statement =
        database.Prepare("INSERT OR REPLACE INTO datasets VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)");
    BindAll(statement, 1, dataset.name, dataset.address, Signed(dataset.images), dataset.classes,
            dataset.owner, dataset.registered.micros, Signed(dataset.made_by.value()));
    statement.bind(8, dataset.progress.data(), static_cast<int>(dataset.progress.size()));
    BindAll(statement, 9, dataset.described.micros, dataset.verified.micros, Signed(dataset.broken));
    statement.exec();
    statement.reset();
  });
}

void StateStore::SaveDatasetContents(const std::string& name, const std::string& contents) {
  batch_->Write([&](Database& database) {
    SaveFacts(database,
              "INSERT INTO dataset_facts (name, contents) VALUES (?1, ?2) ON CONFLICT (name) DO UPDATE SET "
              "contents = ?2",
              name, contents);
  });
}

void StateStore::SaveDatasetVerification(const std::string& name, const std::string& verification) {
  batch_->Write([&](Database& database) {
    SaveFacts(database,
              "INSERT INTO dataset_facts (name, verification) VALUES (?1, ?2) ON CONFLICT (name) DO UPDATE "
              "SET verification = ?2",
              name, verification);
  });
}

void StateStore::RemoveDatasetFacts(const std::string& name) {
  batch_->Write(
      [&name](Database& database) { RunSql(database, "DELETE FROM dataset_facts WHERE name = ?", name); });
}

void StateStore::RemoveDataset(const std::string& name) {
  RemoveDatasetFacts(name);
  batch_->Write(
      [&name](Database& database) { RunSql(database, "DELETE FROM datasets WHERE name = ?", name); });
}

}  // namespace imgd
