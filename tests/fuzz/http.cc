// What strangers say over HTTP: a client its request and range, a server its status, headers, ranges and
// redirects.
#include <algorithm>

#include "common/url.h"
#include "tests/fuzz/memory_source.h"
#include "trainer/data/http_request.h"
#include "trainer/data/remote_file.h"

using namespace imgd;
using namespace imgd::data;

namespace {

void ReadRange(std::string_view header) {
  for (const uint64_t size : {uint64_t{0}, uint64_t{1}, uint64_t{1000}, UINT64_MAX}) {
    const auto range = ParseRange(header, size);
    if (range.kind != AskedRange::Kind::kPart) continue;
    Require(range.size > 0 && range.first < size && range.size <= size - range.first);
  }
}

void ReadRequest(std::string_view text) {
  const auto head = ParseRequestHead(text);
  if (!head) return;
  Require(head->path.starts_with('/'));
  if (IsServedPath(head->path)) Require((head->path + "/").find("/../") == std::string::npos);
  ReadRange(head->header("range"));
}

void ReadAddress(const std::string& location) {
  static const Url kFrom = ParseUrl("https://name:secret@host:8080/folder/file?x=1").value();
  const auto url = Resolve(kFrom, location);
  if (!url) return;
  Require(!url->host.empty() && url->path.starts_with('/') && url->port >= 0 && url->port <= 65535);
  const auto again = ParseUrl(url->ToString());
  Require(again && again->ToString() == url->ToString());
}

void ReadAnswer(std::string_view text) {
  HttpAnswer answer;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size() - 1);
    TakeHeaderLine(text.substr(0, end + 1), answer);
    text.remove_prefix(end + 1);
  }
  for (const auto& [name, value] : answer.headers) {
    Require(std::ranges::none_of(name, [](char c) { return c >= 'A' && c <= 'Z'; }));
    Require(value.empty() || (value.front() != ' ' && value.back() != '\r'));
  }
  const auto range = ParseContentRange(answer.header("content-range"));
  Require(!range || (range->first <= range->last && range->last < range->total));
  const auto trouble = TroubleOfStatus(answer);
  Require(!trouble || trouble->wait <= Milliseconds(60'000));
  ReadAddress(answer.header("location"));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  ReadRequest(text);
  ReadAnswer(text);
  Require(PercentDecode(PercentEncode(text)) == text);
  return 0;
}
