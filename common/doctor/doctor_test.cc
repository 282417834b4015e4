#include <gmock/gmock.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <nlohmann/json.hpp>
#include <thread>

#include "common/doctor/reach.h"
#include "common/doctor/verdict.h"
#include "common/files.h"

namespace imgd::doctor {
namespace {

using std::chrono::milliseconds;
using testing::ElementsAre;
using testing::HasSubstr;
using Outcome = Reach::Outcome;

const std::vector<Line> kLines = {{"name", Good("gpu-head is 10.0.0.1")},
                                  {"disk", Warning("slow", "take another")},
                                  {"driver", Fault("none", "install one")}};

TEST(Doctor, TheReportSaysWhatToDo) {
  EXPECT_EQ(ReportText(kLines),
            "good     name           gpu-head is 10.0.0.1\n"
            "warning  disk           slow\n"
            "                        -> take another\n"
            "FAULT    driver         none\n"
            "                        -> install one\n"
            "3 checks: 1 faults, 1 warnings\n");
  const auto json = nlohmann::json::parse(*Report(kLines, "json"));
  EXPECT_EQ(json["faults"], 1);
  EXPECT_EQ(json["checks"][2]["grade"], "fault");
  EXPECT_EQ(json["checks"][1]["advice"], "take another");
  EXPECT_THAT(Report(kLines, "xml").error().message, HasSubstr("allowed: text, json"));
}

TEST(Doctor, AFaultIsAnExitCodeAndAWarningIsNone) {
  EXPECT_EQ(ExitCodeOf(kLines), 6);
  EXPECT_EQ(ExitCodeOf({kLines[0], kLines[1]}), 0);
}

TEST(Reach, EachWayToFailHasItsWords) {
  struct Case {
    Outcome outcome;
    Grade name, port;
    const char* words;
  };
  for (const auto& [outcome, name, port, words] : std::vector<Case>{
           {Outcome::kAnswers, Grade::kGood, Grade::kGood, "head:7650 answers"},
           {Outcome::kAnswersTls, Grade::kGood, Grade::kGood, "with TLS"},
           {Outcome::kOtherWords, Grade::kGood, Grade::kFault, "not imgd's gRPC"},
           {Outcome::kSilent, Grade::kGood, Grade::kFault, "not imgd's gRPC"},
           {Outcome::kNoName, Grade::kFault, Grade::kUnknown, "not tried"},
           {Outcome::kBadAddress, Grade::kFault, Grade::kUnknown, "not tried"},
           {Outcome::kRefused, Grade::kGood, Grade::kFault, "nobody listens on head:7650"},
           {Outcome::kNoAnswer, Grade::kGood, Grade::kFault, "does not answer"},
           {Outcome::kNoWay, Grade::kGood, Grade::kFault, "no way to head:7650"},
       }) {
    const Reach reach{.server = "head:7650", .addresses = {"10.0.0.1"}, .outcome = outcome};
    EXPECT_EQ(JudgeName(reach).grade, name) << words;
    EXPECT_EQ(JudgePort(reach).grade, port) << words;
    EXPECT_THAT(JudgePort(reach).what, HasSubstr(words));
    EXPECT_EQ(JudgePort(reach).advice.empty(), port != Grade::kFault) << words;
  }
}

/// A server on loopback that answers its first caller with `answer`.
class OneAnswer {
 public:
  explicit OneAnswer(std::string answer) : door_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof at;
    ::bind(door_.get(), reinterpret_cast<sockaddr*>(&at), sizeof at);
    ::listen(door_.get(), 1);
    ::getsockname(door_.get(), reinterpret_cast<sockaddr*>(&at), &size);
    address_ = fmt::format("127.0.0.1:{}", ntohs(at.sin_port));
    thread_ = std::thread([this, answer = std::move(answer)] {
      const UniqueFd caller(::accept4(door_.get(), nullptr, nullptr, SOCK_CLOEXEC));
      char heard[64];
      if (::recv(caller.get(), heard, sizeof heard, 0) > 0)
        ::send(caller.get(), answer.data(), answer.size(), 0);
    });
  }
  ~OneAnswer() { thread_.join(); }
  const std::string& address() const { return address_; }

 private:
  UniqueFd door_;
  std::string address_;
  std::thread thread_;
};

TEST(Reach, WhatListensIsToldByItsFirstWords) {
  const std::string settings("\0\0\6\4\0\0\0\0\0", 9);
  EXPECT_EQ(TryToReach(OneAnswer(settings).address(), milliseconds(5000)).outcome, Outcome::kAnswers);
  EXPECT_EQ(TryToReach(OneAnswer("\x15\3\1").address(), milliseconds(5000)).outcome, Outcome::kAnswersTls);
  EXPECT_EQ(TryToReach(OneAnswer("HTTP/1.1 400 Bad").address(), milliseconds(5000)).outcome,
            Outcome::kOtherWords);
}

TEST(Reach, AnAddressWithoutAListenerOrThatIsNoneIsTold) {
  const auto refused = TryToReach("127.0.0.1:1", milliseconds(5000));
  EXPECT_EQ(refused.outcome, Outcome::kRefused);
  EXPECT_THAT(refused.addresses, ElementsAre("127.0.0.1"));
  EXPECT_EQ(TryToReach("head", milliseconds(10)).outcome, Outcome::kBadAddress);
  EXPECT_EQ(TryToReach("no-such-host.invalid:7650", milliseconds(10)).outcome, Outcome::kNoName);
}

}  // namespace
}  // namespace imgd::doctor
