#include "cli/dataset_serve.h"

#include <charconv>
#include <filesystem>
#include <optional>
#include <thread>

#include "cli/commands.h"
#include "cli/format.h"
#include "trainer/data/file_server.h"

namespace imgd::cli {
namespace {

struct ServeArguments {
  std::string folder;
  std::string listen;
  std::optional<int> port;
};

/// "127.0.0.1:8000", "[::1]:8000", "0.0.0.0"
Status ParseListen(const std::string& text, data::FileServerOptions& options) {
  const size_t bracket = text.rfind(']');
  const size_t colon = text.rfind(':');
  const bool has_port = colon != std::string::npos && (bracket == std::string::npos || colon > bracket);
  const bool bare_six = bracket == std::string::npos && text.find(':') != colon;
  options.address = has_port && !bare_six ? text.substr(0, colon) : text;
  if (options.address.starts_with('[') && options.address.ends_with(']'))
    options.address = options.address.substr(1, options.address.size() - 2);
  if (!has_port || bare_six) return {};
  const std::string digits = text.substr(colon + 1);
  const auto parsed = std::from_chars(digits.data(), digits.data() + digits.size(), options.port);
  if (parsed.ec == std::errc() && parsed.ptr == digits.data() + digits.size() && options.port >= 0 &&
      options.port <= 65535)
    return {};
  return Fail(ErrorCode::kInvalidArgument,
              "--listen: found '{}' where ADDRESS:PORT, such as 127.0.0.1:8000, is expected", text);
}

Result<data::FileServerOptions> OptionsOf(const ServeArguments& arguments) {
  data::FileServerOptions options{.folder = arguments.folder, .port = 8000};
  options.threads = static_cast<int>(std::clamp(std::thread::hardware_concurrency(), 1U, 8U));
  if (!arguments.listen.empty()) IMGD_TRY(ParseListen(arguments.listen, options));
  if (arguments.port) options.port = *arguments.port;
  return options;
}

int Serve(Context& context, const ServeArguments& arguments) {
  const auto options = OptionsOf(arguments);
  if (!options) return context.Fail({options.error()});
  context.FollowUntilInterrupted();
  auto server = data::FileServer::Start(*options);
  if (!server) return context.Fail({server.error()});
  context.out() << fmt::format("Serving {} at {} until Ctrl-C\n", Printable(arguments.folder),
                               (*server)->url());
  std::error_code ignored;
  const bool split =
      std::filesystem::is_directory(std::filesystem::path(arguments.folder) / "train", ignored);
  context.out() << fmt::format("In a job: data.train: {}{}\n", (*server)->url(), split ? "train/" : "")
                << std::flush;
  while (!context.interrupt().WaitFor(std::chrono::hours(1))) {
  }
  const uint64_t requests = (*server)->requests();
  const uint64_t bytes = (*server)->bytes();
  server->reset();
  context.Say(fmt::format("served {}, {}", Count(requests, "request"), HumanBytes(bytes)));
  return 0;
}

}  // namespace

void AddServe(Command dataset, Context& context) {
  auto arguments = std::make_shared<ServeArguments>();
  Command command = dataset.AddSubcommand("serve", "Serve shards by HTTP, to the nodes of a trusted network");
  command.AddOption("DIR", arguments->folder, "Folder with the files to serve").Required().ValueName("");
  Option listen =
      command.AddOption("--listen", arguments->listen, "Where to listen (default 127.0.0.1:8000)");
  listen.ValueName("ADDRESS[:PORT]");
  command
      .AddNumber("--port", "The port alone; 0 for a free one", 0, 65535,
                 [arguments](uint64_t port) { arguments->port = static_cast<int>(port); })
      .Excludes(listen);
  command.Footer(
      "Range requests, keep-alive, ETags; folders are listed as JSON, and as a page for browsers. Files and\n"
      "folders with a dot in front are hidden, and links lead nowhere outside DIR. There is no password and\n"
      "no encryption: deploy/nginx/imgd-shards.conf is for larger clusters and networks that you do not "
      "trust.\n\n"
      "Examples:\n"
      "  imgcli dataset serve /data/shards\n"
      "  imgcli dataset serve /data/shards --listen 0.0.0.0:8000\n"
      "  imgcli submit job.yaml --set data.train=http://10.0.0.5:8000/train/");
  command.Runs([&context, arguments] { return Serve(context, *arguments); });
}

}  // namespace imgd::cli
