#pragma once

#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <ostream>
#include <sstream>
#include <streambuf>
#include <string>
#include <thread>
#include <vector>

#include "cli/app.h"
#include "cli/screen.h"

namespace imgd::cli {

/// Text that one thread writes to a stream and another reads. Thread-safe.
class Capture : private std::streambuf, public std::ostream {
 public:
  Capture() : std::ostream(static_cast<std::streambuf*>(this)) {}

  std::string text() const;

  /// Waits until the text contains `part`; fails the test and returns after 20 s without it.
  void WaitFor(const std::string& part) const;

 private:
  std::streambuf::int_type overflow(std::streambuf::int_type c) override;
  std::streamsize xsputn(const char* data, std::streamsize size) override;

  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  std::string text_;  ///< guarded by mutex_
};

/// How the program is called.
struct CliCall {
  std::vector<std::string> arguments;
  std::map<std::string, std::string> env = {{"USER", "lena"}};
  std::string input;
  Terminal terminal;
  std::function<std::unique_ptr<Screen>()> open_screen;
};

/// One run of the program in a thread of its own.
class CliProcess {
 public:
  explicit CliProcess(CliCall call);
  ~CliProcess();

  /// Waits for the end and returns the exit code.
  int Wait();

  Capture out;
  Capture err;

 private:
  CliCall call_;
  int exit_code_ = -1;
  std::thread thread_;
};

/// What a finished run left.
struct CliResult {
  int exit_code = 0;
  std::string out;
  std::string err;
};

CliResult RunCli(CliCall call);

/// The call's arguments with `--server ADDRESS` before them.
CliCall CallTo(const std::string& address, std::vector<std::string> arguments);

/// The lines of a text.
std::vector<std::string> Lines(const std::string& text);

}  // namespace imgd::cli
