#include "cli/testing/run_cli.h"

#include <gtest/gtest.h>

namespace imgd::cli {

std::string Capture::text() const {
  const std::lock_guard lock(mutex_);
  return text_;
}

void Capture::WaitFor(const std::string& part) const {
  std::unique_lock lock(mutex_);
  const bool found = changed_.wait_for(lock, std::chrono::seconds(20),
                                       [&] { return text_.find(part) != std::string::npos; });
  EXPECT_TRUE(found) << "waited for '" << part << "' in:\n" << text_;
}

std::streambuf::int_type Capture::overflow(std::streambuf::int_type c) {
  using Traits = std::streambuf::traits_type;
  if (c == Traits::eof()) return c;
  const char byte = Traits::to_char_type(c);
  return xsputn(&byte, 1) == 1 ? c : Traits::eof();
}

std::streamsize Capture::xsputn(const char* data, std::streamsize size) {
  const std::lock_guard lock(mutex_);
  text_.append(data, static_cast<size_t>(size));
  changed_.notify_all();
  return size;
}

CliProcess::CliProcess(CliCall call) : call_(std::move(call)) {
  thread_ = std::thread([this] {
    std::vector<const char*> argv = {"imgcli"};
    for (const auto& argument : call_.arguments) argv.push_back(argument.c_str());
    std::istringstream in(call_.input);
    const auto env = [this](const char* name) {
      const auto found = call_.env.find(name);
      return found == call_.env.end() ? std::string() : found->second;
    };
    exit_code_ = Run(static_cast<int>(argv.size()), argv.data(),
                     Host{.in = in,
                          .out = out,
                          .err = err,
                          .terminal = call_.terminal,
                          .env = env,
                          .open_screen = call_.open_screen});
  });
}

CliProcess::~CliProcess() { Wait(); }

int CliProcess::Wait() {
  if (thread_.joinable()) thread_.join();
  return exit_code_;
}

CliResult RunCli(CliCall call) {
  CliProcess process(std::move(call));
  const int exit_code = process.Wait();
  return {.exit_code = exit_code, .out = process.out.text(), .err = process.err.text()};
}

CliCall CallTo(const std::string& address, std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), {"--server", address});
  CliCall call;
  call.arguments = std::move(arguments);
  return call;
}

std::vector<std::string> Lines(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

}  // namespace imgd::cli
