#pragma once

#include <map>
#include <string>

#include "trainer/torch.h"
//
#include "common/error.h"

namespace imgd::trainer {

/// Whether these are the first bytes of what torch.save() writes since PyTorch 1.6: a zip archive.
bool IsTorchFile(std::string_view text);

/// The tensors of a state dict that torch.save() wrote, alone or below "state_dict" or "model"; on the CPU,
/// whatever device they were on. Runs no code of the file. Errors: kInvalidArgument where it is none, or
/// damaged.
Result<std::map<std::string, at::Tensor>> ReadTorchFile(const std::string& text);

/// Another file in the archive; empty where there is none.
std::string TorchFileRecord(const std::string& text, const std::string& name);

}  // namespace imgd::trainer
