#include <algorithm>
#include <csignal>

#include "cli/commands.h"
#include "cli/format.h"
#include "cli/screen.h"
#include "cli/serialize.h"
#include "cli/top_feed.h"
#include "cli/top_view.h"
#include "cli/words.h"

namespace imgd::cli {
namespace {

using namespace std::chrono_literals;

constexpr Duration kRedrawTop = 1s;    ///< how old times on the screen may get
constexpr Duration kTopTimeout = 5s;   ///< for an answer, where --timeout does not say
constexpr int kSnapshotColumns = 120;  ///< where that is no terminal
constexpr int kFrameAroundPage = 8;    ///< lines of the screen that don't move with a page

struct TopOptions {
  bool once = false;
  OutputFormat format = OutputFormat::kTable;
};

/// Draws, and takes keys, until somebody leaves.
class TopScreen {
 public:
  TopScreen(Context& context, TopFeed& feed, Screen& screen)
      : feed_(feed), screen_(screen), utf8_(context.terminal().utf8), painter_(context.terminal().color) {}

  /// The signal that it was ended by; 0 when its user left.
  int Run(const Interrupt& interrupt) {
    while (!interrupt.Triggered()) {
      const auto size = screen_.GetSize();
      const auto data = feed_.Now();
      const Look look{.width = size.columns, .height = size.lines, .utf8 = utf8_};
      if (!screen_.Write(painter_.Paint(TopFrame(data, state_, NowMicros(), look), look))) return SIGHUP;
      const auto input = screen_.Wait(std::chrono::steady_clock::now() + kRedrawTop);
      if (input.signal != 0) return input.signal;
      if (input.redraw) painter_.Forget();
      for (const auto& key : input.keys) {
        if (!Take(key, data, std::max(1, size.lines - kFrameAroundPage))) return 0;
      }
    }
    return 0;
  }

 private:
  /// False when the user leaves.
  bool Take(const Key& key, const TopData& data, int page) {
    const auto act = OnKey(state_, data, key, page);
    feed_.Open(state_.view == TopState::View::kJob ? state_.open_job : 0);
    if (act.kind == TopAct::Kind::kCancel) feed_.Cancel(act.job, act.checkpoint);
    return act.kind != TopAct::Kind::kQuit;
  }

  TopFeed& feed_;
  Screen& screen_;
  const bool utf8_;
  TopState state_;
  FramePainter painter_;
};

void PrintSnapshot(Context& context, const TopData& data) {
  const auto& terminal = context.terminal();
  const Look look{.width = terminal.Width() > 0 ? std::max(terminal.Width(), kTopColumns) : kSnapshotColumns,
                  .utf8 = terminal.utf8};
  for (const auto& line : TopSnapshot(data, NowMicros(), look)) {
    std::string text;
    for (const auto& cell : line) text += Paint(Printable(cell.text), cell.style, terminal.color);
    text.erase(text.find_last_not_of(' ') + 1);
    context.out() << text << '\n';
  }
}

void PrintTopDocument(Context& context, const TopData& data, OutputFormat format) {
  const auto totals = TotalsOf(data);
  nlohmann::ordered_json document;
  document["server"] = data.server;
  document["taken_us"] = std::to_string(data.taken_us);
  document["totals"] = {{"nodes", totals.nodes},
                        {"nodes_ready", totals.nodes_ready},
                        {"devices", totals.devices},
                        {"devices_allocated", totals.devices_allocated},
                        {"devices_free", totals.devices_free},
                        {"jobs_running", totals.running},
                        {"jobs_queued", totals.queued},
                        {"jobs_paused", totals.paused},
                        {"more_jobs", data.more_jobs},
                        {"images_per_second", totals.images_per_second}};
  document["nodes"] = ToJsonArray(data.nodes);
  document["jobs"] = ToJsonArray(data.jobs);
  PrintDocument(context.out(), document, format);
}

int ShowOnce(Context& context, const TopData& data, OutputFormat format) {
  context.Warn(data.warning);
  if (format == OutputFormat::kTable) {
    PrintSnapshot(context, data);
  } else {
    PrintTopDocument(context, data, format);
  }
  return 0;
}

/// The exit code: 128 and the signal, or where its user left 0, or that of an order that came to nothing.
int ShowOnScreen(Context& context, TopFeed& feed, std::unique_ptr<Screen> screen) {
  auto& interrupt = context.interrupt();
  int code = 0;
  Errors lost;
  {
    const Interrupt::Scope scope(interrupt, [&] { screen->Wake(); });
    interrupt.BeforeLeaving([&] { screen->GiveBack(); });
    feed.Start([&] { screen->Wake(); });
    const int signal = TopScreen(context, feed, *screen).Run(interrupt);
    code = interrupt.Triggered() ? interrupt.ExitCode() : signal != 0 ? 128 + signal : 0;
    lost = feed.Stop();
    interrupt.BeforeLeaving({});
  }
  screen.reset();
  for (const auto& error : lost) context.Say(Printable(error.ToString()), Style::kBad);
  return code == 0 && !lost.empty() ? ExitCodeOf(lost.front().code) : code;
}

int RunTop(Context& context, const TopOptions& options) {
  const bool once = options.once || options.format != OutputFormat::kTable || !context.terminal().is_terminal;
  // Before any thread: they inherit the signals that it takes.
  auto screen = once ? nullptr : context.OpenScreen();
  if (screen) context.FollowUntilInterrupted();
  auto client = context.client();
  if (!client) return context.Fail(client.error());
  if (screen && !context.timeout) (*client)->set_timeout(kTopTimeout);
  TopFeed feed(**client, context.interrupt(), OwnerName(context.env()));
  if (auto begun = feed.Begin(); !begun) return context.Fail(begun.error());
  return screen ? ShowOnScreen(context, feed, std::move(screen))
                : ShowOnce(context, feed.Now(), options.format);
}

}  // namespace

void AddTopCommand(Command app, Context& context) {
  auto options = std::make_shared<TopOptions>();
  Command command = app.AddSubcommand("top", "Show the whole cluster, live: GPUs, jobs, curves of a job");
  command.AddFlag("--once", options->once, "Print the cluster as it is now, and end");
  AddOutputOption(command, options->format, kPlainFormats);
  command.Footer(
      "Needs a terminal of 80x24; elsewhere, and with -o json or yaml, it prints the cluster once. Enter or "
      "a "
      "job's\n"
      "number opens a job; ? shows the keys, q leaves. Goes on when imgd restarts.\n\n"
      "Examples:\n"
      "  imgcli top\n"
      "  imgcli top --once | head -n 2\n"
      "  imgcli top -o json | jq .totals.images_per_second");
  command.Runs([&context, options] { return RunTop(context, *options); });
}

}  // namespace imgd::cli
