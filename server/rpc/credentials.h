#pragma once

#include <grpcpp/security/server_credentials.h>

#include <memory>

#include "server/auth/authority.h"
#include "server/auth/gate.h"

namespace imgd {

/// By TLS with the authority's certificate, read anew when it changes: one port for people, who show a token
/// with each call, and for agents, who show a certificate of the authority's. Each call is let in by the gate
/// or refused before it reaches its service. `gate` and what it needs must outlive the server.
std::shared_ptr<grpc::ServerCredentials> TlsPort(const Authority& authority, const Gate* gate);

/// Plain text for this machine's own users (127.0.0.1, ::1): the gate lets calls in as above, and agents, who
/// have no certificate there, as long as it is open. Connections to any other address are refused.
std::shared_ptr<grpc::ServerCredentials> LocalPort(const Gate* gate);

}  // namespace imgd
