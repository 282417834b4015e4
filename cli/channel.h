#pragma once

#include <grpcpp/grpcpp.h>

#include <memory>

#include "cli/settings.h"
#include "common/clock.h"
#include "common/tls/probe.h"

/// The way to a daemon, and what is said where it does not lead there.
namespace imgd::cli {

std::shared_ptr<grpc::Channel> MakeChannel(const ServerAddress& address);
/// Puts the address's token, where it has one, into the call.
void ShowToken(const ServerAddress& address, grpc::ClientContext& context);
tls::ProbeTarget ProbeOf(const ServerAddress& address);

/// The daemon was not there, or went away during the call: one that shuts down cancels what it has begun.
bool TellsOfOutage(const grpc::Status& status);
/// In words for people; `waited`: how long the call was given. May look at the server for a moment.
Errors ErrorsOf(const grpc::Status& status, const ServerAddress& address, Duration waited);

}  // namespace imgd::cli
