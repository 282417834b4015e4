#pragma once

#include "server/engine/read_pool.h"
#include "server/web/api.h"
#include "server/web/router.h"

namespace imgd::web {

inline constexpr const char* kSamplePicturePath = "/api/v1/jobs/{id}/samples/{event}/{number}";
inline constexpr const char* kDatasetPicturePath = "/api/v1/datasets/{name}/samples/{described_us}/{number}";

/// GET of that: the picture of an image that GetSamples has, as JPEG. What
/// such an address stands for never changes. The caller must outlive it.
Handler SamplePictureHandler(ApiCaller* caller);
/// The same of an image that GetDataset has.
Handler DatasetPictureHandler(ApiCaller* caller);

}  // namespace imgd::web
