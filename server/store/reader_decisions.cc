#include <algorithm>

#include "server/store/reader.h"
#include "server/store/sql.h"

/// The record of decisions, what ran on a node, and when jobs ran.
namespace imgd {
namespace {

/// A decision with the words of the job's change that it stands for. Parameters: 1 number after which, 2 last
/// number, 3 job, 4 time, 5 node, 6 most. That a job waits for another reason has nothing to do with the node
/// that it was on before.
constexpr const char* kDecisionsSql =
    "SELECT d.number, d.time_us, d.job, e.generation, e.from_state, e.to_state, d.node, d.reason, "
    "coalesce(e.text, d.text), coalesce(e.actor, d.actor) "
    "FROM decisions d LEFT JOIN job_events e ON d.job_event <> 0 AND e.job = d.job AND e.number = "
    "d.job_event "
    "WHERE d.number > ?1 AND d.number <= ?2 AND (?3 = 0 OR d.job = ?3) AND d.time_us >= ?4 "
    "AND (?5 = '' OR d.node = ?5 OR (e.generation > 0 AND NOT (e.from_state = 1 AND e.to_state = 1) AND "
    "EXISTS "
    "(SELECT 1 FROM placements p WHERE p.node = ?5 AND p.job = d.job AND p.generation = e.generation))) "
    "ORDER BY d.number";

/// A run begins when its job is STARTING (2) and ends when it is none of STARTING, RUNNING and PREEMPTING.
constexpr const char* kNodeRunsSql =
    "SELECT p.job, j.name, p.generation, p.first_rank, p.ranks, "
    "(SELECT min(e.time_us) FROM job_events e WHERE e.job = p.job AND e.generation = p.generation AND "
    "e.to_state = 2) AS started, ended.time_us, ended.text "
    "FROM placements p JOIN jobs j ON j.id = p.job LEFT JOIN job_events ended ON ended.job = p.job AND "
    "ended.number = (SELECT min(e.number) FROM job_events e WHERE e.job = p.job AND "
    "e.generation = p.generation AND e.from_state IN (2, 3, 4) AND e.to_state NOT IN (2, 3, 4)) "
    "WHERE p.node = ?1 ORDER BY started DESC, p.job DESC, p.generation DESC LIMIT ?2";

/// The same of jobs: their starts.
constexpr const char* kStartsSql =
    "SELECT j.id, j.owner, j.device_seconds, j.cost, "
    "min(e.time_us) FILTER (WHERE e.to_state = 2) AS started, "
    "min(e.time_us) FILTER (WHERE e.from_state IN (2, 3, 4) AND e.to_state NOT IN (2, 3, 4)), "
    "(SELECT sum(p.ranks) FROM placements p WHERE p.job = j.id AND p.generation = e.generation), "
    "iif(j.ended_us = 0, j.run ->> '$.charged_us', 0) "
    "FROM jobs j JOIN job_events e ON e.job = j.id "
    "WHERE (j.ended_us = 0 OR (j.device_seconds > 0 AND j.ended_us > ?1)) "
    "GROUP BY j.id, e.generation HAVING started IS NOT NULL ORDER BY j.id, e.generation";

/// The same of jobs that were deleted.
constexpr const char* kStartsOfDeletedSql =
    "SELECT 0, owner, device_seconds, cost, started_us, ended_us, 1, 0 FROM use_of_deleted "
    "WHERE ended_us > ?1";

}  // namespace

Result<std::vector<StoredDecision>> Reader::Decisions(const DecisionFilter& filter) {
  return state_.Guard([&] {
    auto& query =
        state_.Prepare(std::string(kDecisionsSql) + (filter.newest ? " DESC LIMIT ?6" : " LIMIT ?6"));
    BindAll(query, 1, Signed(filter.after), Signed(filter.last), Signed(filter.job.value()), filter.since_us,
            filter.node, Signed(filter.most));
    std::vector<StoredDecision> out;
    while (query.executeStep()) {
      // Of no change of a job, the columns of its history are null, which reads as zero.
      out.push_back({.number = Unsigned(query.getColumn(0)),
                     .time_us = query.getColumn(1).getInt64(),
                     .job = JobId(Unsigned(query.getColumn(2))),
                     .generation = Generation(Unsigned(query.getColumn(3))),
                     .from = query.getColumn(4).getInt(),
                     .to = query.getColumn(5).getInt(),
                     .node = query.getColumn(6).getString(),
                     .reason = query.getColumn(7).getInt(),
                     .text = query.getColumn(8).getString(),
                     .actor = query.getColumn(9).getString()});
    }
    query.reset();
    if (filter.newest) std::reverse(out.begin(), out.end());
    return out;
  });
}

Result<std::pair<uint64_t, uint64_t>> Reader::DecisionRange() {
  return state_.Guard([&] {
    auto& query =
        state_.Prepare("SELECT (SELECT min(number) FROM decisions), (SELECT max(number) FROM decisions)");
    query.executeStep();
    const std::pair range{Unsigned(query.getColumn(0)), Unsigned(query.getColumn(1))};
    query.reset();
    return range;
  });
}

Result<std::vector<NodeRunRow>> Reader::NodeRuns(const NodeId& node, size_t most) {
  return state_.Guard([&] {
    auto& query = state_.Prepare(kNodeRunsSql);
    BindAll(query, 1, node.name(), Signed(most));
    std::vector<NodeRunRow> out;
    while (query.executeStep()) {
      out.push_back({.run = {JobId(Unsigned(query.getColumn(0))), Generation(Unsigned(query.getColumn(2)))},
                     .job_name = query.getColumn(1).getString(),
                     .first_rank = query.getColumn(3).getUInt(),
                     .ranks = query.getColumn(4).getUInt(),
                     .started_us = query.getColumn(5).getInt64(),
                     .ended_us = query.getColumn(6).getInt64(),
                     .ended_text = query.getColumn(7).getString()});
    }
    query.reset();
    return out;
  });
}

Result<std::vector<StartUse>> Reader::Starts(int64_t since_us) {
  return state_.Guard([&] {
    std::vector<StartUse> out;
    for (const char* sql : {kStartsSql, kStartsOfDeletedSql}) {
      auto& query = state_.Prepare(sql);
      BindAll(query, 1, since_us);
      while (query.executeStep()) {
        out.push_back({.job = JobId(Unsigned(query.getColumn(0))),
                       .owner = query.getColumn(1).getString(),
                       .device_seconds = query.getColumn(2).getDouble(),
                       .cost = query.getColumn(3).getDouble(),
                       .started_us = query.getColumn(4).getInt64(),
                       .ended_us = query.getColumn(5).getInt64(),
                       .ranks = query.getColumn(6).getUInt(),
                       .counted_us = query.getColumn(7).getInt64()});
      }
      query.reset();
    }
    return out;
  });
}

}  // namespace imgd
