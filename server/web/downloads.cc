#include "server/web/downloads.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <utility>

#include "imgd/v1/trainer.pb.h"
#include "server/rpc/checkpoint_files.h"
#include "server/rpc/checkpoint_list.h"
#include "server/web/errors.h"

namespace imgd::web {
namespace {

constexpr size_t kPieceBytes = size_t{512} << 10;

Error TooBusy() {
  return {.code = ErrorCode::kResourceExhausted, .message = "too many requests wait already; try again"};
}

/// A stretch of a file, read piece by piece by the thread that may wait for a disk.
class FileSource final : public BodySource, public std::enable_shared_from_this<FileSource> {
 public:
  FileSource(ReadPool* pool, UniqueFd fd, ByteRange range)
      : pool_(pool), fd_(std::move(fd)), next_(range.first), end_(range.end), bytes_(end_ - next_) {
    ::posix_fadvise(fd_.get(), static_cast<off_t>(next_), static_cast<off_t>(bytes_), POSIX_FADV_SEQUENTIAL);
  }
  uint64_t bytes() const override { return bytes_; }
  void Next(std::function<void(Result<std::string>)> done) override {
    const auto kept = std::make_shared<std::function<void(Result<std::string>)>>(std::move(done));
    const bool posted = pool_->TryPostSlow(
        ReadPool::Lane::kFolders, [self = shared_from_this(), kept](Reader&) { (*kept)(self->Read()); });
    if (!posted) (*kept)(tl::unexpected(TooBusy()));
  }

 private:
  Result<std::string> Read() {
    std::string piece(static_cast<size_t>(std::min<uint64_t>(kPieceBytes, end_ - next_)), '\0');
    size_t had = 0;
    while (had < piece.size()) {
      const ssize_t n =
          ::pread(fd_.get(), piece.data() + had, piece.size() - had, static_cast<off_t>(next_ + had));
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return FailErrno(errno, "cannot read a checkpoint's file");
      if (n == 0) return Fail(ErrorCode::kDataLoss, "a checkpoint's file became shorter while it was sent");
      had += static_cast<size_t>(n);
    }
    next_ += had;
    return piece;
  }

  ReadPool* pool_;
  UniqueFd fd_;
  uint64_t next_;
  uint64_t end_;
  uint64_t bytes_;
};

std::optional<uint64_t> NumberOf(std::string_view text) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

Error NoCheckpoint(const Request& request) {
  return {.code = ErrorCode::kNotFound,
          .message = fmt::format("job {} reported no checkpoint of that name", request.parameters.at("id")),
          .hint = "GET /api/v1/jobs/{id}/checkpoints names them: \"g1-step500\""};
}

struct Wanted {
  JobRecord job;
  v1::CheckpointWritten checkpoint;
};

Result<Wanted> Find(const Request& request, Reader& reader) {
  const auto id = NumberOf(request.parameters.at("id"));
  if (!id) {
    return Fail(ErrorCode::kInvalidArgument, "the job is named by its number");
  }
  IMGD_ASSIGN(auto row, reader.Job(JobId(*id), false));
  if (!row) return Fail(ErrorCode::kNotFound, "there is no job {}", *id);
  IMGD_ASSIGN(auto checkpoint, FindCheckpoint(JobId(*id), request.parameters.at("name"), reader));
  if (!checkpoint) return tl::unexpected(NoCheckpoint(request));
  return Wanted{.job = std::move(row->job), .checkpoint = std::move(*checkpoint)};
}

/// "rn50-12-g1-step500-model.safetensors", whatever the job is called.
std::string FileNameFor(const Wanted& wanted, const std::string& file) {
  std::string name =
      fmt::format("{}-{}-{}-{}", wanted.job.name, wanted.job.id,
                  CheckpointName(Generation(wanted.checkpoint.generation()), wanted.checkpoint.step()), file);
  std::replace_if(
      name.begin(), name.end(),
      [](unsigned char c) { return c >= 0x80 || (std::isalnum(c) == 0 && c != '.' && c != '-' && c != '_'); },
      '_');
  return name;
}

Response NoSuchRange(uint64_t size) {
  Response response = ErrorResponse(416, "INVALID_ARGUMENT",
                                    fmt::format("the file has {} bytes, none of them in that range", size));
  response.headers.emplace_back("Content-Range", fmt::format("bytes */{}", size));
  return response;
}

Result<Response> Send(const Request& request, Reader& reader, ReadPool* pool) {
  IMGD_ASSIGN(const Wanted wanted, Find(request, reader));
  if (auto unseen = WhyCheckpointsUnseen(wanted.job)) return tl::unexpected(std::move(*unseen));
  IMGD_ASSIGN(const auto folder,
              CheckpointFolder::Open(wanted.checkpoint.path(), wanted.checkpoint.manifest_sha256()));
  IMGD_ASSIGN(auto file, folder.OpenOne(request.parameters.at("file")));
  const uint64_t size = file.info.size_bytes;
  // What the manifest says of it stands for the content.
  const std::string etag = fmt::format("\"{}\"", file.info.sha256);
  const bool same = request.if_range.empty() || (request.if_range == etag && !file.info.sha256.empty());
  const auto range = same ? RangeOf(request.range, size) : std::nullopt;
  if (range && range->first == range->end) return NoSuchRange(size);
  const ByteRange sent = range.value_or(ByteRange{0, size});
  Response response{.status = range ? 206 : 200, .body = {}, .content_type = "application/octet-stream"};
  auto& headers = response.headers;
  if (range) {
    headers.emplace_back("Content-Range", fmt::format("bytes {}-{}/{}", sent.first, sent.end - 1, size));
  }
  headers.emplace_back("Accept-Ranges", "bytes");
  if (!file.info.sha256.empty()) headers.emplace_back("ETag", etag);
  headers.emplace_back("Content-Disposition",
                       fmt::format("attachment; filename=\"{}\"", FileNameFor(wanted, file.info.name)));
  headers.emplace_back("X-Content-Type-Options", "nosniff");
  response.source = std::make_shared<FileSource>(pool, std::move(file.fd), sent);
  return response;
}

}  // namespace

std::optional<ByteRange> RangeOf(std::string_view header, uint64_t size) {
  constexpr std::string_view kBytes = "bytes=";
  if (!header.starts_with(kBytes)) return std::nullopt;
  header.remove_prefix(kBytes.size());
  const size_t dash = header.find('-');
  if (dash == std::string_view::npos) return std::nullopt;
  const auto first = NumberOf(header.substr(0, dash));
  const auto last = NumberOf(header.substr(dash + 1));
  if (dash == 0) {  // the last so many
    if (!last) return std::nullopt;
    return ByteRange{size - std::min(*last, size), size};
  }
  const bool open = dash + 1 == header.size();
  if (!first || (!last && !open) || (last && *last < *first)) return std::nullopt;
  const uint64_t end = open || *last >= size ? size : *last + 1;
  return ByteRange{std::min(*first, size), end};
}

Handler CheckpointFileHandler(ReadPool* pool) {
  return [pool](Request request, const Answer& answer) {
    const auto kept = std::make_shared<Request>(std::move(request));
    const bool posted = pool->TryPostSlow(ReadPool::Lane::kFolders, [pool, kept, answer](Reader& reader) {
      auto response = Send(*kept, reader, pool);
      answer(response ? std::move(*response) : ApiErrorResponse({response.error()}));
    });
    if (!posted) answer(ApiErrorResponse({TooBusy()}));
  };
}

}  // namespace imgd::web
