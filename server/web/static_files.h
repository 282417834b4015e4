#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "server/web/router.h"

/// The dashboard: what web/ was built to, as a part of this program.
namespace imgd::web {

/// A file of it.
struct PageFile {
  std::string_view path;  ///< "/index.html", "/assets/index-4f1c.js"
  std::string_view content_type;
  std::string_view etag;  ///< with its quotes
  std::string_view raw;
  std::string_view gzip;
  std::string_view brotli;
};

/// Made by the build (web/embed.ts). One of them is /index.html.
std::span<const PageFile> PageFiles();

/// A route for each file, and for each address that is a page of the dashboard (web/src/app.tsx) index.html.
/// Open: what the pages show they ask for by /api/v1, as who has the token.
std::vector<Route> StaticRoutes();

/// The dashboard where it has no such page, which it says itself: index.html with status 404.
Response MissingPage(std::string_view accept_encoding);

/// The file as an answer: in the smallest form that `accept_encoding` allows, or 304 where `if_none_match`
/// names it.
Response AnswerWithFile(const PageFile& file, std::string_view accept_encoding,
                        std::string_view if_none_match);

}  // namespace imgd::web
