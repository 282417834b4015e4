#include "server/web/static_files.h"

namespace imgd::web {
namespace {

constexpr PageFile kFiles[] = {
    {.path = "/index.html",
     .content_type = "text/html; charset=utf-8",
     .etag = "\"none\"",
     .raw = "<!doctype html><title>imgd</title><p>This imgd was built without its dashboard (IMGD_WEB=OFF). "
            "In a terminal: imgcli jobs\n",
     .gzip = {},
     .brotli = {}},
};

}  // namespace

std::span<const PageFile> PageFiles() { return kFiles; }

}  // namespace imgd::web
