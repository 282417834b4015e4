#include "trainer/loop/step_graph.h"

#include <gmock/gmock.h>

#include <stdexcept>

namespace imgd::trainer {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

/// What a recorder of a CPU would be: it does the work again, and leaves the gradients where the recording
/// had them, as a GPU's does.
class FakeRecorder final : public GpuRecorder {
 public:
  FakeRecorder(at::Tensor weight, bool fails) : weight_(std::move(weight)), fails_(fails) {}
  void Record(const std::function<void()>& work) override {
    if (fails_) throw std::runtime_error("operation not permitted when stream is capturing\nat somewhere");
    work_ = work;
    weight_.mutable_grad() = gradient_ = at::full_like(weight_, 99);
  }
  void Replay() override {
    weight_.mutable_grad().reset();
    work_();
    gradient_.copy_(weight_.grad());
    weight_.mutable_grad().reset();
  }

 private:
  at::Tensor weight_;
  bool fails_;
  std::function<void()> work_;
  at::Tensor gradient_;
};

class Notes final : public report::Reporter {
 public:
  void On(const report::Started&) override {}
  void On(const report::StepFigures&) override {}
  void On(const report::EpochFigures&) override {}
  void On(const report::CheckpointFigures&) override {}
  void On(const report::Finished&) override {}
  void On(const report::Failed&) override {}
  void On(const report::BadImage&) override {}
  void Note(const std::string& sentence) override { said.push_back(sentence); }
  std::vector<std::string> said;
};

struct Steps : testing::Test {
  static DeviceBatch Batch(int64_t count, double value) {
    return {.count = count, .images = at::full({count}, value), .labels = at::zeros({count}, at::kLong)};
  }
  /// Whether the recording did the step of a loss whose gradient is the sum of the images.
  bool Step(int64_t count, double value) {
    weight.mutable_grad().reset();
    const StepGraph::Work work = [this](const DeviceBatch& part) { (weight * part.images.sum()).backward(); };
    const DeviceBatch batch = Batch(count, value);
    const bool done = graph.Run(batch, work);
    if (!done) work(batch);
    EXPECT_DOUBLE_EQ(weight.grad().item<double>(), static_cast<double>(count) * value);
    return done;
  }
  bool fails = false;
  at::Tensor weight = torch::ones({}, torch::dtype(torch::kDouble).requires_grad(true));
  Notes notes;
  StepGraph graph{{weight}, [this] { return std::make_unique<FakeRecorder>(weight, fails); }, notes};
};

TEST_F(Steps, AreRecordedOnceTheyAreWarm) {
  std::vector<bool> recorded;
  for (int i = 0; i < 6; ++i) recorded.push_back(Step(8, i));
  EXPECT_THAT(recorded, ElementsAre(false, false, false, true, true, true));
  EXPECT_THAT(notes.said, ElementsAre(HasSubstr("steps of 8 images are recorded")));
}

TEST_F(Steps, AShortOneAtTheEndOfAnEpochLeavesTheRecordingAsItIs) {
  for (int i = 0; i < 4; ++i) Step(8, i);
  EXPECT_FALSE(Step(3, 1));
  EXPECT_TRUE(Step(8, 2));
}

TEST_F(Steps, OfAnotherShapeAreRecordedAnew) {
  for (int i = 0; i < 5; ++i) Step(8, i);
  for (int i = 0; i < 3; ++i) EXPECT_FALSE(Step(4, i));
  EXPECT_TRUE(Step(4, 7));
  EXPECT_FALSE(Step(8, 7)) << "one recording at a time";
}

TEST_F(Steps, WhatCanNotBeRecordedIsDoneWithout) {
  fails = true;
  for (int i = 0; i < 6; ++i) EXPECT_FALSE(Step(8, i));
  EXPECT_THAT(notes.said,
              ElementsAre("train.cuda_graph: steps are computed without a recording, as one failed: "
                          "operation not permitted when stream is capturing"));
}

struct WhyNot : testing::Test {
  std::string On(const at::Device& device, int ranks = 1) {
    return WhyNotRecorded(spec, Phases(spec, 100).At(0), device, ranks);
  }
  const at::Device gpu{at::kCUDA, 0};
  JobSpec spec;
};

TEST_F(WhyNot, NamesWhatIsInTheWay) {
  EXPECT_THAT(On(at::kCPU), HasSubstr("CPU"));
  EXPECT_THAT(On(gpu), IsEmpty());
  EXPECT_THAT(On(gpu, 2), HasSubstr("several ranks"));
  spec.train.precision = "fp16";
  EXPECT_THAT(On(gpu), HasSubstr("loss scale"));
}

TEST_F(WhyNot, APartOfAStepIsNone) {
  spec.train.accumulate = 4;
  EXPECT_THAT(On(gpu), HasSubstr("a step has 4 parts"));
  spec.train.accumulate = 1;
  spec.elastic = {.rule = "keep_global_batch", .ranks = 2};
  EXPECT_THAT(On(gpu), HasSubstr("a step has 2 parts")) << "the job is for two ranks, and one is there";
}

}  // namespace
}  // namespace imgd::trainer
