#include "common/log.h"

#include <spdlog/sinks/stdout_sinks.h>

namespace imgd {

Status SetUpLog(const std::string& program, const std::string& level) {
  const auto parsed = spdlog::level::from_str(level);
  if (parsed == spdlog::level::off) {
    return Fail(ErrorCode::kInvalidArgument, "log level '{}': trace, debug, info, warn or error is allowed",
                level);
  }
  auto logger = spdlog::stderr_logger_mt(program);
  logger->set_pattern("%Y-%m-%dT%H:%M:%S.%fZ %l %n %v", spdlog::pattern_time_type::utc);
  logger->set_level(parsed);
  logger->flush_on(spdlog::level::trace);
  spdlog::set_default_logger(std::move(logger));
  return {};
}

}  // namespace imgd
