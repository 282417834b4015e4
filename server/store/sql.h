#pragma once

#include <cstdint>
#include <string>

#include "server/store/database.h"

/// Small helpers of the code in store/. SQLite's integers are signed; ours are not.
namespace imgd {

inline int64_t Signed(uint64_t value) { return static_cast<int64_t>(value); }
inline uint64_t Unsigned(const SQLite::Column& column) { return static_cast<uint64_t>(column.getInt64()); }

inline void BindAll(SQLite::Statement&, int) {}
/// Binds the values to the statement's parameters from `index` on.
template <typename First, typename... Rest>
void BindAll(SQLite::Statement& statement, int index, const First& first, const Rest&... rest) {
  statement.bind(index, first);
  BindAll(statement, index + 1, rest...);
}

/// Runs a statement that gives no rows. Throws SQLite::Exception.
template <typename... Values>
void RunSql(Database& database, const std::string& sql, const Values&... values) {
  auto& statement = database.Prepare(sql);
  BindAll(statement, 1, values...);
  statement.exec();
  statement.reset();
}

}  // namespace imgd
