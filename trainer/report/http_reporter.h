#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/clock.h"
#include "common/error.h"
#include "trainer/report/reporter.h"

namespace imgd::report {

/// A run that is told to imgd, and how.
struct HttpReport {
  std::string url;      ///< as CheckReportUrl() returns it
  std::string token;    ///< a secret: never logged
  std::string ca_file;  ///< PEM file of certificates to trust; empty: the system's

  std::string name;      ///< of the job
  std::string job_yaml;  ///< what it was read from
  std::string owner;
  std::vector<std::string> hosts;  ///< this one first
  int nodes = 1;
  int ranks_per_node = 1;
  std::string checkpoint_dir;

  Duration beat = std::chrono::seconds(30);              ///< a sign of life when there is nothing to tell
  Duration gather = std::chrono::milliseconds(500);      ///< events that come meanwhile are sent together
  Duration first_wait = std::chrono::milliseconds(500);  ///< after a try that failed; doubles
  Duration longest_wait = std::chrono::seconds(15);
  Duration time_to_fail = std::chrono::seconds(3);  ///< for a failure to arrive, since the process then ends
  Duration time_to_end = std::chrono::seconds(5);   ///< for the last events, at most what Drain() allows
  size_t most_waiting = 20'000;                     ///< events; see EventQueue
};

/// The URL without a slash at its end. Errors: kInvalidArgument for what is none, and for one that the token
/// must not be sent to: with a name, a password or a query in it, or plain http to another machine.
Result<std::string> CheckReportUrl(const std::string& url);

/// Tells imgd of the run by POST of JSON (proto/imgd/v1/report.proto), from a thread of its own that begins
/// at once. Nobody who reports waits for the network, but Failed for up to `time_to_fail`. While imgd is
/// away, events are kept and sent when it is back. `say` gets sentences for people, from any thread: that
/// imgd can't be reached or refuses the token, that it is back, and in Drain() and Failed what it could not
/// be told. `clock` must outlive the reporter, which ends without another try.
std::unique_ptr<Reporter> MakeHttpReporter(HttpReport report, const Clock& clock,
                                           std::function<void(const std::string&)> say);

}  // namespace imgd::report
