#include "common/process_figures.h"

#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>
#include <sstream>
#include <string>

#include "common/files.h"

namespace imgd {
namespace {

/// The fields of /proc/self/stat after the program's name, which may have spaces; the first is the state.
std::vector<std::string> StatFields() {
  const auto text = ReadFile("/proc/self/stat");
  if (!text) return {};
  std::istringstream in(text->substr(text->rfind(')') + 1));
  std::vector<std::string> fields;
  for (std::string field; in >> field;) fields.push_back(field);
  return fields;
}

/// When the machine was started, seconds since 1970.
std::optional<double> BootTime() {
  const auto text = ReadFile("/proc/stat");
  const auto at = text ? text->find("\nbtime ") : std::string::npos;
  if (at == std::string::npos) return std::nullopt;
  return std::strtod(text->c_str() + at + 7, nullptr);
}

std::optional<double> OpenFiles() {
  std::error_code error;
  double count = 0;
  for (std::filesystem::directory_iterator it("/proc/self/fd", error), end; !error && it != end;
       it.increment(error))
    ++count;
  if (error) return std::nullopt;
  return count - 1;  // the look itself has one
}

}  // namespace

void AddProcess(MetricFamilies& families) {
  using prometheus::MetricType;
  const auto fields = StatFields();
  const double ticks = static_cast<double>(::sysconf(_SC_CLK_TCK));
  const auto field = [&](size_t number) -> std::optional<double> {
    // proc(5) numbers them from 1, and the state is the third.
    if (fields.size() + 2 < number) return std::nullopt;
    return std::strtod(fields[number - 3].c_str(), nullptr);
  };
  families.Begin("process_cpu_seconds_total", MetricType::Counter, "Processor time of this program.");
  if (field(15)) families.Add({}, (*field(14) + *field(15)) / ticks);
  families.Begin("process_resident_memory_bytes", MetricType::Gauge, "Memory of this program.");
  if (field(24)) families.Add({}, *field(24) * static_cast<double>(::sysconf(_SC_PAGESIZE)));
  families.Begin("process_start_time_seconds", MetricType::Gauge, "When it began, since 1970 UTC.");
  if (const auto boot = BootTime(); boot && field(22)) families.Add({}, *boot + *field(22) / ticks);
  families.Begin("process_open_fds", MetricType::Gauge, "Files and connections that it has open.");
  families.Add({}, OpenFiles());
  families.Begin("process_max_fds", MetricType::Gauge, "As many as it may have open.");
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) == 0) families.Add({}, static_cast<double>(limit.rlim_cur));
}

}  // namespace imgd
