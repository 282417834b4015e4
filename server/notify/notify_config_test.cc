#include "server/notify/notify_config.h"

#include <gmock/gmock.h>

namespace imgd {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

std::vector<Error> NotificationErrors(const std::string& text, NotifyConfig* out = nullptr) {
  auto root = YamlMap::Parse(text, "imgd.yaml");
  EXPECT_TRUE(root.has_value());
  auto config = ReadNotifications(*root);
  root->Finish();
  if (out != nullptr) *out = std::move(config);
  return root->Errors();
}

constexpr const char* kWhole = R"(
notifications:
  dashboard: https://gpu.example:7651/
  sendmail: /opt/sendmail
  from: imgd@example.org
  timeout: 5s
  give_up_after: 2h
  most_pending: 50
  targets:
    ops: {kind: webhook, url: 'https://ops.example/hook', secret_file: /etc/imgd/ops.secret}
    chat: {kind: slack, url_file: /etc/imgd/chat.url}
    mail: {kind: email, to: ['{user}@example.org']}
  all: {to: ops, when: [failed, stalled]}
  users: {ada: [mail]}
  projects: {vision: [chat, {to: mail, when: [finished]}]}
)";

TEST(NotifyConfig, HasTargetsAndWhoIsTold) {
  NotifyConfig config;
  ASSERT_THAT(NotificationErrors(kWhole, &config), IsEmpty());
  EXPECT_EQ(config.dashboard, "https://gpu.example:7651");
  EXPECT_EQ(config.targets.at("ops").secret_file, "/etc/imgd/ops.secret");
  EXPECT_EQ(config.targets.at("chat").kind, NotifyTarget::Kind::kSlack);
  EXPECT_EQ(config.targets.at("mail").to.front(), "{user}@example.org");
  EXPECT_EQ(config.all.front().when.size(), 2U);
  EXPECT_EQ(config.users.at("ada").front().to, "mail");
  EXPECT_EQ(config.projects.at("vision").size(), 2U);
  EXPECT_EQ(config.timeout_ms, 5000);
  EXPECT_EQ(config.give_up_after_ms, 7'200'000);
  EXPECT_EQ(config.most_pending, 50);
}

std::string FirstError(const std::string& text) {
  const auto errors = NotificationErrors("notifications:\n  " + text + "\n");
  EXPECT_EQ(errors.size(), 1U) << text;
  return errors.empty() ? "" : errors.front().ToString();
}

TEST(NotifyConfig, ErrorsHaveTheirPlace) {
  EXPECT_THAT(FirstError("targets: {ops: {kind: webhok, url: 'http://h/'}}"), HasSubstr("imgd.yaml:2:"));
  EXPECT_THAT(FirstError("targets: {ops: {kind: webhook}}"), HasSubstr("either url, or url_file"));
  EXPECT_THAT(FirstError("targets: {ops: {kind: webhook, url: 's3://b/x'}}"),
              HasSubstr("http:// or https://"));
  EXPECT_THAT(FirstError("targets: {ops: {kind: webhook, url: 'http://h/', secret: abc}}"),
              HasSubstr("secret"));
  EXPECT_THAT(FirstError("targets: {ops: {kind: slack, url: 'http://h/', secret_file: /x}}"),
              HasSubstr("secret_file"));
  EXPECT_THAT(FirstError("targets: {m: {kind: email, to: ['-oQx@h']}}"), HasSubstr("no address"));
  EXPECT_THAT(FirstError("targets: {m: {kind: email, to: []}}"), HasSubstr("1 to 50"));
  EXPECT_THAT(FirstError("all: ops"), HasSubstr("there is no target 'ops'"));
  EXPECT_THAT(FirstError("give_up_after: 0"), HasSubstr("is allowed"));
}

TEST(NotifyConfig, AWrongUrlIsNotRepeatedWithItsPassword) {
  const auto error = FirstError("targets: {ops: {kind: webhook, url: 'http://ada:topsecret@h/'}}");
  EXPECT_THAT(error, testing::Not(HasSubstr("topsecret")));
}

}  // namespace
}  // namespace imgd
