#include "server/store/history.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <functional>
#include <limits>

#include "imgd/v1/trainer.pb.h"
#include "server/store/history_means.h"
#include "server/store/history_reader.h"
#include "server/store/metrics_store.h"

namespace imgd {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

/// metrics.db in a folder of the test's own.
struct HistoryTest : testing::Test {
  void SetUp() override {
    const auto* info = testing::UnitTest::GetInstance()->current_test_info();
    folder = std::filesystem::path(testing::TempDir()) /
             fmt::format("imgd_history_{}_{}", info->name(), ::getpid());
    std::filesystem::remove_all(folder);
    std::filesystem::create_directories(folder);
    auto opened = MetricsStore::Open(folder);
    ASSERT_TRUE(opened.has_value()) << opened.error().message;
    store.emplace(std::move(*opened));
  }
  void TearDown() override {
    store.reset();
    std::filesystem::remove_all(folder);
  }

  static double LossAt(uint64_t step) {
    return step == 17'777 ? 1000.0 : step == 20'001 ? -50.0 : std::sin(static_cast<double>(step)) + 2;
  }
  std::function<double(uint64_t)> loss = LossAt;
  /// Reports of steps [first, last], one a step; a thousand steps are an epoch and a second has ten.
  void Report(uint64_t job, uint64_t generation, uint64_t first, uint64_t last) {
    for (uint64_t step = first; step <= last; ++step) {
      v1::StepMetrics metrics;
      metrics.set_step(step);
      metrics.set_epoch(static_cast<double>(step) / 1000);
      metrics.set_loss(loss(step) + static_cast<double>(generation));
      metrics.set_learning_rate(0.1);
      ++number;
      store->AppendEvent({.run = {JobId(job), Generation(generation)},
                          .number = number,
                          .sequence = step,
                          .kind = EventKind::kStep,
                          .time_us = static_cast<int64_t>(number) * 100'000,
                          .payload = metrics.SerializeAsString()});
    }
    ASSERT_TRUE(store->Commit().has_value());
  }
  void ReportSpeed(uint64_t generation, uint64_t step, double epoch, double images_per_second) {
    v1::StepMetrics metrics;
    metrics.set_step(step);
    metrics.set_epoch(epoch);
    metrics.set_images_per_second(images_per_second);
    store->AppendEvent({.run = {JobId(1), Generation(generation)},
                        .number = ++number,
                        .sequence = step,
                        .kind = EventKind::kStep,
                        .time_us = static_cast<int64_t>(number) * 1'000'000,
                        .payload = metrics.SerializeAsString()});
  }
  double MeanSpeed() {
    return Curves(1, {.names = {"images_per_second"}, .points = 1, .mean = true}).front().mean.value();
  }
  void Validate(uint64_t job, uint64_t generation, uint32_t epoch, double top1) {
    v1::EpochMetrics metrics;
    metrics.set_epoch(epoch);
    metrics.set_step(epoch * 1000);
    metrics.set_val_top1(top1);
    ++number;
    store->AppendEvent({.run = {JobId(job), Generation(generation)},
                        .number = number,
                        .sequence = 1'000'000 + epoch,
                        .kind = EventKind::kEpoch,
                        .time_us = static_cast<int64_t>(number) * 100'000,
                        .payload = metrics.SerializeAsString()});
    ASSERT_TRUE(store->Commit().has_value());
  }
  std::vector<Curve> Curves(uint64_t job, const CurveQuery& query) {
    auto database = Database::OpenForReading(folder / "metrics.db");
    EXPECT_TRUE(database.has_value());
    auto curves = ReadCurves(*database, JobId(job), query);
    EXPECT_TRUE(curves.has_value()) << curves.error().message;
    return curves.value_or(std::vector<Curve>());
  }
  std::vector<CurvePoint> Loss(uint64_t job, CurveQuery query) {
    query.names = {"loss"};
    auto curves = Curves(job, query);
    return curves.empty() ? std::vector<CurvePoint>() : curves.front().points;
  }
  int64_t Rows(const std::string& table) {
    auto database = Database::OpenForReading(folder / "metrics.db");
    auto& query = database->Prepare("SELECT count(*) FROM " + table);
    query.executeStep();
    return query.getColumn(0).getInt64();
  }

  std::filesystem::path folder;
  std::optional<MetricsStore> store;
  uint64_t number = 0;
};

/// What a curve has to be: each point against all the values that it stands for.
void ExpectTrue(const std::vector<CurvePoint>& points, uint64_t first_step, uint64_t last_step, size_t most) {
  EXPECT_LE(points.size(), most);
  uint64_t step = first_step;
  for (const auto& point : points) {
    double min = kInf, max = -kInf, last = 0;
    const uint64_t end = step + point.count;
    for (; step < end; ++step) {
      last = HistoryTest::LossAt(step) + 1;
      min = std::min(min, last);
      max = std::max(max, last);
    }
    ASSERT_EQ(point.x, static_cast<double>(end - 1));
    ASSERT_EQ(point.values.min, min) << "up to step " << point.x;
    ASSERT_EQ(point.values.max, max) << "up to step " << point.x;
    ASSERT_EQ(point.values.last, last) << "up to step " << point.x;
  }
  EXPECT_EQ(step, last_step + 1);
}

TEST_F(HistoryTest, EveryPointHasTheLeastAndTheGreatestOfWhatItStandsFor) {
  constexpr uint64_t kSteps = 40'700;  // pieces, two levels above them, and some that are not sealed
  Report(1, 1, 1, kSteps);
  EXPECT_GT(Rows("history WHERE level = 2"), 0);
  EXPECT_LT(Rows("history WHERE level = 0 AND figure = 10"), 80);
  for (const size_t points : {1, 2, 7, 100, 999, 1000, 5000, 40'699, 40'700, 100'000})
    ExpectTrue(Loss(1, {.points = points}), 1, kSteps, points);
  for (const auto& [from, to] : std::vector<std::pair<uint64_t, uint64_t>>{
           {1, 1}, {17'000, 18'000}, {513, 512 + 4096}, {40'000, kSteps}, {40'699, kSteps}, {2, 40'699}})
    for (const size_t points : {3, 500})
      ExpectTrue(Loss(1, {.points = points, .from = from, .to = to}), from, to, points);
  EXPECT_THAT(Loss(1, {.from = 50'000}), IsEmpty());
  EXPECT_THAT(Loss(1, {.from = 7, .to = 6}), IsEmpty());
}

TEST_F(HistoryTest, OtherAxesHaveTheSameValues) {
  Report(1, 1, 1, 2000);
  const CurveQuery epochs{.x = Axis::kEpoch, .points = 10, .from = 0.5, .to = 1.5};
  const auto by_epoch = Loss(1, epochs);
  ASSERT_FALSE(by_epoch.empty());
  EXPECT_EQ(by_epoch.back().x, 1.5);
  const auto by_images =
      Loss(1, {.x = Axis::kImages, .points = 10, .from = 640, .to = 1920, .images_per_epoch = 1280});
  ASSERT_THAT(by_images, SizeIs(by_epoch.size()));
  EXPECT_EQ(by_images.back().x, 1920);
  EXPECT_EQ(by_images.back().values.max, by_epoch.back().values.max);
  const auto by_time = Loss(1, {.x = Axis::kTime, .points = 1});
  ASSERT_THAT(by_time, SizeIs(1));
  EXPECT_EQ(by_time.front().x, 200);
  EXPECT_EQ(by_time.front().count, 2000);
  EXPECT_THAT(Loss(1, {.x = Axis::kImages}), IsEmpty()) << "nobody said how many images an epoch has";
}

TEST_F(HistoryTest, StepsThatALaterStartDidAgainCountOnce) {
  Report(1, 1, 1, 1000);
  Report(1, 2, 601, 1500);
  Report(1, 3, 1401, 1410);
  const auto by_step = Loss(1, {.points = 10'000});
  ASSERT_THAT(by_step, SizeIs(1410));
  for (size_t i = 0; i < by_step.size(); ++i) {
    const uint64_t step = i + 1;
    const double generation = step <= 600 ? 1 : step <= 1400 ? 2 : 3;
    ASSERT_EQ(by_step[i].x, static_cast<double>(step));
    ASSERT_EQ(by_step[i].values.last, LossAt(step) + generation) << step;
  }
  EXPECT_THAT(Loss(1, {.x = Axis::kTime, .points = 10'000}), SizeIs(1910));
  EXPECT_THAT(Loss(1, {.points = 10'000, .from = 590, .to = 610}), SizeIs(21));
  EXPECT_LE(Loss(1, {.points = 100}).size(), 100u);
  EXPECT_GT(Rows("history WHERE generation = 1 AND figure = 10 AND first = 512"), 0)
      << "the rest of a start that another has followed is sealed";
}

TEST_F(HistoryTest, WhatAnOlderImgdStoredIsSealedWithTheNextReport) {
  Report(1, 1, 1, 1500);
  const auto before = Loss(1, {.points = 10'000});
  store.reset();
  {
    // As it was before there was a history: events alone.
    auto database = Database::OpenForWriting(folder / "metrics.db", MetricsMigrations());
    ASSERT_TRUE(database.has_value());
    database->Execute("DELETE FROM history");
    database->Execute("DELETE FROM history_runs");
  }
  EXPECT_THAT(Loss(1, {.points = 10'000}), SizeIs(1500)) << "from the events";
  auto opened = MetricsStore::Open(folder);
  ASSERT_TRUE(opened.has_value());
  store.emplace(std::move(*opened));
  Report(1, 1, 1501, 1501);
  EXPECT_EQ(Rows("history WHERE figure = 10"), 2);
  const auto after = Loss(1, {.points = 10'000});
  ASSERT_THAT(after, SizeIs(1501));
  EXPECT_EQ(after[700].values.last, before[700].values.last);
}

TEST_F(HistoryTest, NoNumberHidesNoPeak) {
  for (uint64_t step = 1; step <= 1024; ++step) {
    v1::StepMetrics metrics;
    metrics.set_step(step);
    metrics.set_loss(step == 100 ? kInf : step > 512 ? kNan : 1);
    metrics.set_top1(step % 2 == 0 ? kNan : 0.5);
    store->AppendEvent({.run = {JobId(1), Generation(1)},
                        .number = step,
                        .sequence = step,
                        .payload = metrics.SerializeAsString()});
  }
  ASSERT_TRUE(store->Commit().has_value());
  const auto loss = Loss(1, {.points = 2});
  ASSERT_THAT(loss, SizeIs(2));
  EXPECT_EQ(loss[0].values.max, kInf);
  EXPECT_EQ(loss[0].values.min, 1);
  EXPECT_TRUE(std::isnan(loss[1].values.min) && std::isnan(loss[1].values.max));
  const auto top1 = Curves(1, {.names = {"top1"}, .points = 3});
  EXPECT_EQ(top1.front().points.front().values.max, 0.5);
}

TEST_F(HistoryTest, OneRankHasNoFiguresOfRanks) {
  for (const uint64_t job : {1, 2}) {
    v1::StepMetrics metrics;
    metrics.set_step(1);
    if (job == 2) metrics.mutable_ranks()->set_own_most_seconds(0.5);
    store->AppendEvent({.run = {JobId(job), Generation(1)},
                        .number = job,
                        .sequence = 1,
                        .payload = metrics.SerializeAsString()});
  }
  ASSERT_TRUE(store->Commit().has_value());
  for (const char* name : {"own_most_seconds", "wait_least_seconds", "slowest_rank"}) {
    const auto alone = Curves(1, {.names = {name}});
    EXPECT_TRUE(alone.empty() || alone.front().points.empty() ||
                std::isnan(alone.front().points.front().values.last))
        << name;
    EXPECT_FALSE(std::isnan(Curves(2, {.names = {name}}).front().points.front().values.last)) << name;
  }
}

TEST_F(HistoryTest, SmoothingIsOfEveryReportWhateverIsDrawn) {
  Report(1, 1, 1, 5000);
  Report(1, 2, 4001, 9700);  // 1,000 steps were done again
  const auto whole = Loss(1, {.points = 10'000, .smooth = 0.9});
  ASSERT_THAT(whole, SizeIs(9700));
  double sum = 0, share = 0;
  for (uint64_t step = 1; step <= 9700; ++step) {
    sum = sum * 0.9 + (LossAt(step) + (step <= 4000 ? 1 : 2)) * 0.1;
    share = share * 0.9 + 0.1;
    ASSERT_NEAR(whole[step - 1].smooth.value(), sum / share, 1e-9) << step;
  }
  // Fewer points, or a part of the run, have the same values at the same places.
  for (const auto& query :
       std::vector<CurveQuery>{{.points = 37, .smooth = 0.9},
                               {.points = 10'000, .from = 3990, .to = 4100, .smooth = 0.9},
                               {.points = 10, .from = 9600, .smooth = 0.9}}) {
    for (const auto& point : Loss(1, query))
      ASSERT_NEAR(point.smooth.value(), whole[static_cast<size_t>(point.x) - 1].smooth.value(), 1e-9);
  }
  EXPECT_FALSE(Loss(1, {.points = 5}).front().smooth.has_value());
}

TEST_F(HistoryTest, SmoothingThatReadsLittleIsTheSameAsThatOfEveryReport) {
  // A stretch of many pieces without a number, and within others some that are none.
  loss = [](uint64_t step) {
    if ((step > 9000 && step < 21'000) || step % 7 == 0) return kNan;
    return step == 30'000 ? kInf : LossAt(step) * (step % 1000 == 1 ? 1e4 : 1);
  };
  Report(1, 1, 1, 25'000);
  Report(1, 2, 24'001, 36'200);  // some of them not sealed
  for (const double weight : {0.001, 0.6, 0.9, 0.99, 0.999}) {
    std::vector<double> plain;
    double sum = 0, share = 0;
    for (uint64_t step = 1; step <= 36'200; ++step) {
      const double value = loss(step) + (step <= 24'000 ? 1 : 2);
      if (std::isfinite(value)) {
        sum = sum * weight + value * (1 - weight);
        share = share * weight + 1 - weight;
      }
      plain.push_back(std::isfinite(value) ? sum / share : kNan);
    }
    for (const auto& query : std::vector<CurveQuery>{{.points = 1},
                                                     {.points = 7},
                                                     {.points = 100},
                                                     {.points = 40'000},
                                                     {.points = 9, .from = 20'500},
                                                     {.points = 3, .from = 24'100},
                                                     {.points = 50, .from = 36'100}}) {
      CurveQuery asked = query;
      asked.smooth = weight;
      const auto points = Loss(1, asked);
      ASSERT_FALSE(points.empty());
      for (const auto& point : points) {
        const double right = plain[static_cast<size_t>(point.x) - 1];
        ASSERT_EQ(std::isnan(point.smooth.value()), std::isnan(right)) << weight << ", step " << point.x;
        if (std::isnan(right)) continue;
        ASSERT_NEAR(point.smooth.value(), right, 1e-9 * std::abs(right))
            << weight << ", " << query.points << " points, step " << point.x;
      }
    }
  }
}

TEST_F(HistoryTest, SmoothedALevelLossIsItself) {
  loss = [](uint64_t) { return 4.3; };
  Report(1, 1, 1, 3000);
  for (const double weight : {0.001, 0.6, 0.9, 0.999}) {
    for (const auto& point : Loss(1, {.points = 700, .smooth = weight}))
      ASSERT_EQ(point.smooth.value(), 4.3 + 1) << weight << ", step " << point.x;
  }
}

TEST_F(HistoryTest, SmoothedALossThatDivergedEndsAndOneThatComesBackGoesOn) {
  loss = [](uint64_t step) { return step <= 1000 || step > 3000 ? 1 : step == 1500 ? kInf : kNan; };
  Report(1, 1, 1, 4000);
  for (const auto& point : Loss(1, {.points = 40, .smooth = 0.9})) {
    if (point.x > 1000 && point.x <= 3000) {
      EXPECT_TRUE(std::isnan(point.smooth.value())) << point.x;
    } else {
      EXPECT_EQ(point.smooth.value(), 2) << point.x;
    }
  }
}

TEST_F(HistoryTest, OfALongRunSmoothingReadsWhatStillCountsAndNoMore) {
  Report(1, 1, 1, 40'960);
  const CurveQuery query{.points = 2, .smooth = 0.6};
  const auto before = Loss(1, query);
  ASSERT_THAT(before, SizeIs(2));
  store.reset();
  {
    auto database = Database::OpenForWriting(folder / "metrics.db", MetricsMigrations());
    ASSERT_TRUE(database.has_value());
    database->Execute(
        "DELETE FROM history WHERE figure = 10 AND level = 0 AND first NOT IN (20480 - 512, 40960 - 512)");
  }
  const auto after = Loss(1, query);
  ASSERT_THAT(after, SizeIs(2));
  for (size_t i = 0; i < 2; ++i) EXPECT_EQ(after[i].smooth, before[i].smooth) << i;
}

TEST_F(HistoryTest, WhereTooMuchIsToBeReadSomePointsAreSmoothedAndTheOthersLieBetween) {
  constexpr uint64_t kReports = 40'960;
  Report(1, 1, 1, kReports);
  auto database = Database::OpenForReading(folder / "metrics.db");
  ASSERT_TRUE(database.has_value());
  const std::vector<StepReport> none;
  const auto smooth = [&](uint64_t most) {
    HistoryValues before;
    HistoryValues values;
    values.Add(HistoryColumn(*database, JobId(1), Generation(1), Figure::kLoss, kReports), 0, kReports, none);
    std::vector<CurvePoint> points(80, CurvePoint{.count = 512});
    const auto done = Smooth(before, values, 0.6, most, points);
    EXPECT_TRUE(done.has_value());
    return points;
  };
  const auto all = smooth(kReports);
  // A place costs what still counts, 82 values, and a piece of 512.
  const auto some = smooth(10 * (82 + 512));
  for (size_t i = 0; i < all.size(); i += 8) {
    EXPECT_NEAR(*some[i].smooth, *all[i].smooth, 1e-9) << i;
    if (i + 8 == all.size()) continue;
    EXPECT_NEAR(*some[i + 2].smooth, *all[i].smooth * 0.75 + *all[i + 8].smooth * 0.25, 1e-9) << i;
  }
  EXPECT_NEAR(*some.back().smooth, *all.back().smooth, 1e-9);
}

TEST_F(HistoryTest, TheMeanIsOfEveryReport) {
  Report(1, 1, 1, 1500);
  double sum = 0;
  for (uint64_t step = 1; step <= 1500; ++step) sum += LossAt(step) + 1;
  const auto curves = Curves(1, {.names = {"loss", "val_top1"}, .points = 1, .mean = true});
  EXPECT_NEAR(curves[0].mean.value(), sum / 1500, 1e-9);
  EXPECT_FALSE(curves[1].mean.has_value());
}

TEST_F(HistoryTest, TheMeanOfSpeedsIsAllImagesOverAllTheirTime) {
  const auto report = [this](uint64_t generation, uint64_t step, double images_per_second) {
    ReportSpeed(generation, step, static_cast<double>(step) / 1000, images_per_second);
    ASSERT_TRUE(store->Commit().has_value());
  };
  const auto mean = [this] { return MeanSpeed(); };
  report(1, 1, 500);
  EXPECT_DOUBLE_EQ(mean(), 500) << "of one report what it says";
  report(1, 10, 100);
  report(1, 11, 1000);
  // The first step at 500, nine at 100 and one at 1000.
  EXPECT_NEAR(mean(), 11 / (1 / 500. + 9 / 100. + 1 / 1000.), 1e-9);
  // It goes on from step 10: step 11 counts once, and of how many its report is nobody knows.
  report(2, 11, 77);
  report(2, 21, 50);
  EXPECT_NEAR(mean(), 21 / (1 / 500. + 9 / 100. + 1 / 77. + 10 / 50.), 1e-9);
}

TEST_F(HistoryTest, OfARunThatBeganLaterTheFirstSpeedIsOfNobodyKnowsHowManySteps) {
  ReportSpeed(1, 1000, 1, 500);
  ReportSpeed(1, 1010, 1.01, 100);
  ReportSpeed(1, 1011, 1.011, 1000);
  ASSERT_TRUE(store->Commit().has_value());
  EXPECT_NEAR(MeanSpeed(), 11 / (10 / 100. + 1 / 1000.), 1e-9);
}

TEST_F(HistoryTest, OfManyReportsTheMeanOfSpeedsIsTheSame) {
  double done = 0;
  double time = 0;
  double epoch = 0;
  uint64_t step = 0;
  for (uint64_t i = 1; i <= 3000; ++i) {
    // Some are of more steps than others, and slower; after 1024 reports the batches are twice as large.
    const uint64_t steps = i % 3 == 0 ? 5 : 1;
    const double work = static_cast<double>(steps) * (i <= 1024 ? 1 : 2) / 1000;
    const double speed = i % 3 == 0 ? 100 : 400 + static_cast<double>(i % 50);
    // The second start goes on from where the first was at report 2000, which had got further.
    if (i == 2001) {
      for (uint64_t more = 1; more <= 700; ++more) ReportSpeed(1, step + 5 + more, epoch + 1, 7);
    }
    epoch += work;
    step += steps;
    ReportSpeed(i <= 2000 ? 1 : 2, step, epoch, speed);
    done += work;
    time += work / speed;
  }
  ASSERT_TRUE(store->Commit().has_value());
  EXPECT_NEAR(MeanSpeed(), done / time, 1e-9 * done / time);
}

TEST_F(HistoryTest, ValidationsAndNames) {
  Report(1, 1, 1, 3000);
  Validate(1, 1, 1, 0.3);
  Validate(1, 1, 2, 0.4);
  Validate(1, 2, 2, 0.45);
  Validate(1, 2, 3, 0.5);
  const auto curves = Curves(1, {.names = {"val_top1", "loss"}, .x = Axis::kEpoch, .points = 5});
  ASSERT_THAT(curves, SizeIs(2));
  EXPECT_EQ(curves[0].name, "val_top1");
  ASSERT_THAT(curves[0].points, SizeIs(3)) << "epoch 2 was validated again";
  EXPECT_EQ(curves[0].points[1].values.last, 0.45);
  EXPECT_EQ(curves[1].name, "loss");
  std::vector<std::string> reported;
  for (const auto& curve : Curves(1, {})) reported.push_back(curve.name);
  EXPECT_THAT(reported, ElementsAre("loss", "learning_rate", "val_top1"));
  EXPECT_THAT(Curves(9, {}), IsEmpty());
  auto database = Database::OpenForReading(folder / "metrics.db");
  const auto unknown = ReadCurves(*database, JobId(1), {.names = {"los"}});
  ASSERT_FALSE(unknown.has_value());
  EXPECT_THAT(unknown.error().message, HasSubstr("'los'"));
  EXPECT_THAT(unknown.error().hint, HasSubstr("'loss'"));
}

TEST_F(HistoryTest, ValidationsGoWithTheStepsThatALaterStartDidAgain) {
  const auto validated = [this](Axis x) {
    const auto curves = Curves(1, {.names = {"val_top1"}, .x = x, .images_per_epoch = 50});
    std::vector<double> out;
    for (const auto& point : curves.front().points) out.push_back(point.values.last);
    return out;
  };
  Report(1, 1, 1, 2200);
  Validate(1, 1, 1, 0.3);
  Validate(1, 1, 2, 0.4);
  // From a checkpoint before the second validation; few reports are not sealed, many are.
  Report(1, 2, 1850, 1900);
  for (const uint64_t last : {1900, 3000}) {
    if (last > 1900) Report(1, 2, 1901, last);
    for (const Axis x : {Axis::kStep, Axis::kEpoch, Axis::kImages})
      EXPECT_THAT(validated(x), ElementsAre(0.3)) << last << " by " << static_cast<int>(x);
    EXPECT_THAT(validated(Axis::kTime), ElementsAre(0.3, 0.4));
  }
  Validate(1, 2, 2, 0.5);
  EXPECT_THAT(validated(Axis::kStep), ElementsAre(0.3, 0.5));
}

TEST_F(HistoryTest, SealedReportsDoNotStayTwice) {
  Report(1, 1, 1, 20'000);
  EXPECT_LT(Rows("events WHERE kind = 5"), 5200) << "the newest stay, for those who follow the job";
  EXPECT_GT(Rows("events WHERE kind = 5"), 4000);
  ExpectTrue(Loss(1, {.points = 20'000}), 1, 20'000, 20'000);
}

TEST_F(HistoryTest, OfClassFiguresTheNewestFewStay) {
  for (uint64_t n = 1; n <= 5; ++n) {
    store->AppendEvent({.run = {JobId(1), Generation(1)},
                        .number = n,
                        .sequence = n,
                        .kind = EventKind::kClasses,
                        .payload = std::to_string(n)});
  }
  ASSERT_TRUE(store->Commit().has_value());
  EXPECT_EQ(Rows("events WHERE kind = 18"), 3);
  EXPECT_EQ(Rows("events WHERE kind = 18 AND number >= 3"), 3);
}

TEST_F(HistoryTest, FiguresOrLogsAloneMayGo) {
  Report(1, 1, 1, 600);
  Validate(1, 1, 1, 0.3);
  store->SaveLogPosition({{JobId(1), Generation(1)}, 0}, {.last_line = 3});
  store->RemoveFigures(JobId(1));
  ASSERT_TRUE(store->Commit().has_value());
  EXPECT_THAT(Curves(1, {}), IsEmpty());
  EXPECT_EQ(Rows("log_streams"), 1);
  store->RemoveLogs(JobId(1));
  ASSERT_TRUE(store->Commit().has_value());
  EXPECT_EQ(Rows("log_streams"), 0);
}

TEST_F(HistoryTest, OfARemovedJobNothingIsLeft) {
  Report(1, 1, 1, 600);
  Report(2, 1, 1, 600);
  store->SaveLogPosition({{JobId(1), Generation(1)}, 0}, {.last_line = 3});
  store->RemoveJob(JobId(1));
  ASSERT_TRUE(store->Commit().has_value());
  for (const char* table : {"events", "history", "history_runs", "log_streams"})
    EXPECT_EQ(Rows(std::string(table) + " WHERE job = 1"), 0) << table;
  EXPECT_EQ(Loss(2, {.points = 10'000}).size(), 600u);
}

TEST_F(HistoryTest, ABatchThatFailsLeavesNoHalf) {
  Report(1, 1, 1, 511);
  v1::StepMetrics metrics;
  metrics.set_step(512);
  store->AppendEvent({.run = {JobId(1), Generation(1)},
                      .number = 512,
                      .sequence = 512,
                      .payload = metrics.SerializeAsString()});
  store->Rollback();
  EXPECT_EQ(Rows("history"), 0);
  number = 511;
  Report(1, 1, 512, 600);
  EXPECT_EQ(Rows("history WHERE figure = 10"), 1);
  EXPECT_THAT(Loss(1, {.points = 10'000}), SizeIs(600));
}

}  // namespace
}  // namespace imgd
