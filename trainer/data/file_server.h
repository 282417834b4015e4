#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "common/error.h"

namespace imgd::data {

struct FileServerOptions {
  std::string folder;
  std::string address = "127.0.0.1";  ///< numeric, IPv4 or IPv6
  int port = 0;                       ///< 0: a free one
  int threads = 2;
  int most_connections = 1024;  ///< more are told to come again (503); two open files each
  int idle_seconds = 60;        ///< a connection on which nothing moves is closed
};

/// Serves the files of a folder by HTTP/1.1: GET and HEAD, one range each, ETag, If-Match, If-None-Match and
/// If-Range, keep-alive; folders as JSON in the form of nginx's autoindex_format json, or as HTML for
/// browsers. Nothing outside the folder, no file whose path has a part that begins with a dot. There is no
/// encryption and no password: it is for trusted networks (deploy/nginx has the other kind).
class FileServer {
 public:
  /// Listens and serves on threads of its own. Errors: kInvalidArgument for an address that is none; those of
  /// bind, naming address and port; kNotFound for the folder.
  static Result<std::unique_ptr<FileServer>> Start(const FileServerOptions& options);
  /// Closes every connection.
  ~FileServer();

  int port() const;
  /// "http://127.0.0.1:8000/"
  std::string url() const;
  uint64_t requests() const;
  uint64_t bytes() const;  ///< of bodies, sent so far

 private:
  class Impl;
  explicit FileServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace imgd::data
