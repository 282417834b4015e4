#pragma once

#include <filesystem>
#include <memory>

#include "common/clock.h"
#include "common/error.h"
#include "trainer/report/reporter.h"

namespace imgd::report {

/// Reports by events in `<run_dir>/events.<local_rank>` (proto/imgd/v1/trainer.proto). The numbers go on
/// where an existing file ends. `clock` must outlive the reporter.
/// Errors: as EventsFile::Open; kDataLoss where the file's last frame is no event.
Result<std::unique_ptr<Reporter>> MakeRunDirReporter(const std::filesystem::path& run_dir, int local_rank,
                                                     const Clock& clock);

}  // namespace imgd::report
