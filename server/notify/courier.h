#pragma once

#include <map>
#include <memory>
#include <stop_token>
#include <string>

#include "common/clock.h"
#include "common/error.h"
#include "server/notify/notify_config.h"
#include "server/store/notification.h"

namespace imgd {

/// Takes notices to one target. One call at a time.
class Courier {
 public:
  virtual ~Courier() = default;
  /// Blocks, for the configured timeout at most; `stop` ends that early. An error is worth another try, but
  /// for kInvalidArgument, of what can never be delivered; none has a secret in its words.
  virtual Status Deliver(const Notification& notice, const std::stop_token& stop) = 0;
};
using Couriers = std::map<std::string, std::unique_ptr<Courier>>;

/// One for each target, by name; reads the files that it names. Errors: those of the files, with the target.
Result<Couriers> MakeCouriers(const NotifyConfig& config, const Clock* clock);

/// The value of webhook-signature (Standard Webhooks, https://www.standardwebhooks.com): "v1," and the Base64
/// of the HMAC-SHA256 of "id.timestamp.body" by the secret: what "whsec_" is followed by, as Base64, or the
/// text itself. Errors: kInvalidArgument for no secret or no Base64; without repeating it.
Result<std::string> SecretBytes(const std::string& text);
std::string SignatureOf(const std::string& secret, const Notification& notice, int64_t unix_seconds);

/// A notice in words.
struct NoticeWords {
  std::string subject;  ///< "job 12 (rn50) failed"
  std::string owner;
  std::string reason;
  std::string facts;  ///< a line each
  std::string url;    ///< of the job's page; may be empty
};
NoticeWords WordsOf(const Notification& notice);

/// The body that Slack, and what is like it, takes.
std::string SlackBody(const Notification& notice);

/// An e-mail with its head, lines ended by \n as sendmail takes it.
std::string MailText(const Notification& notice, const std::string& from, const std::vector<std::string>& to);
/// The addresses with {user} filled in; those that the owner's name makes no address of are left out.
std::vector<std::string> AddressesFor(const std::vector<std::string>& to, const std::string& owner);

}  // namespace imgd
