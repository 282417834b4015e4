#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "agent/run_dir.h"
#include "common/error.h"
#include "imgd/v1/common.pb.h"

namespace imgd {

/// The program that this process runs.
std::filesystem::path OwnProgram();

/// The program of this name beside the one of this process, or else in PATH; empty where there is none.
std::filesystem::path FindProgram(std::string_view name);

/// What each rank of a job runs, by its file; nothing in it for training, which is the trainer's. `converter`
/// is imgcli; empty: the one that FindProgram() finds.
/// Errors: kInvalidArgument for a file that is none, kNotFound without a converter.
Result<RunProgram> ProgramOf(v1::JobKind kind, const std::string& job_yaml,
                             const std::filesystem::path& converter);

/// Where the program runs: where the job says, else in the job's own folder; empty where that is in a bucket.
std::string FolderOfProgram(const std::string& checkpoint_dir, const RunProgram& program);

/// Makes the job's own folder where the program may keep files there. Errors: what kept the folder from being
/// made; kNotFound where that of FolderOfProgram() is not there.
Status PrepareFolders(const std::string& checkpoint_dir, const RunProgram& program);

/// The file that `name` means, by the PATH of `environment` ("NAME=value") where it has no '/'.
/// Errors: kNotFound, naming it.
Result<std::string> ResolveProgram(const std::string& name, const std::vector<std::string>& environment);

}  // namespace imgd
