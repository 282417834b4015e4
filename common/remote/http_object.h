#pragma once

#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>

#include "common/remote/http_client.h"

namespace imgd {

/// Puts into a request what shows that it is allowed: a password, a signature. Thread-safe.
class Authorizer {
 public:
  virtual ~Authorizer() = default;
  virtual Status Sign(HttpRequest& request) = 0;
  /// The server took the credentials for expired. True: there may be fresh ones now.
  virtual bool Renew() { return false; }
};

/// Something on a server, and how to ask for it.
struct RemoteObject {
  std::shared_ptr<const HttpClient> client;
  std::shared_ptr<Authorizer> authorizer;  ///< may be null
  Url url;                                 ///< http or https
  std::string name;                        ///< in messages; what the user wrote, without secrets
  bool follow = true;                      ///< redirects; a signature would not fit another address
};

/// What is asked of an object.
struct ObjectRequest {
  std::string method = "GET";
  std::string query;  ///< of the object's URL; encoded
  HttpHeaders headers;
  std::string_view body;  ///< of PUT and POST
};

/// One try of a request for the object, signed; a second one where the credentials had expired.
tl::expected<HttpAnswer, HttpTrouble> TryOnce(const RemoteObject& object, const ObjectRequest& asked,
                                              const HttpBody& body, const std::stop_token& stop);

/// What S3 calls what is wrong, from the body of its answer: "AccessDenied"; empty where it does not say.
std::string S3CodeIn(std::string_view body);

/// What a status that is no success means: 404 kNotFound, 401 and 403 kPermissionDenied, 501
/// kFailedPrecondition, 429 and other 5xx worth another try. Nothing for 2xx.
std::optional<HttpTrouble> TroubleOfStatus(const HttpAnswer& answer);

/// The whole of a small thing; nothing where there is none (404, 410). Errors: kDataLoss for more than
/// `most_bytes`; those of the server.
Result<std::optional<std::string>> ReadWhole(const RemoteObject& object, uint64_t most_bytes,
                                             const std::stop_token& stop = {});

}  // namespace imgd
