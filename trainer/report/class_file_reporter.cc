#include "trainer/report/class_file_reporter.h"

#include <fmt/core.h>

#include <utility>

#include "common/files.h"
#include "trainer/report/class_figures.h"

namespace imgd::report {
namespace {

/// Used by one thread at a time.
class ClassFileReporter final : public Reporter {
 public:
  ClassFileReporter(FiguresPlace place, std::function<void(const std::string&)> note)
      : place_(std::move(place)), note_(std::move(note)) {}

  void On(const Started&) override {}
  void On(const StepFigures&) override {}
  void On(const EpochFigures&) override {}
  void On(const CheckpointFigures&) override {}
  void On(const Finished&) override {}
  void On(const Failed&) override {}
  void On(const BadImage&) override {}
  void Note(const std::string&) override {}

  void On(const ClassFigures& x) override {
    const auto written = Write(x);
    if (written || std::exchange(noted_, true)) return;
    note_(fmt::format("the figures of each class are not written: {}", written.error().ToString()));
  }

 private:
  Status Write(const ClassFigures& x) const {
    IMGD_TRY(MakeFolders(place_.folder));
    return WriteFileAtomically(place_.folder / fmt::format("classes.step{}.json", x.step), ToJson(x) + "\n");
  }

  const FiguresPlace place_;
  const std::function<void(const std::string&)> note_;
  bool noted_ = false;
};

}  // namespace

std::unique_ptr<Reporter> MakeClassFileReporter(FiguresPlace place,
                                                std::function<void(const std::string&)> note) {
  return std::make_unique<ClassFileReporter>(std::move(place), std::move(note));
}

}  // namespace imgd::report
