#include <fmt/chrono.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "common/text.h"
#include "server/notify/courier.h"

/// Notices as people read them.
namespace imgd {
namespace {

using nlohmann::json;

/// Of an e-mail, without what ends it (RFC 5322).
constexpr size_t kMostLineBytes = 900;

std::string TextAt(const json& map, const char* key) {
  const auto found = map.find(key);
  return found != map.end() && found->is_string() ? found->get<std::string>() : std::string();
}

uint64_t NumberAt(const json& map, const char* key) {
  const auto found = map.find(key);
  return found != map.end() && found->is_number_unsigned() ? found->get<uint64_t>() : 0;
}

/// What Slack gives a meaning to.
std::string EscapedForSlack(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '&') {
      out += "&amp;";
    } else if (c == '<') {
      out += "&lt;";
    } else if (c == '>') {
      out += "&gt;";
    } else {
      out += c;
    }
  }
  return out;
}

/// For a line of an e-mail's head: nothing in it begins another one.
std::string OnOneAsciiLine(std::string text) {
  std::replace_if(
      text.begin(), text.end(), [](unsigned char c) { return c < ' ' || c >= 0x7f; }, '?');
  return text;
}

/// Lines that are not too long for a mail server, cut between the bytes of no character.
std::string Folded(const std::string& text) {
  std::string out;
  size_t length = 0;
  for (const char c : text) {
    const bool begins = (static_cast<unsigned char>(c) & 0xc0) != 0x80;
    if (length >= kMostLineBytes && begins && c != '\n') {
      out += '\n';
      length = 0;
    }
    if (c == '\r' || c == '\0') continue;
    out += c;
    length = c == '\n' ? 0 : length + 1;
  }
  return out;
}

/// As people know it, without what the API's names begin with.
std::string StateName(const std::string& state) {
  constexpr std::string_view kPrefix = "JOB_STATE_";
  return state.starts_with(kPrefix) ? state.substr(kPrefix.size()) : state;
}

}  // namespace

NoticeWords WordsOf(const Notification& notice) {
  const json body = json::parse(notice.body, nullptr, false);
  if (!body.is_object() || !body.contains("job")) return {.subject = "a job has changed"};
  const json& job = body["job"];
  std::string event = TextAt(body, "type");
  event.erase(0, std::min(event.find('.') + 1, event.size()));
  NoticeWords words{.subject = fmt::format("job {} ({}) {}{}", NumberAt(job, "id"), TextAt(job, "name"),
                                           event == "preempted" || event == "stalled" ? "was " : "", event),
                    .owner = TextAt(job, "owner"),
                    .reason = TextAt(job, "reason_text"),
                    .url = TextAt(job, "url")};
  const auto fact = [&words](const char* name, const std::string& value) {
    if (!value.empty()) words.facts += fmt::format("{}: {}\n", name, value);
  };
  fact("Owner", words.owner);
  fact("Project", TextAt(job, "project"));
  fact("State", StateName(TextAt(job, "state")));
  fact("Starts", fmt::format("{}", NumberAt(job, "generation")));
  fact("Time", TextAt(body, "timestamp"));
  fact("Cluster", TextAt(body, "cluster"));
  return words;
}

std::string SlackBody(const Notification& notice) {
  const NoticeWords words = WordsOf(notice);
  const std::string subject = EscapedForSlack(words.subject);
  std::string text =
      words.url.empty() ? fmt::format("*{}*", subject) : fmt::format("*<{}|{}>*", words.url, subject);
  text += fmt::format(" of {}", EscapedForSlack(words.owner));
  if (!words.reason.empty()) text += fmt::format(": {}", EscapedForSlack(words.reason));
  return json{{"text", text}}.dump(-1, ' ', false, json::error_handler_t::replace);
}

std::string MailText(const Notification& notice, const std::string& from,
                     const std::vector<std::string>& to) {
  const NoticeWords words = WordsOf(notice);
  std::string text;
  if (!from.empty()) text += fmt::format("From: {}\n", from);
  text += fmt::format("To: {}\nSubject: [imgd] {}\nMessage-ID: <{}@imgd>\n", fmt::join(to, ",\n "),
                      OnOneAsciiLine(words.subject), OnOneAsciiLine(notice.id));
  text += fmt::format("Date: {:%a, %d %b %Y %H:%M:%S} +0000\n",
                      fmt::gmtime(static_cast<std::time_t>(notice.created.micros / 1'000'000)));
  text +=
      "Auto-Submitted: auto-generated\nMIME-Version: 1.0\nContent-Type: text/plain; charset=utf-8\n"
      "Content-Transfer-Encoding: 8bit\n\n";
  std::string body = words.subject + "\n";
  if (!words.reason.empty()) body += fmt::format("\n{}\n", words.reason);
  body += fmt::format("\n{}", words.facts);
  if (!words.url.empty()) body += fmt::format("\n{}\n", words.url);
  return text + Folded(body);
}

std::vector<std::string> AddressesFor(const std::vector<std::string>& to, const std::string& owner) {
  constexpr std::string_view kUser = "{user}";
  std::vector<std::string> out;
  for (std::string address : to) {
    if (const auto user = address.find(kUser); user != std::string::npos) {
      if (!IsName(owner)) continue;
      address.replace(user, kUser.size(), owner);
    }
    out.push_back(std::move(address));
  }
  return out;
}

}  // namespace imgd
