#include "trainer/report/tensorboard_reporter.h"

#include <utility>

#include "trainer/data/jpeg_encode.h"
#include "trainer/data/png.h"
#include "trainer/report/tensorboard_writer.h"

namespace imgd::report {
namespace {

class TensorboardLog final : public ScalarLog {
 public:
  TensorboardLog(FiguresPlace place, const Clock& clock) : writer_(std::move(place), clock) {}
  void StartAfter(uint64_t step) override { writer_.StartAfter(step); }
  Status Add(const ScalarGroup& group) override { return writer_.AddScalars(group); }
  Status Flush() override { return writer_.Flush(); }

  Status Add(const SampleFigures& figures) override {
    const Picture picture = Draw(figures);
    IMGD_ASSIGN(const auto file, data::EncodeJpeg(picture.rgb, picture.width, picture.height,
                                                  {.quality = 90, .chroma_sampling = 1}));
    return AddPicture(figures.step, "train/samples", picture, file);
  }

  Status Add(const ClassFigures& figures) override {
    if (figures.confusion.empty()) return {};
    const Picture picture = DrawConfusion(figures);
    IMGD_ASSIGN(const auto file, data::EncodePng(picture.rgb, picture.width, picture.height));
    return AddPicture(figures.step, "val/confusion_matrix", picture, file);
  }

 private:
  Status AddPicture(uint64_t step, std::string_view tag, const Picture& picture, std::string_view file) {
    return writer_.AddImage(step, tag,
                            {.width = static_cast<uint32_t>(picture.width),
                             .height = static_cast<uint32_t>(picture.height),
                             .channels = 3,
                             .file = file});
  }

  TensorboardWriter writer_;
};

}  // namespace

std::unique_ptr<Reporter> MakeTensorboardReporter(FiguresPlace place, const Clock& clock,
                                                  std::function<void(const std::string&)> note) {
  return MakeScalarReporter(std::make_unique<TensorboardLog>(std::move(place), clock), std::move(note));
}

}  // namespace imgd::report
