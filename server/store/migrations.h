#pragma once

#include <string>
#include <vector>

namespace imgd {

/// One step of a database's schema. Numbers are those of the file names, from 1 without gaps.
struct Migration {
  int number;
  const char* name;
  const char* sql;
};

/// Those of state.db and of metrics.db, in order.
const std::vector<Migration>& StateMigrations();
const std::vector<Migration>& MetricsMigrations();

}  // namespace imgd
