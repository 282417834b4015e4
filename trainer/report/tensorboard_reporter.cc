#include "trainer/report/tensorboard_reporter.h"

#include <utility>

#include "trainer/report/tensorboard_writer.h"

namespace imgd::report {
namespace {

class TensorboardLog final : public ScalarLog {
 public:
  TensorboardLog(FiguresPlace place, const Clock& clock) : writer_(std::move(place), clock) {}
  void StartAfter(uint64_t step) override { writer_.StartAfter(step); }
  Status Add(const ScalarGroup& group) override { return writer_.AddScalars(group); }
  Status Flush() override { return writer_.Flush(); }

 private:
  TensorboardWriter writer_;
};

}  // namespace

std::unique_ptr<Reporter> MakeTensorboardReporter(FiguresPlace place, const Clock& clock,
                                                  std::function<void(const std::string&)> note) {
  return MakeScalarReporter(std::make_unique<TensorboardLog>(std::move(place), clock), std::move(note));
}

}  // namespace imgd::report
