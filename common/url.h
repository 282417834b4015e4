#pragma once

#include <string>
#include <string_view>

#include "common/error.h"

namespace imgd {

/// A URL in its parts. Texts are as they are on the wire (percent-encoded) for http and https; for s3 the
/// path is the plain key.
struct Url {
  std::string scheme;    ///< "http", "https" or "s3"
  std::string userinfo;  ///< "name:password", a secret; never part of a message
  std::string host;      ///< a bucket for s3; in brackets if it is an IPv6 address
  int port = 0;          ///< 0: the scheme's own
  std::string path;      ///< begins with '/'
  std::string query;     ///< without the '?'; may hold secrets (presigned URLs)

  /// "http://host:port", without what is secret.
  std::string Origin() const;
  /// As it is asked for, without the user's name and password.
  std::string ToString() const;
  /// For messages: without the query, which may be a signature.
  std::string ForPeople() const;
};

/// Whether it begins with http://, https:// or s3://.
bool IsUrl(std::string_view where);

/// Errors: kInvalidArgument, without repeating a password, for what is none of the three or has no host.
Result<Url> ParseUrl(const std::string& text);

/// What a reply's Location means, seen from `from`. Errors: as ParseUrl.
Result<Url> Resolve(const Url& from, const std::string& location);

/// Whether a host, as in Url or "[::1]" for "::1", is this machine whoever resolves it: "localhost",
/// 127.x.x.x or ::1.
bool IsLoopbackHost(std::string host);

/// Where imgd's gRPC is, and whether it is spoken to by TLS.
struct GrpcAddress {
  std::string address;   ///< without the scheme: "gpu-head:7650"
  bool tls = false;      ///< as the scheme says; without one on every address but loopback ones
  bool is_said = false;  ///< there was a scheme
};

/// Takes "https://" or "http://", and a last '/', off the address of a server; does not look at the rest.
GrpcAddress SplitGrpcAddress(std::string_view text);

/// Every byte but letters, digits, "-._~" and those of `keep` as %XX (RFC 3986; what S3 signs).
std::string PercentEncode(std::string_view text, std::string_view keep = "");
/// The bytes that %XX stand for; what is no such escape stays.
std::string PercentDecode(std::string_view text);

/// The URL of the file `name` (plain text) in a folder's URL or path; a query stays at the end.
std::string Beside(const std::string& folder, const std::string& name);

/// The URL or path up to its last '/', without that and without a query.
std::string FolderOf(const std::string& where);
/// The plain name after the last '/' of a URL or path.
std::string NameOfFile(const std::string& where);

}  // namespace imgd
