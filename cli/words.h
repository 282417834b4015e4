#pragma once

#include <optional>
#include <string>

#include "cli/output.h"
#include "cli/settings.h"
#include "imgd/v1/job.pb.h"

namespace imgd::cli {

/// "RUNNING".
std::string StateName(v1::JobState state);

/// The state of that name, in any case. Errors: kInvalidArgument with the nearest name.
Result<v1::JobState> ParseState(const std::string& name);

/// "WAITS_FOR_DEVICES"; empty for none.
std::string ReasonName(v1::ReasonCode reason);

/// An estimate: "40 s", "12 min", "3 h 05 min", "4 days".
std::string AboutText(double seconds);

/// COMPLETED, FAILED or CANCELLED.
bool IsFinal(v1::JobState state);

/// STARTING, RUNNING or PREEMPTING.
bool HoldsNodes(v1::JobState state);
bool HoldsNodes(const v1::Job& job);

Style StyleOf(v1::JobState state);

/// Exit code of a command that follows a job to its end: 0 COMPLETED, 6 FAILED, 7 CANCELLED.
int ExitCodeOfState(v1::JobState state);

/// "job 12 (rn18-demo)".
std::string JobTitle(const v1::Job& job);

/// "2 nodes with 8 ranks each"; of a gang that may grow and shrink "2 to 8 nodes with 8 ranks each; 4 nodes
/// now".
std::string GangText(const v1::Job& job);

/// Its ranks report figures, epochs and checkpoints. Of a command or conversion only processes and logs are
/// known.
bool Trains(const v1::Job& job);

/// "training", "command" or "conversion".
std::string KindText(v1::JobKind kind);

/// Ranks on the node.
uint32_t RanksOn(const v1::Placement& placement);

/// The same as a number: "2", "4 (2-8)" or "2-8" before its first start.
std::string NodesText(const v1::Job& job);

/// Ranks of its latest start, or that it needs before the first; and those of the largest gang it may be.
uint32_t RanksNow(const v1::Job& job);
uint32_t MostRanks(const v1::Job& job);

/// "started by hand on gpu-3", with how many other hosts; empty for a job that imgd manages.
std::string ByHandText(const v1::Job& job);

/// "in about 40m00s, at 2025-11-21 07:53:14" or "now"; empty where nobody knows. Microseconds since 1970 UTC.
std::string ExpectedStartText(const v1::Job& job, int64_t now_us);

/// "job 12 (rn50-pre) to complete, job 13 (b) to end: it is COMPLETED"; empty for a job that comes after
/// none.
std::string AfterText(const google::protobuf::RepeatedPtrField<v1::Dependency>& after);

/// "optimizer.lr=0.1, seed=2".
std::string SweepSettingsText(const google::protobuf::RepeatedPtrField<v1::SweepSetting>& settings);

/// Share of the steps that are done, if steps are known.
std::optional<double> DoneRatio(const v1::Job& job);

/// "188/400 47%", or by epochs before the first step's figures; empty when nothing is known.
std::string ProgressText(const v1::Job& job);

/// Images a second; empty where nobody knows: of a start that has reported nothing yet.
std::string SpeedText(const v1::StepMetrics& step);

/// "812 images/s  loss 1.234  top-1 45.2%"; begins with the loss where nobody knows the speed.
std::string TrainingText(const v1::StepMetrics& step);

/// How long its run still takes: "1m02s"; empty where nobody knows.
std::string TimeLeftText(const v1::StepMetrics& step);

/// Whether training waits for its data, and where the loader's time goes: "keeps up: ...".
std::string LoaderText(const v1::LoaderMetrics& loader);

/// Where a step's time goes: "412 ms a step: forward 31 %, ..."; empty without figures.
std::string TimesText(const v1::StepMetrics& step);

/// Which rank is the slowest, and how much the others wait: empty with one rank.
std::string RankSpreadText(const v1::RankSpread& ranks);

/// "top-1 92.4%, top-5 99.8%".
std::string AccuracyText(const v1::EpochMetrics& epoch);

/// "exit code 1: last line" or "killed by SIGKILL: last line".
std::string RankExitText(const v1::RankExit& exit);

/// It trained to the end, or stopped because it was told to.
bool EndedWell(const v1::RankExit& exit);

/// "0-3,6" from 0, 1, 2, 3, 6.
template <typename Numbers>
std::string RangesText(const Numbers& numbers);

/// Node that the rank runs or ran on; empty when it is not known.
std::string NodeOfRank(const v1::Job& job, uint32_t rank);

/// What happened, in one line without the time.
std::string EventText(const v1::JobEvent& event);

Style StyleOf(const v1::JobEvent& event);

/// Takes the event into what is known of the job.
void ApplyEvent(const v1::JobEvent& event, v1::Job& job);

/// Seconds that the job has run, over all its starts and without the time between them; 0 when it never
/// started.
double RanSeconds(const v1::Job& job, int64_t now_us);
/// The same; 0 of one that ended before its ranks ran.
double RanSeconds(const v1::GetJobResponse& job, int64_t now_us);

/// Microseconds since 1970 UTC.
int64_t NowMicros();

}  // namespace imgd::cli

template <typename Numbers>
std::string imgd::cli::RangesText(const Numbers& numbers) {
  std::string out;
  for (auto first = numbers.begin(); first != numbers.end();) {
    auto last = first;
    auto next = first;
    for (++next; next != numbers.end() && *next == *last + 1; ++next) last = next;
    if (!out.empty()) out += ',';
    out += std::to_string(*first);
    if (last != first) out += '-' + std::to_string(*last);
    first = next;
  }
  return out;
}
