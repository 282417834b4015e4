#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/checkpoint/safetensors.h"
#include "common/error.h"

namespace imgd {

/// Writes what torch.save() writes of a state dict, so that torch.load(weights_only=True) gives an
/// OrderedDict of CPU tensors in the order given: a zip archive of stored files, aligned to 64 bytes, with a
/// pickle of protocol 2. `extra` are more files in it (name and content), which torch.load passes over.
/// `write` gets the archive piece by piece. Sources: PyTorch's torch/serialization.py and
/// caffe2/serialize/inline_container.cc; PKWARE's APPNOTE.TXT. Errors: kInvalidArgument for a type that
/// PyTorch has no storage for, or an archive of 4 GiB or more; those of `write`.
Status WriteTorchFile(const std::vector<TensorView>& tensors,
                      const std::vector<std::pair<std::string, std::string_view>>& extra,
                      const std::function<Status(std::string_view)>& write);

}  // namespace imgd
