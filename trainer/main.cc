#include <fcntl.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <charconv>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>

#include "common/clock.h"
#include "common/files.h"
#include "common/job_changes.h"
#include "common/version.h"
#include "trainer/by_hand.h"
#include "trainer/commands.h"
#include "trainer/environment.h"
#include "trainer/eval_job.h"
#include "trainer/library_versions.h"
#include "trainer/loop/run.h"
#include "trainer/report/background_reporter.h"
#include "trainer/report/class_file_reporter.h"
#include "trainer/report/console_reporter.h"
#include "trainer/report/control_server.h"
#include "trainer/report/http_reporter.h"
#include "trainer/report/json_lines_reporter.h"
#include "trainer/report/run_dir_reporter.h"
#include "trainer/report/tensorboard_reporter.h"
#include "trainer/signals.h"

namespace imgd::trainer {
namespace {

constexpr Duration kTimeToWriteFigures = std::chrono::seconds(10);  ///< at the end, before they are given up

/// Exit codes besides 128 + signal (docs/job-file.md).
enum Exit { kFinished = 0, kError = 1, kBadInput = 2, kCollectiveBroke = 10, kStopped = 11 };

struct Arguments {
  std::string job_file;
  bool evaluate = false;  ///< `eval WEIGHTS DATA`
  EvalArguments eval;     ///< but for its settings
  bool json = false;
  bool per_class = false;
  std::vector<std::string> settings;  ///< PATH=VALUE
  std::string trace_file;
  std::string profile_file;
  std::string profile_steps = "10:15";
  bool profile_kernels = false;
  ReportArguments report;
};

Exit ExitOf(const Error& error) {
  switch (error.code) {
    case ErrorCode::kInvalidArgument:
    case ErrorCode::kFailedPrecondition:
      return kBadInput;
    case ErrorCode::kUnavailable:
    case ErrorCode::kDeadlineExceeded:
      return kCollectiveBroke;
    default:
      return kError;
  }
}

/// Says why the process ends, to its log and to whoever follows its events.
int ReportFailure(report::Reporter& reporter, const std::vector<Error>& errors) {
  const Exit code = ExitOf(errors.front());
  std::string all;
  for (const auto& error : errors) all += (all.empty() ? "" : "\n") + error.ToString();
  reporter.On(report::Failed{all, code == kBadInput, code == kCollectiveBroke});
  for (const auto& error : errors) std::fprintf(stderr, "imgtrain: error: %s\n", error.ToString().c_str());
  return code;
}

using Job = tl::expected<JobSpec, std::vector<Error>>;
using Reporters = std::vector<std::unique_ptr<report::Reporter>>;

/// The files of figures that the job asks for, which rank 0 alone writes. `console` gets their notes.
void AddFigures(const JobSpec& spec, const Environment& env, const Clock& clock, report::Reporter& console,
                Reporters& reporters) {
  if (env.rank != 0) return;
  const report::FiguresPlace place{.folder = FiguresFolder(spec, env), .generation = env.generation};
  const auto note = [&console](const std::string& sentence) { console.Note(sentence); };
  Reporters files;
  if (spec.report.tensorboard) files.push_back(report::MakeTensorboardReporter(place, clock, note));
  if (spec.report.json_lines) files.push_back(report::MakeJsonLinesReporter(place, clock, note));
  if (files.empty()) return;
  files.push_back(report::MakeClassFileReporter(place, note));
  reporters.push_back(report::MakeBackgroundReporter(std::make_unique<report::Tee>(std::move(files)), note));
}

/// A job that could not be read has reporters too, which say so. `by_hand`: what is told to imgd.
Result<std::unique_ptr<report::Reporter>> MakeReporter(const Job& job, const Environment& env,
                                                       std::optional<report::HttpReport> by_hand,
                                                       const Clock& clock) {
  Reporters reporters;
  if (!env.run_dir.empty()) {
    IMGD_ASSIGN(auto events, report::MakeRunDirReporter(env.run_dir, env.local_rank, clock));
    reporters.push_back(std::move(events));
  }
  // Lines for people even where there are events: they are what is seen in the job's log.
  report::ConsoleOptions options;
  options.quiet = env.rank != 0;
  options.in_place = env.run_dir.empty() && ::isatty(STDOUT_FILENO) != 0;
  if (job) options.line_every_steps = static_cast<uint64_t>(job->train.log_every_steps);
  reporters.push_back(report::MakeConsoleReporter(options, stdout, stderr));
  report::Reporter& console = *reporters.back();
  if (job) AddFigures(*job, env, clock, console, reporters);
  // The last: it waits longest for a failure to arrive.
  if (by_hand) {
    reporters.push_back(report::MakeHttpReporter(
        std::move(*by_hand), clock, [&console](const std::string& sentence) { console.Note(sentence); }));
  }
  return std::make_unique<report::Tee>(std::move(reporters));
}

Job ReadJob(const Arguments& arguments) {
  const auto failed = [](Error error) { return tl::unexpected(std::vector<Error>{std::move(error)}); };
  const auto text = ReadFile(arguments.job_file, kMaxJobFileBytes);
  if (!text) {
    Error error = text.error();
    error.code = ErrorCode::kInvalidArgument;
    return failed(std::move(error));
  }
  return ParseChangedJobFile(*text, arguments.job_file, arguments.settings);
}

int Train(const Job& job, const Environment& env, report::Reporter& reporter, Commands& commands,
          Whereabouts& whereabouts) {
  if (!job) return ReportFailure(reporter, job.error());
  std::unique_ptr<report::ControlServer> control;
  if (!env.run_dir.empty()) {
    auto started = report::ControlServer::Start(
        env.run_dir, env.local_rank,
        {.checkpoint = [&commands] { commands.AskForCheckpoint(); },
         .stop = [&commands](bool checkpoint_first) { commands.AskToStop(checkpoint_first); },
         .profile = [&commands](uint32_t steps) { commands.AskForProfile(steps); }});
    if (!started) return ReportFailure(reporter, {started.error()});
    control = std::move(*started);
  }
  const auto end = RunTraining(*job, env, reporter, commands, whereabouts);
  if (!end) return ReportFailure(reporter, {end.error()});
  return *end == RunEnd::kStopped ? kStopped : kFinished;
}

Job EvaluationJob(const Arguments& arguments) {
  auto metadata = MetadataOfWeights(arguments.eval.weights);
  if (!metadata) return tl::unexpected(std::vector<Error>{metadata.error()});
  EvalArguments eval = arguments.eval;
  eval.settings = arguments.settings;
  return EvalJob(eval, std::move(*metadata));
}

int RunEval(const Job& job, const Arguments& arguments, const Environment& env, report::Reporter& reporter) {
  if (!job) return ReportFailure(reporter, job.error());
  const auto result = RunEvaluation(*job, env, reporter);
  if (!result) return ReportFailure(reporter, {result.error()});
  if (env.rank != 0) return kFinished;
  const ValidationResult& found = result->result;
  if (arguments.json) {
    const std::string classes = arguments.per_class ? ", \"classes\": " + ToJson(result->classes) : "";
    std::printf("{\"images\": %llu, \"top1\": %.8f, \"top5\": %.8f, \"loss\": %.8f%s}\n",
                static_cast<unsigned long long>(found.images), found.top1, found.top5, found.loss,
                classes.c_str());
    return kFinished;
  }
  if (arguments.per_class) std::fputs((ToTable(result->classes) + "\n").c_str(), stdout);
  std::printf("top-1 %.3f %%, top-5 %.3f %%, loss %.5f (%llu images, %s)\n", 100 * found.top1,
              100 * found.top5, found.loss, static_cast<unsigned long long>(found.images),
              job->model.name.c_str());
  return kFinished;
}

/// LibTorch's own threads (NCCL's watchdog, Gloo's loop) end the process by an exception that nobody catches;
/// this gives it our words and code. All arguments must outlive the process's other threads.
void ReportTermination(const Environment& env, report::Reporter& reporter, const Whereabouts& whereabouts) {
  static const Environment* environment = nullptr;
  static report::Reporter* sink = nullptr;
  static const Whereabouts* others = nullptr;
  environment = &env;
  sink = &reporter;
  others = &whereabouts;
  std::set_terminate([] {
    Error error{.message = "an exception that nobody caught"};
    try {
      if (const auto current = std::current_exception()) std::rethrow_exception(current);
    } catch (const std::exception& e) {
      error = ErrorOf(*environment, e);
    } catch (...) {
    }
    error.message = "a thread of LibTorch's gave up: " + error.message.substr(0, error.message.find('\n'));
    if (error.code == ErrorCode::kUnavailable) {
      if (const std::string late = others->LateRanks(); !late.empty()) error.message += "; " + late;
    }
    // A thread that hangs may hold what a reporter needs.
    EndAfterTimeToReport(ExitOf(error));
    ::_exit(ReportFailure(*sink, {error}));
  });
}

/// What --profile and --profile-steps ask for: FIRST:END, END not included, counted from 0.
Result<Environment::Profile> ProfileOf(const Arguments& arguments) {
  const std::string& text = arguments.profile_steps;
  uint64_t first = 0;
  uint64_t end = 0;
  const auto* const last = text.data() + text.size();
  const auto [colon, bad] = std::from_chars(text.data(), last, first);
  const bool has_end = bad == std::errc() && colon != last && *colon == ':';
  const auto [rest, worse] =
      has_end ? std::from_chars(colon + 1, last, end) : std::from_chars_result{last, bad};
  if (!has_end || worse != std::errc() || rest != last || end <= first) {
    return Fail(
        ErrorCode::kInvalidArgument,
        "--profile-steps: found '{}'; give it as FIRST:END, such as 10:15 for the five steps after the "
        "first ten",
        text);
  }
  return Environment::Profile{arguments.profile_file, first, end - first, arguments.profile_kernels};
}

/// What --report and its like ask for. A job that could not be read is none that imgd is told of.
Result<std::optional<report::HttpReport>> ReportOf(const Arguments& arguments, const Job& job,
                                                   const Environment& env) {
  const bool trains =
      !arguments.report.url.empty() || !arguments.trace_file.empty() || !arguments.profile_file.empty();
  if (arguments.evaluate && trains) {
    return Fail(ErrorCode::kInvalidArgument,
                "--report, --trace and --profile go with a job file, not with eval");
  }
  if (!job) return std::nullopt;
  return ReportByHand(arguments.report, *job, env, [](const char* name) { return std::getenv(name); });
}

int Main(const Arguments& arguments) {
  // While signals still end the process by themselves: a pipe that it comes from may take its time.
  const Job job = arguments.evaluate ? EvaluationJob(arguments) : ReadJob(arguments);
  BlockEndingSignals();
  static const SystemClock clock;
  auto env = ReadEnvironment([](const char* name) -> const char* { return std::getenv(name); });
  if (!env) {
    std::fprintf(stderr, "imgtrain: error: %s\n", env.error().ToString().c_str());
    return kBadInput;
  }
  if (!arguments.trace_file.empty()) env->trace_file = arguments.trace_file;
  if (!arguments.profile_file.empty()) {
    const auto profile = ProfileOf(arguments);
    if (!profile) {
      std::fprintf(stderr, "imgtrain: error: %s\n", profile.error().ToString().c_str());
      return kBadInput;
    }
    env->profile = *profile;
  }
  auto by_hand = ReportOf(arguments, job, *env);
  if (!by_hand) {
    std::fprintf(stderr, "imgtrain: error: %s\n", by_hand.error().ToString().c_str());
    return kBadInput;
  }
  const auto reporter = MakeReporter(job, *env, std::move(*by_hand), clock);
  if (!reporter) {
    std::fprintf(stderr, "imgtrain: error: %s\n", reporter.error().ToString().c_str());
    return kError;
  }
  report::Reporter& sink = **reporter;
  static Whereabouts whereabouts;
  ReportTermination(*env, sink, whereabouts);
  static Commands commands;
  // Slurm and torchrun tell a run so that its time is over; under imgd the agent has commands for that.
  const bool saves = !arguments.evaluate && env->run_dir.empty();
  EndOnSignals(
      [&sink, saves, rank = env->rank, told = false](int number) mutable {
        // Before the first step there is nothing to save, and others may never come.
        if (!saves || number != SIGTERM || !commands.Listening() || std::exchange(told, true)) return false;
        commands.AskToStop(/*checkpoint_first=*/true);
        sink.Note(
            fmt::format("rank {}: SIGTERM: the run ends after this step, with a checkpoint; another signal "
                        "ends it at once",
                        rank));
        return true;
      },
      [&sink, rank = env->rank](int number) {
        const char* name = number == SIGINT ? "SIGINT" : "SIGTERM";
        sink.On(report::Failed{.message = fmt::format("rank {} was ended by {}", rank, name)});
      });
  const int code = arguments.evaluate ? RunEval(job, arguments, *env, sink)
                                      : Train(job, *env, sink, commands, whereabouts);
  // A failure has waited for what it may, and others wait for its end.
  if (code == kFinished || code == kStopped) sink.Drain(kTimeToWriteFigures);
  // At once: other threads may still wait for ranks that are gone.
  std::fflush(nullptr);
  ::_exit(code);
}

}  // namespace
}  // namespace imgd::trainer

int main(int argc, char** argv) {
  CLI::App app{
      "Trains an image classifier as a job file says: alone, or as one rank under torchrun's environment."};
  imgd::trainer::Arguments arguments;
  auto* const job =
      app.add_option("job", arguments.job_file, "Job file (YAML; docs/job-file.md)")->type_name("job.yaml");
  app.add_option("--set", arguments.settings, "Changes a setting of the job file, such as train.epochs=10")
      ->type_name("PATH=VALUE")
      ->take_all();
  app.add_option("--trace", arguments.trace_file,
                 "Adds a line to FILE for each step: step, rank, and the numbers of its samples")
      ->type_name("FILE");
  app.add_option(
         "--profile", arguments.profile_file,
         "Profiles some steps of rank 0: a Chrome trace in FILE, a table of the costliest operators in "
         "FILE.txt")
      ->type_name("FILE");
  app.add_option("--profile-steps", arguments.profile_steps,
                 "Which steps --profile is of, from 0, the last not included (default: 10:15)")
      ->type_name("FIRST:END");
  app.add_flag("--profile-kernels", arguments.profile_kernels,
               "Of a GPU's kernels alone, which slows the steps least");
  auto* const report = app.add_option("--report", arguments.report.url,
                                      "Tells imgd of this run, with the token in IMGD_REPORT_TOKEN; rank 0 "
                                      "does it for all (docs/report.md)")
                           ->type_name("URL");
  app.add_option("--report-token-file", arguments.report.token_file, "Takes the token from FILE")
      ->type_name("FILE")
      ->needs(report);
  app.add_option("--report-ca", arguments.report.ca_file,
                 "Certificates to trust (PEM), such as the one that imgd made itself")
      ->type_name("FILE")
      ->needs(report);
  app.set_version_flag("--version", std::string("imgtrain ") + imgd::kVersion);
  app.add_flag_callback(
      "--libraries",
      [] {
        std::fputs(imgd::trainer::LibraryVersions().c_str(), stdout);
        throw CLI::Success();
      },
      "Prints the versions of LibTorch, CUDA and NCCL that it runs with, and exits");
  auto* const eval = app.add_subcommand("eval", "Counts how often weights are right on a validation set");
  eval->add_option("weights", arguments.eval.weights, "safetensors, or a state dict of torch.save()")
      ->required();
  eval->add_option("data", arguments.eval.data, "The validation set, as data.val has it")->required();
  eval->add_option("--model", arguments.eval.model,
                   "What the weights are of (default: as the file says, which ours do)")
      ->type_name("NAME");
  eval->add_option(
          "--set", arguments.settings,
          "Changes how it is done, such as data.val_size=224, data.val_resize=232, train.precision=bf16")
      ->type_name("PATH=VALUE")
      ->take_all();
  eval->add_flag("--json", arguments.json, "Prints one JSON object");
  eval->add_flag(
      "--per-class", arguments.per_class,
      "Also the accuracy of each class; with --json the confusion matrix and the worst images too");
  try {
    app.parse(argc, argv);
    arguments.evaluate = eval->parsed();
    if (!arguments.evaluate && job->count() == 0) throw CLI::RequiredError("job");
  } catch (const CLI::ParseError& e) {
    return app.exit(e) == 0 ? 0 : 2;
  }
  return imgd::trainer::Main(arguments);
}
