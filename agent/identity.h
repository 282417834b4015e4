#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "common/error.h"
#include "common/files.h"
#include "imgd/v1/agent.pb.h"

namespace imgd {

/// `bytes` random bytes in lower-case hexadecimal.
std::string RandomHex(size_t bytes);

/// Makes the state folder's lock this process's own. Errors: kAlreadyExists when another agent has it.
Result<UniqueFd> LockStateDir(const std::filesystem::path& state_dir);

/// The installation's id, made at the first call for that folder.
Result<std::string> AgentId(const std::filesystem::path& state_dir);

/// Equal for processes that see the same file systems: made from the boot's id and the mount namespace.
std::string FilesystemId();

/// Whether it is there, by an absolute path; makes nothing.
Status CheckSharedFolder(const std::filesystem::path& folder);

/// The folder with the content of its marker file, `.imgd-shared-id`, which the first agent that comes by
/// makes. Errors: when the folder is not there or the marker can be neither read nor made.
Result<v1::SharedFolder> IdentifySharedFolder(const std::filesystem::path& folder);

/// Why a folder that was identified can't be used now; empty where it can. Hangs where its server does.
std::string WhyNoSharedFolder(const v1::SharedFolder& folder);

}  // namespace imgd
