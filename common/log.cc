#include "common/log.h"

#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/stdout_sinks.h>

#include "common/utf8.h"

namespace imgd {
namespace {

/// The message, which may hold what somebody else said.
class MessageLine final : public spdlog::custom_flag_formatter {
 public:
  void format(const spdlog::details::log_msg& message, const std::tm&, spdlog::memory_buf_t& out) override {
    const std::string line = OneLine({message.payload.data(), message.payload.size()});
    out.append(line.data(), line.data() + line.size());
  }
  std::unique_ptr<custom_flag_formatter> clone() const override { return std::make_unique<MessageLine>(); }
};

}  // namespace

Status SetUpLog(const std::string& program, const std::string& level) {
  const auto parsed = spdlog::level::from_str(level);
  if (parsed == spdlog::level::off) {
    return Fail(ErrorCode::kInvalidArgument, "log level '{}': trace, debug, info, warn or error is allowed",
                level);
  }
  auto logger = spdlog::stderr_logger_mt(program);
  auto formatter = std::make_unique<spdlog::pattern_formatter>(spdlog::pattern_time_type::utc);
  formatter->add_flag<MessageLine>('*').set_pattern("%Y-%m-%dT%H:%M:%S.%fZ %l %n %*");
  logger->set_formatter(std::move(formatter));
  logger->set_level(parsed);
  logger->flush_on(spdlog::level::trace);
  spdlog::set_default_logger(std::move(logger));
  return {};
}

}  // namespace imgd
