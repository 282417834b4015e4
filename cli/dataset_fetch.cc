#include "cli/dataset_fetch.h"

#include <algorithm>
#include <chrono>
#include <filesystem>

#include "cli/commands.h"
#include "cli/format.h"
#include "cli/progress_line.h"
#include "common/files.h"
#include "common/url.h"
#include "trainer/data/fetch.h"
#include "trainer/data/shard_list.h"
#include "trainer/data/sources.h"

namespace imgd::cli {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr int kTransferBar = 10;
constexpr int kDamagedExit = 6;  ///< docs/exit-codes.md

struct FetchArguments {
  std::vector<std::string> words;  ///< URLs, and OUT as the last
  std::string checksums;
  int connections = 4;
};

/// "fetching train.tar ###....... 1.2 GiB of 6.3 GiB, 110 MiB/s, 48s left", drawn over itself.
class TransferLine {
 public:
  explicit TransferLine(Context& context) : utf8_(context.terminal().utf8), line_(context) {}

  void Show(const std::string& name, uint64_t done, uint64_t total, bool checking) {
    const auto now = Clock::now();
    if (!since_ || checking != checking_) {
      since_ = now;
      from_ = done;
      checking_ = checking;
    }
    if (!line_.Due(done, total)) return;
    const double ratio = total == 0 ? 1 : static_cast<double>(done) / static_cast<double>(total);
    std::string text = fmt::format("{} {} {} {} of {}", checking ? "checking" : "fetching", Printable(name),
                                   Bar(ratio, kTransferBar, utf8_), HumanBytes(done), HumanBytes(total));
    const double seconds = std::chrono::duration<double>(now - *since_).count();
    if (seconds > kRateSettled && done > from_) {
      const double rate = static_cast<double>(done - from_) / seconds;
      text += fmt::format(", {}/s, {} left", HumanBytes(static_cast<uint64_t>(rate)),
                          HumanDuration(static_cast<double>(total - done) / rate));
    }
    line_.Draw(text);
  }
  void End() {
    line_.End();
    since_.reset();
  }

 private:
  const bool utf8_;
  DrawnLine line_;
  std::optional<Clock::time_point> since_;
  uint64_t from_ = 0;
  bool checking_ = false;
};

/// What is fetched where to.
struct Job {
  std::string where;
  std::string name;
  std::string out;
  std::optional<std::string> checksum;
};

Result<std::vector<Job>> Plan(const FetchArguments& arguments) {
  data::Checksums sums;
  if (!arguments.checksums.empty()) {
    IMGD_ASSIGN(const std::string text, ReadFile(arguments.checksums, 64 << 20));
    IMGD_ASSIGN(sums, data::ParseChecksums(text, arguments.checksums));
  }
  const std::string& out = arguments.words.back();
  std::vector<Job> jobs;
  for (size_t i = 0; i + 1 < arguments.words.size(); ++i) {
    IMGD_ASSIGN(const auto urls, data::ExpandBraces(arguments.words[i]));
    for (const auto& url : urls) {
      if (!IsUrl(url)) {
        return Fail(ErrorCode::kInvalidArgument, "'{}' is no URL that begins with http://, https:// or s3://",
                    Printable(url));
      }
      Job job{.where = url, .name = NameOfFile(url)};
      if (job.name.empty() || job.name == "." || job.name == "..")
        return Fail(ErrorCode::kInvalidArgument, "{} names no file; what is fetched are single files",
                    Printable(data::Shown(url)));
      if (job.name.find('/') != std::string::npos)
        return Fail(ErrorCode::kInvalidArgument, "{} names a file with a '/' in it",
                    Printable(data::Shown(url)));
      const auto listed = sums.find(job.name);
      if (listed != sums.end()) {
        job.checksum = listed->second;
      } else if (!arguments.checksums.empty()) {
        return Fail(ErrorCode::kInvalidArgument, "{} does not list {}", arguments.checksums,
                    Printable(job.name));
      } else {
        job.checksum = data::KnownChecksum(job.name);
      }
      job.out = (fs::path(out) / job.name).string();
      if (std::ranges::find(jobs, job.name, &Job::name) != jobs.end())
        return Fail(
            ErrorCode::kInvalidArgument,
            "two of the URLs name a file {}, and {} can hold only one of them; fetch them into folders "
            "of their own",
            Printable(job.name), Printable(out));
      jobs.push_back(std::move(job));
    }
  }
  return jobs;
}

int Fetch(Context& context, const FetchArguments& arguments) {
  context.FollowUntilInterrupted();
  const auto jobs = Plan(arguments);
  if (!jobs) return context.Fail({jobs.error()});
  auto settings = data::SourceSettings::FromEnvironment(
      [&context](const char* name) { return context.env() ? context.env()(name) : std::string(); });
  if (!settings) return context.Fail({settings.error()});
  TransferLine line(context);
  settings->http.notice = [&](const std::string& text) { context.Say(text, Style::kWarn); };
  const data::SourceOpener opener(std::move(*settings));
  if (const Status made = MakeFolders(arguments.words.back()); !made) return context.Fail({made.error()});
  for (const auto& job : *jobs) {
    data::FetchOptions options{.connections = arguments.connections, .checksum = job.checksum};
    options.on_progress = [&](uint64_t done, uint64_t total, bool checking) {
      line.Show(job.name, done, total, checking);
      return !context.interrupt().Triggered();
    };
    const auto fetched = data::FetchFile(opener, job.where, job.out, options);
    line.End();
    if (!fetched) {
      const int code = context.Fail({fetched.error()});
      return fetched.error().code == ErrorCode::kDataLoss ? kDamagedExit : code;
    }
    const std::string kept =
        fetched->kept == 0 ? ""
        : fetched->kept == fetched->bytes
            ? fetched->checked ? ", was there already" : ", was there already with this size"
            : fmt::format(", {} of it was there already", HumanBytes(fetched->kept));
    context.out() << fmt::format("{}: {}{}{}\n", Printable(job.out), HumanBytes(fetched->bytes), kept,
                                 fetched->checked ? ", checksum right" : "")
                  << std::flush;
  }
  return 0;
}

}  // namespace

void AddFetch(Command dataset, Context& context) {
  auto arguments = std::make_shared<FetchArguments>();
  Command command = dataset.AddSubcommand("fetch", "Download archives or shards, resumed after any break");
  command
      .AddOption("URL... OUT", arguments->words,
                 "What to fetch (http, https, s3; braces as {00..99}), and the folder")
      .Required()
      .AtLeast(2)
      .ValueName("");
  command
      .AddOption("--checksums", arguments->checksums,
                 "File as md5sum or sha256sum writes it; must list each file")
      .ValueName("FILE");
  command.AddNumber("--connections", "Ranges of a file fetched at once, 1 to 64 (default 4)", 1, 64,
                    [arguments](uint64_t count) { arguments->connections = static_cast<int>(count); });
  command.Footer(
      "A file appears in OUT when it is complete; until then it is NAME.part. After Ctrl-C or a crash the "
      "same\n"
      "command goes on. A complete file is compared, not fetched again. The checksums of ImageNet's own "
      "archives\n"
      "(ILSVRC2012_img_train.tar, ILSVRC2012_img_val.tar, ILSVRC2012_devkit_t12.tar.gz) are known by name.\n"
      "Credentials: a file that IMGD_HTTP_AUTHORIZATION_FILE names, or the usual AWS_ variables.\n\n"
      "Examples:\n"
      "  imgcli dataset fetch https://example.org/ILSVRC2012_img_val.tar /data/archives\n"
      "  imgcli dataset fetch 's3://bucket/train-{000000..000099}.tar' /data/shards --checksums SHA256SUMS");
  command.Runs([&context, arguments] { return Fetch(context, *arguments); });
}

}  // namespace imgd::cli
