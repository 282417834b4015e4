#include "trainer/data/remote_file.h"

#include <charconv>
#include <cstring>

namespace imgd::data {
namespace {

using Kind = HttpTrouble::Kind;

/// So much makes a try a success for those that count them, however it ended.
constexpr size_t kProgressBytes = 256 << 10;

std::optional<uint64_t> TakeNumber(std::string_view& text, std::string_view after) {
  uint64_t value = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), value);
  if (parsed.ec != std::errc()) return std::nullopt;
  text.remove_prefix(static_cast<size_t>(parsed.ptr - text.data()));
  if (!text.starts_with(after)) return std::nullopt;
  text.remove_prefix(after.size());
  return value;
}

/// Empty where the server says neither.
std::string VersionOf(const HttpAnswer& answer, uint64_t size) {
  const std::string etag = answer.header("etag");
  const std::string changed = answer.header("last-modified");
  return etag.empty() && !changed.empty() ? fmt::format("{}-{}", size, changed) : etag;
}

std::string RangeHeader(uint64_t offset, uint64_t size) {
  return fmt::format("bytes={}-{}", offset, offset + size - 1);
}

/// Of one that answers with 200, as if it had been asked for the whole.
tl::unexpected<Error> NoRanges(const HttpAnswer& answer, ErrorCode code) {
  if (answer.header("content-type").starts_with("text/html")) {
    return Fail(code,
                "the server answers with a web page in the file's place; see whether the URL is right, and "
                "whether a login or a proxy is in between");
  }
  return Fail(
      code,
      "the server ignores range requests (it sends the whole file); serve the files with `imgcli dataset "
      "serve`, nginx or any server that knows ranges");
}

HttpTrouble Again(std::string message) {
  return {{.code = ErrorCode::kUnavailable, .message = std::move(message)}, Kind::kRetry};
}

}  // namespace

std::optional<ContentRange> ParseContentRange(std::string_view text) {
  if (!text.starts_with("bytes ")) return std::nullopt;
  text.remove_prefix(6);
  const auto first = TakeNumber(text, "-");
  const auto last = first ? TakeNumber(text, "/") : std::nullopt;
  const auto total = last ? TakeNumber(text, "") : std::nullopt;
  if (!total || !text.empty() || *last < *first || *total <= *last) return std::nullopt;
  return ContentRange{*first, *last, *total};
}

Result<std::shared_ptr<RemoteFile>> RemoteFile::Open(RemoteObject object) {
  Patience patience(object.client->options(), object.name, /*known=*/false);
  // No body but that of the one byte.
  const HttpBody body = {.begin = [](const HttpAnswer& answer) -> Result<bool> {
                           if (answer.status == 200 && answer.header("content-length") != "0")
                             return NoRanges(answer, ErrorCode::kFailedPrecondition);
                           return answer.status == 206;
                         },
                         .take = [](std::span<const uint8_t> bytes) -> Status {
                           if (bytes.size() > 1)
                             return Fail(ErrorCode::kDataLoss, "the server sends more than it was asked for");
                           return {};
                         }};
  for (;;) {
    const auto answer = TryOnce(object, {.headers = {{"range", "bytes=0-0"}}}, body, {});
    std::optional<HttpTrouble> trouble;
    if (!answer) {
      trouble = answer.error();
    } else if (answer->status == 416 || (answer->status == 200)) {
      const std::string version = VersionOf(*answer, 0);  // an empty file has no first byte
      return std::shared_ptr<RemoteFile>(new RemoteFile(std::move(object), 0, version, ""));
    } else if (answer->status == 206) {
      const auto range = ParseContentRange(answer->header("content-range"));
      if (range && range->first == 0) {
        const std::string version = VersionOf(*answer, range->total);
        return std::shared_ptr<RemoteFile>(
            new RemoteFile(std::move(object), range->total, version, answer->header("etag")));
      }
      trouble =
          HttpTrouble{{.code = ErrorCode::kDataLoss,
                       .message = fmt::format("the server does not say how large it is (Content-Range '{}')",
                                              PercentEncode(answer->header("content-range"), " /*"))}};
    } else {
      trouble = TroubleOfStatus(*answer);
      if (!trouble)
        trouble =
            HttpTrouble{{.code = ErrorCode::kUnavailable, .message = "the server answers without a body"}};
    }
    if (const auto error = patience.Again(*trouble, {})) return tl::unexpected(*error);
  }
}

/// Whether the body is what was asked for.
Result<bool> RemoteFile::Check(const HttpAnswer& answer, uint64_t offset, uint64_t wanted) const {
  const auto changed = [](std::string_view how) {
    return Fail(ErrorCode::kDataLoss, "the file has changed on the server since it was opened ({})", how);
  };
  if (answer.status == 412 || answer.status == 416) return changed(fmt::format("status {}", answer.status));
  if (answer.status == 200) {
    const std::string etag = answer.header("etag");
    if (!etag.empty() && etag != etag_) return changed("another ETag");
    return NoRanges(answer, ErrorCode::kUnavailable);  // it knew them before
  }
  if (answer.status != 206) return false;
  const auto range = ParseContentRange(answer.header("content-range"));
  if (!range) return Fail(ErrorCode::kDataLoss, "the server does not say which bytes it sends");
  if (range->total != size()) return changed(fmt::format("{} bytes, not {}", range->total, size()));
  if (VersionOf(answer, size()) != version()) return changed("another ETag or time of change");
  if (range->first != offset || range->last - range->first >= wanted)
    return Fail(ErrorCode::kDataLoss, "the server sends other bytes than it was asked for");
  return true;
}

std::optional<HttpTrouble> RemoteFile::ReadSome(uint64_t offset, std::span<uint8_t> out,
                                                const std::stop_token& stop, size_t& got) const {
  HttpHeaders headers = {{"range", RangeHeader(offset, out.size())}};
  if (etag_.starts_with('"')) headers.emplace_back("if-match", etag_);
  const HttpBody body = {.begin = [&](const HttpAnswer& answer) { return Check(answer, offset, out.size()); },
                         .take = [&](std::span<const uint8_t> bytes) -> Status {
                           if (bytes.size() > out.size() - got)
                             return Fail(ErrorCode::kDataLoss, "the server sends more than it was asked for");
                           std::memcpy(out.data() + got, bytes.data(), bytes.size());
                           got += bytes.size();
                           return {};
                         }};
  const auto answer = TryOnce(object_, {.headers = std::move(headers)}, body, stop);
  if (!answer) return answer.error();
  if (auto trouble = TroubleOfStatus(*answer)) return trouble;
  if (answer->status != 206)
    return HttpTrouble{
        {.code = ErrorCode::kUnavailable, .message = fmt::format("the server answers {}", answer->status)}};
  if (got < out.size())
    return Again(fmt::format("the server sends {} bytes where {} were asked for", got, out.size()));
  return std::nullopt;
}

Status RemoteFile::ReadUntil(uint64_t offset, std::span<uint8_t> out, const std::stop_token& stop) const {
  if (!stop.stop_possible()) return ReadAt(offset, out);
  std::stop_source either;
  const auto end = [&either] { either.request_stop(); };
  const std::stop_callback ours(stop_.get_token(), end);
  const std::stop_callback theirs(stop, end);
  return Read(offset, out, either.get_token());
}

Status RemoteFile::Read(uint64_t offset, std::span<uint8_t> out, const std::stop_token& stop) const {
  if (offset > size() || out.size() > size() - offset) {
    return Fail(ErrorCode::kDataLoss, "{} ends at byte {}, before byte {}", name(), size(),
                offset + out.size());
  }
  Patience patience(object_.client->options(), name(), /*known=*/true);
  for (size_t done = 0; done < out.size();) {
    if (stop.stop_requested()) return Fail(ErrorCode::kCancelled, "stopped");
    size_t got = 0;
    const auto trouble = ReadSome(offset + done, out.subspan(done), stop, got);
    done += got;
    if (!trouble) break;
    if (got >= kProgressBytes) patience.Progress();
    if (const auto error = patience.Again(*trouble, stop)) return tl::unexpected(*error);
  }
  return {};
}

}  // namespace imgd::data
