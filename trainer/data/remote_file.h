#pragma once

#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>

#include "trainer/data/http_client.h"
#include "trainer/data/source.h"

namespace imgd::data {

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

/// One try of a request for the object, signed; a second one where the credentials had expired.
tl::expected<HttpAnswer, HttpTrouble> TryOnce(const RemoteObject& object, HttpHeaders headers,
                                              const HttpBody& body, const std::stop_token& stop);

/// What a status that is no success means: 404 kNotFound, 401 and 403 kPermissionDenied, 429 and 5xx worth
/// another try. Nothing for 2xx.
std::optional<HttpTrouble> TroubleOfStatus(const HttpAnswer& answer);

/// What a Content-Range header says: "bytes 0-99/1000".
struct ContentRange {
  uint64_t first = 0;
  uint64_t last = 0;
  uint64_t total = 0;
};
/// Nothing for what is not of this form, or lies outside of its own total.
std::optional<ContentRange> ParseContentRange(std::string_view text);

/// The whole of a small thing; nothing where there is none (404, 410). Errors: kDataLoss for more than
/// `most_bytes`; those of the server.
Result<std::optional<std::string>> ReadWhole(const RemoteObject& object, uint64_t most_bytes,
                                             const std::stop_token& stop = {});

/// A file on a server, read by range requests. A read that is broken off goes on where it was, for a minute;
/// see HttpOptions. Another ETag, or where there is none another time of change or size, is kDataLoss.
class RemoteFile final : public Source {
 public:
  /// Asks for its first byte. Errors: kNotFound; kPermissionDenied; kUnavailable, within seconds where nobody
  /// listens; kFailedPrecondition from a server that knows no ranges.
  static Result<std::shared_ptr<RemoteFile>> Open(RemoteObject object);

  Status ReadAt(uint64_t offset, std::span<uint8_t> out) const override {
    return Read(offset, out, stop_.get_token());
  }
  Status ReadUntil(uint64_t offset, std::span<uint8_t> out, const std::stop_token& stop) const override;

  /// Breaks off what is being read, from any thread; later reads fail.
  void Stop() { stop_.request_stop(); }

 private:
  RemoteFile(RemoteObject object, uint64_t size, std::string version, std::string etag)
      : Source(object.name, size, std::move(version)), object_(std::move(object)), etag_(std::move(etag)) {}
  Status Read(uint64_t offset, std::span<uint8_t> out, const std::stop_token& stop) const;
  std::optional<HttpTrouble> ReadSome(uint64_t offset, std::span<uint8_t> out, const std::stop_token& stop,
                                      size_t& got) const;
  Result<bool> Check(const HttpAnswer& answer, uint64_t offset, uint64_t wanted) const;

  RemoteObject object_;
  std::string etag_;
  std::stop_source stop_;
};

}  // namespace imgd::data
