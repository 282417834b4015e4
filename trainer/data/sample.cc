#include "trainer/data/sample.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "common/files.h"
#include "trainer/data/crop.h"

namespace imgd::data {

Status SampleReader::ReadWhole(const std::filesystem::path& path) {
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK));
  if (!fd.valid()) return FailErrno(errno, "cannot open the file");
  struct stat status {};
  if (::fstat(fd.get(), &status) != 0) return FailErrno(errno, "cannot look at the file");
  if (!S_ISREG(status.st_mode)) return Fail(ErrorCode::kDataLoss, "not a plain file");
  if (status.st_size > kMaxFileBytes) {
    return Fail(ErrorCode::kDataLoss, "the file has {} MiB; at most {} MiB are allowed", status.st_size >> 20,
                kMaxFileBytes >> 20);
  }
  // One request for the whole file instead of a growing read-ahead window.
  ::posix_fadvise(fd.get(), 0, status.st_size, POSIX_FADV_WILLNEED);
  const auto size = static_cast<size_t>(status.st_size);
  if (file_.size() < size) file_.resize(size);
  file_size_ = 0;
  while (file_size_ < size) {
    const ssize_t n = ::read(fd.get(), file_.data() + file_size_, size - file_size_);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return FailErrno(errno, "cannot read the file");
    if (n == 0) break;
    file_size_ += static_cast<size_t>(n);
  }
  return {};
}

Result<JpegSize> SampleReader::Open(const std::filesystem::path& path) {
  IMGD_TRY(ReadWhole(path));
  return decoder_.Open({file_.data(), file_size_});
}

Status SampleReader::ReadForTraining(const std::filesystem::path& path, TrainingView view, int crop_size,
                                     uint8_t* out) {
  IMGD_ASSIGN(const JpegSize size, Open(path));
  const Crop crop = RandomCrop(size.width, size.height, view.min_scale, view.random);
  const bool flip = view.flip && view.random.Coin();
  const Box box{static_cast<double>(crop.left), static_cast<double>(crop.top),
                static_cast<double>(crop.width), static_cast<double>(crop.height)};
  IMGD_ASSIGN(const DecodedPart part, decoder_.Decode(box, 0, crop_size, crop_size));
  resizer_.Resize(part.pixels, part.box, crop_size, crop_size, flip, out);
  return {};
}

Status SampleReader::ReadForValidation(const std::filesystem::path& path, int resize, int crop_size,
                                       uint8_t* out) {
  IMGD_ASSIGN(const JpegSize size, Open(path));
  const CenterCropPlan plan = PlanCenterCrop(size.width, size.height, resize, crop_size);
  // The crop comes after the resizing, so the filter sees what is beside the crop.
  const double across = static_cast<double>(size.width) / plan.resized_width;
  const double down = static_cast<double>(size.height) / plan.resized_height;
  const Box box{plan.crop.left * across, plan.crop.top * down, plan.crop.width * across,
                plan.crop.height * down};
  const double reach = std::max({across, down, 1.0}) + 1;
  IMGD_ASSIGN(const DecodedPart part, decoder_.Decode(box, reach, crop_size, crop_size));
  resizer_.Resize(part.pixels, part.box, crop_size, crop_size, false, out);
  return {};
}

}  // namespace imgd::data
