#include "server/store/sql.h"
#include "server/store/state_store.h"

/// The part of state.db that is of join tokens and of the keys of nodes.
namespace imgd {

void StateStore::LoadInstances(Admissions& out) {
  auto& rows = database_->Prepare(
      "SELECT id, account, region, image, started_us, node, key_hash, joined_us, leave FROM ec2_instances");
  while (rows.executeStep()) {
    const std::string id = rows.getColumn(0).getString();
    out.instances[id] = {.instance = {.id = id,
                                      .account = rows.getColumn(1).getString(),
                                      .region = rows.getColumn(2).getString(),
                                      .image = rows.getColumn(3).getString(),
                                      .started = {rows.getColumn(4).getInt64()}},
                         .node = rows.getColumn(5).getString(),
                         .key_hash = rows.getColumn(6).getString(),
                         .joined = {rows.getColumn(7).getInt64()},
                         .leave = static_cast<InstanceLeave>(rows.getColumn(8).getInt())};
  }
  rows.reset();
}

Result<Admissions> StateStore::LoadAdmissions() {
  return database_->Guard([this] {
    Admissions out;
    auto& tokens = database_->Prepare(
        "SELECT id, hash, owner, uses, uses_left, created_us, expires_us FROM join_tokens");
    while (tokens.executeStep()) {
      const std::string id = tokens.getColumn(0).getString();
      out.tokens[id] = {.id = id,
                        .hash = tokens.getColumn(1).getString(),
                        .owner = tokens.getColumn(2).getString(),
                        .uses = tokens.getColumn(3).getUInt(),
                        .uses_left = tokens.getColumn(4).getUInt(),
                        .created = {tokens.getColumn(5).getInt64()},
                        .expires = {tokens.getColumn(6).getInt64()},
                        .joined = {}};
    }
    tokens.reset();
    auto& uses = database_->Prepare("SELECT token, node, address, time_us FROM join_uses ORDER BY rowid");
    while (uses.executeStep()) {
      const auto token = out.tokens.find(uses.getColumn(0).getString());
      if (token == out.tokens.end()) continue;
      token->second.joined.push_back(
          {uses.getColumn(1).getString(), uses.getColumn(2).getString(), {uses.getColumn(3).getInt64()}});
    }
    uses.reset();
    auto& keys = database_->Prepare(
        "SELECT node, agent_id, key_hash, token, joined_us, expires_us, revoked FROM node_keys");
    while (keys.executeStep()) {
      const std::string node = keys.getColumn(0).getString();
      out.nodes[node] = {.node = node,
                         .agent_id = keys.getColumn(1).getString(),
                         .key_hash = keys.getColumn(2).getString(),
                         .token = keys.getColumn(3).getString(),
                         .joined = {keys.getColumn(4).getInt64()},
                         .expires = {keys.getColumn(5).getInt64()},
                         .revoked = keys.getColumn(6).getInt() != 0};
    }
    keys.reset();
    LoadInstances(out);
    return out;
  });
}

void StateStore::SaveJoinToken(const JoinTokenRecord& token) {
  batch_->Write([&token](Database& database) {
    RunSql(database, "INSERT OR REPLACE INTO join_tokens VALUES (?, ?, ?, ?, ?, ?, ?)", token.id, token.hash,
           token.owner, token.uses, token.uses_left, token.created.micros, token.expires.micros);
  });
}

void StateStore::RemoveJoinToken(const std::string& id) {
  batch_->Write([&id](Database& database) {
    RunSql(database, "DELETE FROM join_uses WHERE token = ?", id);
    RunSql(database, "DELETE FROM join_tokens WHERE id = ?", id);
  });
}

void StateStore::SaveJoinUse(const std::string& token, const JoinUse& use) {
  batch_->Write([&](Database& database) {
    RunSql(database, "INSERT INTO join_uses VALUES (?, ?, ?, ?)", token, use.node, use.address,
           use.at.micros);
  });
}

void StateStore::SaveNodeKey(const NodeKeyRecord& key) {
  batch_->Write([&key](Database& database) {
    RunSql(database, "INSERT OR REPLACE INTO node_keys VALUES (?, ?, ?, ?, ?, ?, ?)", key.node, key.agent_id,
           key.key_hash, key.token, key.joined.micros, key.expires.micros, key.revoked ? 1 : 0);
  });
}

void StateStore::SaveInstance(const InstanceRecord& record) {
  batch_->Write([&record](Database& database) {
    const Ec2Instance& instance = record.instance;
    RunSql(database, "INSERT OR REPLACE INTO ec2_instances VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", instance.id,
           instance.account, instance.region, instance.image, instance.started.micros, record.node,
           record.key_hash, record.joined.micros, static_cast<int>(record.leave));
  });
}

void StateStore::RemoveInstance(const std::string& id) {
  batch_->Write(
      [&id](Database& database) { RunSql(database, "DELETE FROM ec2_instances WHERE id = ?", id); });
}

}  // namespace imgd
