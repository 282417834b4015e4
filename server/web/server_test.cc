#include "server/web/server.h"

#include <curl/curl.h>
#include <gmock/gmock.h>
#include <sys/stat.h>

#include <atomic>
#include <filesystem>
#include <optional>
#include <thread>

#include "server/auth/authority.h"
#include "server/web/testing/web_server_test.h"

namespace imgd::web {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;
using testing::StartsWith;

TEST_F(WebServerTest, AThousandRequestsOverOneConnection) {
  Start();
  TestConnection connection(server->port());
  for (int i = 0; i < 1000; ++i) {
    const std::string body = fmt::format("{{\"number\": {}}}", i);
    const auto answer = i % 2 == 0 ? connection.Post("/echo", "secret", body) : connection.Get("/ok");
    ASSERT_TRUE(answer.has_value()) << i;
    ASSERT_EQ(answer->status, 200);
    ASSERT_EQ(answer->body, i % 2 == 0 ? body : "ok");
  }
}

TEST_F(WebServerTest, RequestsThatComeTogetherAreAnsweredInTurn) {
  Start();
  TestConnection connection(server->port());
  const std::string get = "GET /ok HTTP/1.1\r\nHost: test\r\n\r\n";
  connection.Send(get + get + get);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(connection.Read()->body, "ok");
}

TEST_F(WebServerTest, WhatIsNoRequestGets400AndTheConnectionEnds) {
  Start();
  for (const char* text :
       {"nonsense\r\n\r\n", "GET /ok HTTP/9.9\r\n\r\n", "GET /ok HTTP/1.1\r\nno colon\r\n\r\n",
        "POST /echo HTTP/1.1\r\nContent-Length: -1\r\n\r\n"}) {
    TestConnection connection(server->port());
    connection.Send(text);
    const auto answer = connection.Read();
    ASSERT_TRUE(answer.has_value()) << text;
    EXPECT_EQ(answer->status, 400) << text;
    EXPECT_THAT(answer->body, HasSubstr("\"code\":\"INVALID_ARGUMENT\""));
    EXPECT_TRUE(connection.ReadToEnd()) << text;
  }
}

TEST_F(WebServerTest, HeadersAreBounded) {
  Start();
  TestConnection connection(server->port());
  connection.Send("GET /ok HTTP/1.1\r\nX: " + std::string(40'000, 'x') + "\r\n\r\n");
  const auto answer = connection.Read();
  ASSERT_TRUE(answer.has_value());
  EXPECT_EQ(answer->status, 431);
}

TEST_F(WebServerTest, BodiesAreBounded) {
  Start();
  {
    TestConnection connection(server->port());
    EXPECT_EQ(connection.Post("/echo", "secret", std::string(1000, 'x'))->body, std::string(1000, 'x'));
    const auto answer = connection.Post("/echo", "secret", std::string(1001, 'x'));
    ASSERT_TRUE(answer.has_value());
    EXPECT_EQ(answer->status, 413);
    EXPECT_THAT(answer->body, HasSubstr("at most 1000 bytes"));
    EXPECT_TRUE(connection.ReadToEnd());
  }
  TestConnection chunked(server->port());
  chunked.Send(
      "POST /echo HTTP/1.1\r\nAuthorization: Bearer secret\r\nTransfer-Encoding: chunked\r\n\r\n7D0\r\n" +
      std::string(2000, 'x') + "\r\n0\r\n\r\n");
  const auto answer = chunked.Read();
  ASSERT_TRUE(answer.has_value());
  EXPECT_EQ(answer->status, 413);
}

TEST_F(WebServerTest, ABodyIsNotReadWithoutAToken) {
  Start();
  TestConnection connection(server->port());
  connection.Send("POST /echo HTTP/1.1\r\nContent-Length: 900\r\n\r\n");
  const auto answer = connection.Read();
  ASSERT_TRUE(answer.has_value()) << "it waits for no byte of the body";
  EXPECT_EQ(answer->status, 401);
  connection.Send(std::string(900, 'x'));
  EXPECT_TRUE(connection.ReadToEnd());
}

TEST_F(WebServerTest, AClientThatWaitsToBeAskedForItsBodyIs) {
  Start();
  TestConnection connection(server->port());
  connection.Send(
      "POST /echo HTTP/1.1\r\nAuthorization: Bearer secret\r\nExpect: 100-continue\r\n"
      "Content-Length: 2\r\n\r\n");
  EXPECT_EQ(connection.Read()->status, 100);
  connection.Send("hi");
  EXPECT_EQ(connection.Read()->body, "hi");
}

TEST_F(WebServerTest, ItEndsWithRequestsUnderWayAndLateAnswersGoNowhere) {
  Start();
  TestConnection soon(server->port());
  soon.Send("GET /later HTTP/1.1\r\n\r\n");
  Answer answer_soon = TakeWaiting();
  TestConnection never(server->port());
  never.Send("GET /later HTTP/1.1\r\n\r\n");
  Answer answer_never = TakeWaiting();
  std::thread answering([&] {
    std::this_thread::sleep_for(milliseconds(50));
    answer_soon({.body = "just so"});
  });
  server->Stop(milliseconds(500));
  answering.join();
  const auto answer = soon.Read();
  ASSERT_TRUE(answer.has_value());
  EXPECT_EQ(answer->body, "just so");
  answer_never({.body = "too late"});
  answer_soon = answer_never = nullptr;
  server.reset();
  EXPECT_TRUE(never.ReadToEnd());
}

TEST_F(WebServerTest, APortInUseIsSaidInASentence) {
  Start();
  settings.listen = fmt::format("127.0.0.1:{}", server->port());
  const auto refused = WebServer::Start(settings, Router({}, {}, {}));
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, ErrorCode::kAlreadyExists);
  EXPECT_THAT(refused.error().message, HasSubstr("the port is in use by another program"));
}

TEST_F(WebServerTest, AnAddressOfNoInterfaceMayComeUpLater) {
  settings.listen = "192.0.2.1:0";  // RFC 5737: nobody's
  const auto refused = WebServer::Start(settings, Router({}, {}, {}));
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, ErrorCode::kUnavailable) << "bad input is not tried again by systemd";
  EXPECT_THAT(refused.error().message,
              HasSubstr("cannot listen on 192.0.2.1:0: it is no address of this machine"));
}

size_t Append(char* data, size_t, size_t size, void* text) {
  static_cast<std::string*>(text)->append(data, size);
  return size;
}

/// What curl gets, or its error; with a limit, at so many bytes a second.
std::pair<CURLcode, std::string> Fetch(const std::string& url, const std::string& ca_file,
                                       curl_off_t most_per_second = 0) {
  const std::unique_ptr<CURL, decltype(&curl_easy_cleanup)> easy(curl_easy_init(), &curl_easy_cleanup);
  std::string body;
  curl_easy_setopt(easy.get(), CURLOPT_URL, url.c_str());
  curl_easy_setopt(easy.get(), CURLOPT_CAINFO, ca_file.c_str());
  curl_easy_setopt(easy.get(), CURLOPT_NOPROXY, "*");
  curl_easy_setopt(easy.get(), CURLOPT_TIMEOUT, 60L);
  curl_easy_setopt(easy.get(), CURLOPT_MAX_RECV_SPEED_LARGE, most_per_second);
  curl_easy_setopt(easy.get(), CURLOPT_WRITEFUNCTION, Append);
  curl_easy_setopt(easy.get(), CURLOPT_WRITEDATA, &body);
  const CURLcode code = curl_easy_perform(easy.get());
  return {code, body};
}

TEST_F(WebServerTest, TheCertificateOfImgdsCaIsGoodForThisMachine) {
  const SystemClock clock;
  const auto authority = Authority::Open({.folder = folder}, &clock);
  ASSERT_TRUE(authority.has_value()) << authority.error().message;
  settings.certificate = (*authority)->certificate_path();
  settings.key = (*authority)->key_path();
  Start();
  for (const char* host : {"127.0.0.1", "localhost"}) {
    const auto [code, body] =
        Fetch(fmt::format("https://{}:{}/ok", host, server->port()), (*authority)->ca_path());
    EXPECT_EQ(code, CURLE_OK) << host << ": " << curl_easy_strerror(code);
    EXPECT_EQ(body, "ok");
  }
  std::filesystem::create_directories(folder / "other");
  const auto others = Authority::Open({.folder = folder / "other"}, &clock);
  ASSERT_TRUE(others.has_value());
  const std::string url = fmt::format("https://127.0.0.1:{}/ok", server->port());
  EXPECT_EQ(Fetch(url, (*others)->ca_path()).first, CURLE_PEER_FAILED_VERIFICATION) << "it trusts another";
  // A new certificate is taken without a restart.
  for (const char* name : {"server.crt", "server.key"})
    std::filesystem::copy_file(folder / "other" / name, folder / name,
                               std::filesystem::copy_options::overwrite_existing);
  server->ReloadCertificate();
  EXPECT_EQ(Fetch(url, (*others)->ca_path()).first, CURLE_OK);
  EXPECT_EQ(Fetch(url, (*authority)->ca_path()).first, CURLE_PEER_FAILED_VERIFICATION);
  // Plain HTTP to a TLS port ends, and so does a handshake that never comes.
  TestConnection plain(server->port());
  plain.Send("GET /ok HTTP/1.1\r\n\r\n");
  EXPECT_TRUE(plain.ReadToEnd());
}

TEST_F(WebServerTest, WhatIsLongerThanARecordComesWholeByTls) {
  const SystemClock clock;
  const auto authority = Authority::Open({.folder = folder}, &clock);
  ASSERT_TRUE(authority.has_value()) << authority.error().message;
  settings.certificate = (*authority)->certificate_path();
  settings.key = (*authority)->key_path();
  source_bytes = 1'500'000;
  Start();
  const std::string base = fmt::format("https://127.0.0.1:{}", server->port());
  const auto [code, body] = Fetch(base + "/source", (*authority)->ca_path());
  EXPECT_EQ(code, CURLE_OK) << curl_easy_strerror(code);
  std::string whole;
  for (int i = 0; i < 15; ++i) whole += std::string(100'000, static_cast<char>('a' + i % 10));
  EXPECT_TRUE(body == whole) << body.size() << " bytes came";
}

TEST_F(WebServerTest, WhoReadsSlowlyByTlsHearsAllInItsOrder) {
  const SystemClock clock;
  const auto authority = Authority::Open({.folder = folder}, &clock);
  ASSERT_TRUE(authority.has_value()) << authority.error().message;
  settings.certificate = (*authority)->certificate_path();
  settings.key = (*authority)->key_path();
  settings.most_unsent_bytes = 100'000'000;
  Start();
  std::pair<CURLcode, std::string> heard;
  std::thread listens([&] {
    heard =
        Fetch(fmt::format("https://127.0.0.1:{}/feed", server->port()), (*authority)->ca_path(), 20'000'000);
  });
  const auto listener = TakeListener().lock();
  ASSERT_TRUE(listener);
  // More than the system takes at once.
  std::string said;
  for (int i = 0; i < 400; ++i) {
    const std::string piece(100'000, static_cast<char>('a' + i % 26));
    said += piece;
    listener->Send(Chunk(piece), {});
  }
  listener->Send(std::make_shared<const std::string>("0\r\n\r\n"), {});
  listens.join();
  EXPECT_EQ(heard.first, CURLE_OK) << curl_easy_strerror(heard.first);
  EXPECT_TRUE(heard.second == said) << heard.second.size() << " bytes came";
}

TEST_F(WebServerTest, ACertificateThatCannotBeUsedIsNamed) {
  settings.certificate = (folder / "none.crt").string();
  settings.key = (folder / "none.key").string();
  const auto refused = WebServer::Start(settings, Router({}, {}, {}));
  ASSERT_FALSE(refused.has_value());
  EXPECT_THAT(refused.error().message, StartsWith("web.certificate: " + settings.certificate));
}

TEST_F(WebServerTest, AListenerGetsPiecesInTheirOrderUntilItGoes) {
  Start();
  auto connection = std::make_unique<TestConnection>(server->port());
  const auto head = connection->Get("/feed");
  ASSERT_TRUE(head.has_value());
  EXPECT_THAT(head->head, HasSubstr("Transfer-Encoding: chunked"));
  const auto listener = TakeListener();
  std::atomic<int> sent = 0;
  for (int i = 0; i < 100; ++i) {
    const auto kept = listener.lock();
    ASSERT_TRUE(kept);
    kept->Send(Chunk(fmt::format("piece {}", i)), [&sent] { ++sent; });
  }
  for (int i = 0; i < 100; ++i) EXPECT_EQ(connection->ReadChunk().value_or(""), fmt::format("piece {}", i));
  connection.reset();
  while (!listener.expired()) std::this_thread::sleep_for(milliseconds(1));
  EXPECT_EQ(sent, 100);
}

TEST_F(WebServerTest, AListenerThatDoesNotReadIsDisconnected) {
  settings.most_unsent_bytes =
      200'000;  // four pieces: one may be read before the server knows that it is sent
  Start();
  TestConnection slow(server->port());
  ASSERT_TRUE(slow.Get("/feed").has_value());
  const auto listener = TakeListener();
  TestConnection quick(server->port());
  ASSERT_TRUE(quick.Get("/feed").has_value());
  const auto other = TakeListener();
  const Piece piece = Chunk(std::string(50'000, 'x'));
  // What the system buffers is no matter of the server's: at some time it takes no more.
  while (const auto kept = listener.lock()) {
    kept->Send(piece, {});
    const auto second = other.lock();
    ASSERT_TRUE(second);
    second->Send(piece, {});
    ASSERT_TRUE(quick.ReadChunk().has_value()) << "who reads stays";
  }
}

TEST_F(WebServerTest, WhoStillReadsALongPieceGetsWhatComesAfterIt) {
  settings.most_unsent_bytes = 1000;
  Start();
  TestConnection slow(server->port());
  ASSERT_TRUE(slow.Get("/feed").has_value());
  const auto listener = TakeListener().lock();
  ASSERT_TRUE(listener);
  std::atomic<bool> sent = false;
  listener->Send(Chunk("first"), [&sent] { sent = true; });
  EXPECT_EQ(slow.ReadChunk().value_or(""), "first");
  while (!sent) std::this_thread::sleep_for(milliseconds(1));
  // More than the system takes at once; so is the third, which has nothing but a small one before it.
  const std::string whole(32'000'000, 'x');
  listener->Send(Chunk(whole), {});
  listener->Send(Chunk("small"), {});
  listener->Send(Chunk(whole), {});
  EXPECT_TRUE(slow.ReadChunk().value_or("") == whole);
  EXPECT_EQ(slow.ReadChunk().value_or(""), "small");
  EXPECT_TRUE(slow.ReadChunk().value_or("") == whole);
}

TEST_F(WebServerTest, HeadAnswersAsGetDoesWithoutTheBody) {
  Start();
  TestConnection connection(server->port());
  const auto whole = connection.Ask("GET", "/ok");
  const auto head = connection.Ask("HEAD", "/ok");
  ASSERT_TRUE(whole.has_value() && head.has_value());
  EXPECT_EQ(head->head, whole->head);
  EXPECT_THAT(head->head, HasSubstr("Content-Length: 2\r\n"));
  EXPECT_EQ(connection.Ask("HEAD", "/none")->status, 404);
  EXPECT_EQ(connection.Ask("HEAD", "/echo")->status, 405);
  EXPECT_THAT(connection.Ask("HEAD", "/source")->head, HasSubstr("Content-Length: 1000000\r\n"));
  EXPECT_EQ(asked, 0) << "nothing of it is read";
  const auto feed = connection.Ask("HEAD", "/feed");
  ASSERT_TRUE(feed.has_value());
  EXPECT_EQ(feed->status, 200);
  EXPECT_THAT(feed->head, testing::Not(HasSubstr("Content-Length")));
  EXPECT_EQ(connection.Ask("GET", "/ok")->body, "ok") << "nothing of the others is left on the connection";
}

TEST_F(WebServerTest, ABodyIsReadWhileItIsSentAndItsEndIsSeen) {
  Start();
  TestConnection connection(server->port());
  const auto whole = connection.Get("/source");
  ASSERT_TRUE(whole.has_value());
  EXPECT_EQ(whole->body.size(), 1'000'000u);
  EXPECT_EQ(whole->body.back(), 'j');
  EXPECT_EQ(connection.Get("/ok")->body, "ok") << "the connection goes on";
  EXPECT_FALSE(connection.Get("/source").has_value())
      << "the last piece lacks: the connection ends before it";
}

TEST_F(WebServerTest, OfABodyNoMoreIsReadThanTheCallerTakes) {
  settings.most_downloads = 1;
  Start();
  asked = -1'000'000;  // no error comes
  source_bytes = 10'000'000'000;
  std::optional<TestConnection> slow(server->port());
  slow->Send("GET /source HTTP/1.1\r\nHost: test\r\n\r\n");
  while (asked == -1'000'000) std::this_thread::sleep_for(milliseconds(1));
  TestConnection second(server->port());
  EXPECT_EQ(second.Get("/source")->status, 503);
  // What the system buffers is no matter of the server's: at some time it takes no more.
  for (int before = asked - 1; before != asked; std::this_thread::sleep_for(milliseconds(200)))
    before = asked;
  EXPECT_LT(asked, -1'000'000 + 1000);
  source_bytes = 100'000;
  slow.reset();
  while (second.Get("/source")->status != 200) std::this_thread::sleep_for(milliseconds(5));
}

}  // namespace
}  // namespace imgd::web
