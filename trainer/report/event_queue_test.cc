#include "trainer/report/event_queue.h"

#include <gmock/gmock.h>

namespace imgd::report {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;

v1::TrainerEvent StepEvent(uint64_t step) {
  v1::TrainerEvent event;
  event.mutable_step()->set_step(step);
  return event;
}
v1::TrainerEvent FinishedEvent() {
  v1::TrainerEvent event;
  event.mutable_finished();
  return event;
}
v1::TrainerEvent NoteEvent(const std::string& text) {
  v1::TrainerEvent event;
  event.mutable_note()->set_text(text);
  return event;
}

std::vector<uint64_t> SequencesOf(const std::vector<v1::TrainerEvent>& events) {
  std::vector<uint64_t> out;
  out.reserve(events.size());
  for (const auto& event : events) out.push_back(event.sequence());
  return out;
}

/// All steps that the queue still sends, in order; each batch must follow on the one before.
std::vector<uint64_t> StepsOf(EventQueue& queue) {
  std::vector<uint64_t> steps;
  uint64_t last = 0;
  while (!queue.Batch().empty()) {
    for (const auto& event : queue.Batch()) {
      EXPECT_EQ(event.sequence(), last + 1);
      last = event.sequence();
      if (event.has_step()) steps.push_back(event.step().step());
    }
    queue.Acknowledge(last);
  }
  return steps;
}

TEST(EventQueue, ABatchStaysUntilItIsAcknowledged) {
  EventQueue queue(100);
  for (uint64_t i = 1; i <= 3; ++i) queue.Add(StepEvent(i));
  EXPECT_THAT(SequencesOf(queue.Batch()), ElementsAre(1, 2, 3));
  queue.Add(StepEvent(4));
  EXPECT_THAT(SequencesOf(queue.Batch()), ElementsAre(1, 2, 3)) << "it may have been stored already";
  queue.Acknowledge(2);
  EXPECT_THAT(SequencesOf(queue.Batch()), ElementsAre(3));
  queue.Acknowledge(3);
  EXPECT_THAT(SequencesOf(queue.Batch()), ElementsAre(4));
  queue.Acknowledge(4);
  EXPECT_TRUE(queue.empty());
  EXPECT_THAT(queue.Batch(), IsEmpty());
}

TEST(EventQueue, FollowsADaemonThatKnowsLess) {
  EventQueue queue(100);
  queue.Add(StepEvent(1));
  queue.Batch();
  queue.Acknowledge(10);
  queue.Add(StepEvent(2));
  EXPECT_THAT(SequencesOf(queue.Batch()), ElementsAre(11));
  queue.Acknowledge(4);
  EXPECT_THAT(SequencesOf(queue.Batch()), ElementsAre(5));
  queue.StartAnew();
  EXPECT_THAT(SequencesOf(queue.Batch()), ElementsAre(1));
  EXPECT_EQ(queue.Batch()[0].step().step(), 2u);
}

TEST(EventQueue, OldTrainingFiguresGoFirstAndTheEndNever) {
  EventQueue queue(100);
  queue.Add(NoteEvent("a"));
  for (uint64_t i = 1; i <= 1000; ++i) queue.Add(StepEvent(i));
  queue.Add(FinishedEvent());
  for (int i = 0; i < 200; ++i) queue.Add(NoteEvent("b"));
  EXPECT_LE(queue.size(), 100u);
  EXPECT_GT(queue.lost(), 0u);
  bool finished = false;
  for (const auto& event : queue.Batch()) finished |= event.has_finished();
  EXPECT_TRUE(finished);
}

TEST(EventQueue, WhatIsThinnedLeavesNoGapAndKeepsTheNewest) {
  EventQueue queue(100);
  for (uint64_t i = 1; i <= 1000; ++i) queue.Add(StepEvent(i));
  const uint64_t lost = queue.lost();
  const auto steps = StepsOf(queue);
  EXPECT_EQ(steps.size() + lost, 1000u);
  EXPECT_EQ(steps.front(), 1u) << "the shape of the curve stays";
  EXPECT_TRUE(std::is_sorted(steps.begin(), steps.end()));
  for (uint64_t i = 0; i < 40; ++i) EXPECT_EQ(steps[steps.size() - 1 - i], 1000 - i);
}

TEST(EventQueue, NotesAreNumberedWithoutGaps) {
  EventQueue queue(3);
  for (int i = 0; i < 10; ++i) queue.Add(NoteEvent("x"));
  ASSERT_THAT(queue.Batch(), SizeIs(3));
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(queue.Batch()[i].note().line_number(), i + 1);
}

TEST(EventQueue, TextsAreCutBetweenCharacters) {
  EventQueue queue(100);
  std::string text;
  for (int i = 0; i < 20'000; ++i) text += "\xC3\xA9";
  queue.Add(NoteEvent("x" + text));
  const auto& cut = queue.Batch()[0].note().text();
  EXPECT_LE(cut.size(), (16u << 10) + 3);
  EXPECT_TRUE(cut.ends_with("\xC3\xA9..."));
}

TEST(EventQueue, WhatCannotBeTakenIsGivenUpButForTheEnd) {
  EventQueue queue(100);
  queue.Add(StepEvent(1));
  queue.Add(FinishedEvent());
  queue.Batch();
  queue.DropBatch();
  ASSERT_THAT(queue.Batch(), SizeIs(1));
  EXPECT_TRUE(queue.Batch()[0].has_finished());
  EXPECT_EQ(queue.Batch()[0].sequence(), 1u);
  queue.DropBatch();
  EXPECT_TRUE(queue.empty());
}

}  // namespace
}  // namespace imgd::report
