#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>

#include "common/error.h"

namespace imgd::data {

/// A stretch of a source.
struct ByteRange {
  uint64_t offset = 0;
  uint64_t size = 0;
  uint64_t end() const { return offset + size; }
};

/// Bytes that can be read at any place: a local file, or one on a server. All calls may come from any thread.
class Source {
 public:
  virtual ~Source() = default;

  /// What it is called in messages: a path or URL.
  const std::string& name() const { return name_; }
  /// Bytes in it, as of when it was opened.
  uint64_t size() const { return size_; }
  /// Changes when the content may have: the file's size and time of change, a server's ETag. Empty where a
  /// server says neither.
  const std::string& version() const { return version_; }

  /// Fills all of `out` with the bytes from `offset` on. Errors: kDataLoss when it ends before or has changed
  /// since it was opened; those of the file system or server.
  virtual Status ReadAt(uint64_t offset, std::span<uint8_t> out) const = 0;

  /// The same for one who may lose interest: `stop` breaks off what waits for a server (kCancelled). What is
  /// near takes no notice of it.
  virtual Status ReadUntil(uint64_t offset, std::span<uint8_t> out, const std::stop_token& stop) const {
    static_cast<void>(stop);
    return ReadAt(offset, out);
  }

  /// Told what will be read soon, each stretch by one call of ReadAt, in about this order, so that it can be
  /// fetched ahead. Returns at once.
  virtual void WillRead(std::span<const ByteRange> ranges) const { static_cast<void>(ranges); }

 protected:
  Source(std::string name, uint64_t size, std::string version)
      : name_(std::move(name)), size_(size), version_(std::move(version)) {}

 private:
  std::string name_;
  uint64_t size_;
  std::string version_;
};

/// The bytes of a text, as sources and checksums take them.
inline std::span<const uint8_t> AsBytes(std::string_view text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

/// `size` bytes from `offset` on, as text. Errors: those of ReadAt; the caller bounds the size.
Result<std::string> ReadText(const Source& source, uint64_t offset, uint64_t size);

/// Opens a local file, by its path. Errors: as open(2); kInvalidArgument for what is no plain file.
Result<std::shared_ptr<Source>> OpenFileSource(const std::string& path);

/// Opens a path, http(s):// or s3:// (docs/data-sources.md), as the environment says. Errors: those of
/// SourceOpener::Open.
Result<std::shared_ptr<Source>> OpenSource(const std::string& where);

/// A part of another source, which must outlive it, as if it were a source of its own: a tar within a tar.
class Part final : public Source {
 public:
  Part(const Source& whole, const std::string& name, uint64_t offset, uint64_t size)
      : Source(name, size, whole.version()), whole_(whole), offset_(offset) {}
  Status ReadAt(uint64_t offset, std::span<uint8_t> out) const override { return ReadUntil(offset, out, {}); }
  Status ReadUntil(uint64_t offset, std::span<uint8_t> out, const std::stop_token& stop) const override;

 private:
  const Source& whole_;
  uint64_t offset_;
};

/// Another source, which must outlive it, for code that knows ReadAt alone: `stop` breaks every read off.
class Stoppable final : public Source {
 public:
  Stoppable(const Source& source, std::stop_token stop)
      : Source(source.name(), source.size(), source.version()), source_(source), stop_(std::move(stop)) {}
  Status ReadAt(uint64_t offset, std::span<uint8_t> out) const override {
    return source_.ReadUntil(offset, out, stop_);
  }

 private:
  const Source& source_;
  std::stop_token stop_;
};

}  // namespace imgd::data
