#pragma once

#include "server/engine/read_pool.h"
#include "server/web/api.h"
#include "server/web/router.h"

namespace imgd::web {

inline constexpr const char* kSamplePicturePath = "/api/v1/jobs/{id}/samples/{event}/{number}";

/// GET of that: the picture of an image that GetSamples has, as JPEG. What
/// such an address stands for never changes. The caller must outlive it.
Handler SamplePictureHandler(ApiCaller* caller);

}  // namespace imgd::web
