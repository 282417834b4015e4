#pragma once

#include <cstdint>
#include <string>

#include "agent/session/session_process.h"
#include "agent/session/session_pump.h"
#include "common/error.h"

namespace imgd {

/// A TensorBoard that is to be started, on a port of the node's loopback that was free a moment ago.
struct TensorBoardStart {
  SessionProgram program;
  uint32_t port = 0;
};

/// `program`: its path; empty: the one in PATH. `figures`: the folder with what it shows.
/// Errors: kFailedPrecondition where there is no such program.
Result<TensorBoardStart> TensorBoardFor(const std::string& program, const std::string& figures);

/// Waits until somebody listens on the port; false when the program ended before, or took too long, which the
/// pump's end then says with the last that it wrote.
bool AwaitTensorBoard(SessionPump& pump, uint32_t port);

}  // namespace imgd
