#include "server/web/static_files.h"

#include <algorithm>
#include <string>

#include "common/text.h"

namespace imgd::web {
namespace {

constexpr std::string_view kIndex = "/index.html";
constexpr std::string_view kHashed = "/assets/";
/// Pages that the dashboard's own router shows.
constexpr const char* kPages[] = {"/",      "/jobs",         "/jobs/{id}", "/jobs/{id}/{tab}",
                                  "/nodes", "/nodes/{name}", "/queue",     "/datasets",
                                  "/usage", "/compare",      "/submit",    "/datasets/{name}"};

/// Nothing is loaded from elsewhere, nothing runs that is not a file of this program, and no other site shows
/// it.
constexpr const char* kContentPolicy =
    "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; object-src 'none'";

/// Calls `take` with each part between commas.
template <typename Take>
void ForEachPart(std::string_view list, const Take& take) {
  while (!list.empty()) {
    const size_t end = std::min(list.find(','), list.size());
    take(Trimmed(list.substr(0, end)));
    list.remove_prefix(std::min(end + 1, list.size()));
  }
}

/// Whether the header names the coding, and not with a weight of 0 (RFC 9110, 12.5.3).
bool AcceptsCoding(std::string_view accept_encoding, std::string_view coding) {
  bool accepted = false;
  ForEachPart(accept_encoding, [&](std::string_view part) {
    const size_t mark = std::min(part.find(';'), part.size());
    if (Trimmed(part.substr(0, mark)) != coding) return;
    const std::string_view weight = Trimmed(part.substr(std::min(mark + 1, part.size())));
    accepted = !weight.starts_with("q=0") || weight.find_first_of("123456789") != std::string_view::npos;
  });
  return accepted;
}

bool NamesEtag(std::string_view if_none_match, std::string_view etag) {
  bool named = false;
  ForEachPart(if_none_match, [&](std::string_view part) {
    if (part.starts_with("W/")) part.remove_prefix(2);
    named = named || part == "*" || part == etag;
  });
  return named;
}

Handler ServeFile(const PageFile& file) {
  return [&file](const Request& request, const Answer& answer) {
    answer(AnswerWithFile(file, request.accept_encoding, request.if_none_match));
  };
}

}  // namespace

Response AnswerWithFile(const PageFile& file, std::string_view accept_encoding,
                        std::string_view if_none_match) {
  Response response{.body = {}, .content_type = std::string(file.content_type)};
  auto& headers = response.headers;
  headers.emplace_back("ETag", file.etag);
  headers.emplace_back("Vary", "Accept-Encoding");
  // A name with the content's hash in it stands for that content for ever.
  headers.emplace_back("Cache-Control",
                       file.path.starts_with(kHashed) ? "public, max-age=31536000, immutable" : "no-cache");
  headers.emplace_back("Content-Security-Policy", kContentPolicy);
  headers.emplace_back("X-Content-Type-Options", "nosniff");
  headers.emplace_back("Referrer-Policy", "no-referrer");
  if (NamesEtag(if_none_match, file.etag)) {
    response.status = 304;
  } else if (!file.brotli.empty() && AcceptsCoding(accept_encoding, "br")) {
    headers.emplace_back("Content-Encoding", "br");
    response.body = file.brotli;
  } else if (!file.gzip.empty() && AcceptsCoding(accept_encoding, "gzip")) {
    headers.emplace_back("Content-Encoding", "gzip");
    response.body = file.gzip;
  } else {
    response.body = file.raw;
  }
  return response;
}

Response MissingPage(std::string_view accept_encoding) {
  const auto files = PageFiles();
  Response response = AnswerWithFile(*std::ranges::find(files, kIndex, &PageFile::path), accept_encoding, "");
  response.status = 404;
  return response;
}

std::vector<Route> StaticRoutes() {
  std::vector<Route> routes;
  for (const PageFile& file : PageFiles()) {
    routes.push_back({"GET", std::string(file.path), Scope::kOpen, 0, ServeFile(file)});
    if (file.path != kIndex) continue;
    for (const char* page : kPages) routes.push_back({"GET", page, Scope::kOpen, 0, ServeFile(file)});
  }
  return routes;
}

}  // namespace imgd::web
