#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/app.h"
#include "cli/command_line.h"
#include "cli/output.h"
#include "trainer/data/verify.h"

namespace imgd::cli {

/// Adds `dataset info`, `verify`, `stats` and `inspect` to the `dataset` command.
void AddLookCommands(Command dataset, Context& context);

struct VerifyArguments {
  std::string where;  ///< also "dataset:NAME", a set as imgd calls it, which is told what was found
  bool decode = false;
  bool all = false;      ///< show everything that is broken
  uint64_t classes = 0;  ///< 0: any number
  int jobs = 0;          ///< 0: one for each core
  OutputFormat format = OutputFormat::kTable;
};
int Verify(Context& context, const VerifyArguments& arguments);
/// One part, with a line of progress; `told` hears of it too. Errors: those of data::VerifyDataset.
Result<data::VerifyReport> VerifyPart(Context& context, const std::string& where,
                                      const VerifyArguments& arguments,
                                      const data::VerifyProgress& told = {});
void PrintReport(Context& context, const std::string& set, bool all, const data::VerifyReport& report);
inline constexpr int kBrokenExit = 6;  ///< docs/exit-codes.md

struct StatsArguments {
  std::string where;
  uint64_t sample = 20'000;  ///< 0: all
  int jobs = 0;
  OutputFormat format = OutputFormat::kTable;
};
int Stats(Context& context, const StatsArguments& arguments);

struct InspectArguments {
  std::string file;
  uint64_t limit = 20;  ///< 0: all
  OutputFormat format = OutputFormat::kTable;
};
int Inspect(Context& context, const InspectArguments& arguments);

/// The sets in the folder or URL (data::PartsOf: train/, and val/ or validation/); else what was named
/// itself.
std::vector<std::string> SetsIn(const std::string& where);

/// Threads: as asked for, or one for each core.
int JobsOf(int asked);

}  // namespace imgd::cli
