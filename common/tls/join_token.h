#pragma once

#include <string>

#include "common/error.h"

namespace imgd::tls {

/// What a node joins by, as a text: "imgd-join-SECRET-CA_SHA256".
struct JoinToken {
  std::string secret;
  std::string ca_sha256;  ///< of the CA that imgd is to have, as in CertificateFacts
};

std::string ToText(const JoinToken& token);
/// Blanks around it do not matter. Errors: kInvalidArgument, without repeating it.
Result<JoinToken> ParseJoinToken(std::string_view text);

/// The SHA-256 of a CA as people have it: "sha256:AB:CD...", "ab:cd...", "abcd...". As in CertificateFacts.
/// Errors: kInvalidArgument.
Result<std::string> ParseCaHash(std::string_view text);

}  // namespace imgd::tls
