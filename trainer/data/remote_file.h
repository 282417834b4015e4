#pragma once

#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>

#include "common/remote/http_object.h"
#include "trainer/data/source.h"

namespace imgd::data {

/// What a Content-Range header says: "bytes 0-99/1000".
struct ContentRange {
  uint64_t first = 0;
  uint64_t last = 0;
  uint64_t total = 0;
};
/// Nothing for what is not of this form, or lies outside of its own total.
std::optional<ContentRange> ParseContentRange(std::string_view text);

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
