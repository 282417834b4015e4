#pragma once

#include <string>

namespace imgd::trainer {

/// LibTorch's version and those of CUDA and NCCL, "none" without them, on a line each, for `imgtrain
/// --libraries`. Loads the module where there is one; where that fails a line has the error.
std::string LibraryVersions();

}  // namespace imgd::trainer
