#pragma once

#include <grpcpp/grpcpp.h>

#include <memory>
#include <string>

#include "agent/node_key.h"
#include "common/error.h"

namespace imgd {

/// A channel to imgd at `server` (host:port), shared with nobody.
std::shared_ptr<grpc::Channel> MakeChannel(const std::string& server,
                                           const std::shared_ptr<grpc::ChannelCredentials>& credentials);

/// What imgd is spoken to with, for a node that shows this.
std::shared_ptr<grpc::ChannelCredentials> CredentialsOf(const NodeTls& shown);

/// The same at one go; `node_key` is null for plain text. Errors: as NodeKey::Get().
Result<std::shared_ptr<grpc::Channel>> ChannelToImgd(const std::string& server, NodeKey* node_key);

}  // namespace imgd
