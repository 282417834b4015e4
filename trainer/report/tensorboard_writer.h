#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "common/clock.h"
#include "common/error.h"
#include "trainer/report/record_file.h"
#include "trainer/report/scalar_reporter.h"

namespace imgd::report {

/// An image file, PNG or JPEG, for TensorBoard to show.
struct EncodedImage {
  uint32_t width = 0;   ///< pixels
  uint32_t height = 0;  ///< pixels
  int channels = 3;     ///< 1 grey, 3 RGB, 4 RGBA
  std::string_view file;
};

/// Writes what TensorBoard reads: a file `events.out.tfevents.<seconds>.<host>.<pid>.<generation>` in a
/// folder that may have more of them, which TensorBoard shows as one run. The file is made with the first
/// event; all its events are in it when a call returns, without a buffer. Format: TFRecord frames
/// (TensorFlow, "TFRecord and tf.train.Example"), each a message Event (tensorflow/core/util/event.proto,
/// framework/summary.proto).
///
/// Errors of all calls: as the system calls, naming the path. What was not written then is kept, up to
/// RecordQueue::kMostBytes, and tried again with the next call. Used by one thread at a time.
class TensorboardWriter {
 public:
  /// `clock` must outlive the writer.
  TensorboardWriter(FiguresPlace place, const Clock& clock);
  TensorboardWriter(const TensorboardWriter&) = delete;
  TensorboardWriter& operator=(const TensorboardWriter&) = delete;

  /// Says that the run goes on after `step`: TensorBoard then forgets what older files of the folder say of
  /// later steps, which are trained again. Before the first event; else 0 is meant.
  void StartAfter(uint64_t step) { start_step_ = step; }

  /// A point for the curve of each of the group's scalars.
  Status AddScalars(const ScalarGroup& group);

  /// An image under `tag`, which has a slider of its steps: samples of a batch (`train/samples`), a picture
  /// of a confusion matrix (`val/confusion_matrix`: a square a pair of classes, rows the true ones). Whoever
  /// has the pixels makes the file, by data::EncodeJpeg or libpng; for TensorBoard all such pictures are the
  /// same.
  Status AddImage(uint64_t step, std::string_view tag, const EncodedImage& image);

  Status Flush() { return queue_.Flush(); }

 private:
  Result<RecordFile> Open() const;

  const FiguresPlace place_;
  const Clock& clock_;
  uint64_t start_step_ = 0;
  RecordQueue queue_;
};

}  // namespace imgd::report
