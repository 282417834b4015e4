#include "agent/notice.h"

#include <spdlog/spdlog.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "common/files.h"
#include "common/remote/instance_metadata.h"
#include "common/text.h"
#include "common/times.h"

namespace imgd {
namespace {

constexpr const char* kLifeCycle = "/latest/meta-data/instance-life-cycle";

using Found = Result<std::optional<v1::NodeNotice>>;

/// By what its firmware tells, so that no other machine is made to wait for an address that nobody has: of
/// Nitro the vendor, of Xen the BIOS.
bool IsOnEc2() {
  const auto first_line = [](const char* path) {
    std::string line;
    std::ifstream file(path);
    std::getline(file, line);
    return line;
  };
  return first_line("/sys/class/dmi/id/sys_vendor") == "Amazon EC2" ||
         first_line("/sys/class/dmi/id/bios_version").find("amazon") != std::string::npos;
}

/// A machine that can be taken back at short notice, or one of which nobody knows.
class Ec2Notices {
 public:
  Ec2Notices(const std::string& endpoint, bool ask_life_cycle)
      : metadata_(std::make_shared<InstanceMetadata>(endpoint)), ask_life_cycle_(ask_life_cycle) {}

  Found operator()(const std::stop_token& stop) {
    if (ask_life_cycle_) {
      IMGD_ASSIGN(const auto life_cycle, metadata_->Get(kLifeCycle, stop));
      ask_life_cycle_ = false;
      is_spot_ = life_cycle == "spot";
      spdlog::info("msg=\"this is an EC2 instance, {}\"", life_cycle.value_or("of unknown life cycle"));
    }
    if (!is_spot_) return std::optional<v1::NodeNotice>();
    IMGD_ASSIGN(const auto action, metadata_->Get("/latest/meta-data/spot/instance-action", stop));
    if (!action) return std::optional<v1::NodeNotice>();
    IMGD_ASSIGN(auto notice, ParseInstanceAction(*action));
    return std::optional(std::move(notice));
  }

 private:
  std::shared_ptr<InstanceMetadata> metadata_;  ///< a function can be copied
  bool ask_life_cycle_;
  bool is_spot_ = true;
};

Found LookAtFile(const std::filesystem::path& path) {
  constexpr size_t kMost = 4096;
  std::error_code error;
  if (!std::filesystem::exists(path, error)) {
    if (error) return Fail(ErrorCode::kUnavailable, "cannot look at {}: {}", path.native(), error.message());
    return std::optional<v1::NodeNotice>();
  }
  // One that can't be read is there all the same.
  return std::optional(ParseNoticeFile(ReadFile(path, kMost).value_or("")));
}

std::string InWords(const v1::NodeNotice& notice, WallTime now) {
  if (notice.at_us() == 0) return "soon";
  return notice.at_us() <= now.micros ? "now"
                                      : fmt::format("in {} s", (notice.at_us() - now.micros) / 1'000'000);
}

}  // namespace

Result<LookForNotice> NoticesFrom(const std::string& where) {
  if (where == "off") return LookForNotice();
  if (where == "auto") {
    if (!IsOnEc2()) return LookForNotice();
    return LookForNotice(Ec2Notices(InstanceMetadata::kAddress, /*ask_life_cycle=*/true));
  }
  if (where.starts_with("http://") && ParseUrl(where))
    return LookForNotice(Ec2Notices(where, /*ask_life_cycle=*/false));
  if (where.starts_with('/'))
    return LookForNotice([where](const std::stop_token&) { return LookAtFile(where); });
  return Fail(
      ErrorCode::kInvalidArgument,
      "spot_notices: found '{}'; auto, off, http://HOST:PORT of a metadata service, or the absolute path of "
      "a file is expected",
      where);
}

std::string CapacityFrom(const std::string& where) {
  const bool ec2 = where == "auto" && IsOnEc2();
  if (!ec2 && !where.starts_with("http://")) return "";
  const auto life_cycle = InstanceMetadata(ec2 ? InstanceMetadata::kAddress : where).Get(kLifeCycle);
  if (life_cycle && *life_cycle) return **life_cycle == "spot" ? "spot" : "on_demand";
  spdlog::warn("msg=\"cannot ask whether this is a spot instance, so the node has no label for it: {}\"",
               life_cycle ? "the metadata service does not say" : life_cycle.error().message);
  return "";
}

Result<v1::NodeNotice> ParseInstanceAction(const std::string& json) {
  const auto parsed = nlohmann::json::parse(json, nullptr, /*allow_exceptions=*/false);
  const auto field = [&parsed](const char* name) -> std::string {
    if (!parsed.is_object() || !parsed.contains(name) || !parsed[name].is_string()) return "";
    return parsed[name].get<std::string>();
  };
  const auto at = ParseTime(field("time"));
  if (!at || field("action").empty())
    return Fail(ErrorCode::kDataLoss, "the notice '{}' has no action and time", json.substr(0, 200));
  v1::NodeNotice notice;
  notice.set_at_us(*at);
  notice.set_action(field("action"));
  return notice;
}

v1::NodeNotice ParseNoticeFile(const std::string& text) {
  v1::NodeNotice notice;
  notice.set_at_us(ParseTime(Trimmed(text.substr(0, text.find('\n')))).value_or(0));
  return notice;
}

NoticeMonitor::NoticeMonitor(LookForNotice look, Duration period, Duration patience)
    : look_(std::move(look)), period_(period) {
  thread_ = std::jthread([this](const std::stop_token& stop) { Watch(stop); });
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, patience, [this] { return looked_; });
}

NoticeMonitor::~NoticeMonitor() = default;

void NoticeMonitor::Watch(const std::stop_token& stop) {
  while (!stop.stop_requested()) {
    const auto found = look_(stop);
    if (stop.stop_requested()) return;
    std::unique_lock lock(mutex_);
    Note(found);
    looked_ = true;
    changed_.notify_all();
    changed_.wait_for(lock, stop, period_, [] { return false; });
  }
}

void NoticeMonitor::Note(const Result<std::optional<v1::NodeNotice>>& found) {
  if (!found) {
    if (!in_trouble_)
      spdlog::warn("msg=\"cannot look whether this machine is being taken back, trying again: {}\"",
                   found.error().message);
    in_trouble_ = true;
    return;
  }
  in_trouble_ = false;
  if (*found && !latest_)
    spdlog::warn("msg=\"this machine is being taken back {} ({})\"", InWords(**found, SystemClock().Wall()),
                 (*found)->action());
  if (!*found && latest_) spdlog::info("msg=\"this machine is not being taken back any more\"");
  latest_ = *found;
}

std::optional<v1::NodeNotice> NoticeMonitor::Latest() const {
  const std::lock_guard lock(mutex_);
  return latest_;
}

}  // namespace imgd
