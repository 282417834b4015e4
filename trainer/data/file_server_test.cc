#include "trainer/data/file_server.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "common/files.h"
#include "trainer/data/http_request.h"
#include "trainer/data/shard_set.h"
#include "trainer/data/sources.h"
#include "trainer/data/test_images.h"
#include "trainer/data/test_tar.h"

namespace imgd::data {
namespace {

using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

class FileServerTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_.Write("set/a b.tar", "0123456789");
    folder_.Write("set/.hidden", "secret");
    folder_.Write("set/empty", "");
    outside_.Write("other", "secret");
    std::filesystem::create_symlink(outside_.path() / "other", folder_.path() / "set/link");
    std::filesystem::create_symlink("a b.tar", folder_.path() / "set/inner");
    server_ = FileServer::Start({.folder = folder_.path() / "set", .most_connections = 8}).value();
  }
  /// All that comes back until the server closes, or for one answer with a length.
  std::string Send(const std::string& text) const {
    const UniqueFd fd(::socket(AF_INET, SOCK_STREAM, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(static_cast<uint16_t>(server_->port()));
    if (::connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0)
      return "no connection";
    EXPECT_TRUE(WriteAll(fd.get(), text, "test").has_value());
    std::string all;
    char buffer[4096];
    for (ssize_t n = 0; (n = ::recv(fd.get(), buffer, sizeof buffer, 0)) > 0;)
      all.append(buffer, static_cast<size_t>(n));
    return all;
  }
  std::string Get(const std::string& path, const std::string& headers = "",
                  const std::string& method = "GET") const {
    return Send(
        fmt::format("{} {} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{}\r\n", method, path, headers));
  }

  TempFolder folder_;
  TempFolder outside_;
  std::unique_ptr<FileServer> server_;
};

TEST_F(FileServerTest, SendsFilesAndPartsOfThem) {
  EXPECT_THAT(Get("/a%20b.tar"),
              testing::AllOf(StartsWith("HTTP/1.1 200 OK\r\n"), testing::EndsWith("\r\n\r\n0123456789")));
  EXPECT_THAT(Get("/a%20b.tar", "Range: bytes=2-4\r\n"),
              testing::AllOf(HasSubstr(" 206 "), HasSubstr("content-range: bytes 2-4/10"),
                             testing::EndsWith("\r\n\r\n234")));
  EXPECT_THAT(Get("/inner", "Range: bytes=-3\r\n"), testing::EndsWith("\r\n\r\n789"));
  EXPECT_THAT(Get("/a%20b.tar", "Range: bytes=7-99\r\n"), testing::EndsWith("\r\n\r\n789"));
  EXPECT_THAT(Get("/a%20b.tar", "Range: bytes=10-\r\n"),
              testing::AllOf(HasSubstr(" 416 "), HasSubstr("bytes */10")));
  EXPECT_THAT(Get("/a%20b.tar", "Range: bytes=0-1,3-4\r\n"), HasSubstr(" 200 "));
  EXPECT_THAT(Get("/a%20b.tar", "", "HEAD"),
              testing::AllOf(HasSubstr("content-length: 10"), testing::EndsWith("\r\n\r\n")));
  EXPECT_THAT(Get("/empty"), HasSubstr("content-length: 0"));
  EXPECT_THAT(Send("GET /inner HTTP/1.1\r\n\r\nGET /inner HTTP/1.0\r\n\r\n"),
              HasSubstr("0123456789HTTP/1.1 200"));
}

TEST_F(FileServerTest, ComparesETags) {
  const std::string answer = Get("/inner", "", "HEAD");
  const size_t at = answer.find("etag: ") + 6;
  const std::string etag = answer.substr(at, answer.find("\r\n", at) - at);
  EXPECT_THAT(Get("/inner", "If-None-Match: " + etag + "\r\n"), HasSubstr(" 304 "));
  EXPECT_THAT(Get("/inner", "If-Match: \"x\"\r\n"), HasSubstr(" 412 "));
  EXPECT_THAT(Get("/inner", "If-Match: " + etag + "\r\n"), HasSubstr(" 200 "));
  EXPECT_THAT(Get("/inner", "Range: bytes=0-0\r\nIf-Range: " + etag + "\r\n"), HasSubstr(" 206 "));
  EXPECT_THAT(Get("/inner", "Range: bytes=0-0\r\nIf-Range: \"x\"\r\n"), HasSubstr(" 200 "));
}

TEST_F(FileServerTest, GivesNothingFromOutside) {
  for (const char* path : {"/link", "/.hidden", "/../other", "/%2e%2e/other", "//etc/passwd", "/none",
                           "/a%00", "/inner/", "/./inner"}) {
    EXPECT_THAT(Get(path), testing::AllOf(StartsWith("HTTP/1.1 404"), Not(HasSubstr("secret")))) << path;
  }
  EXPECT_THAT(Get("/", "Content-Length: 5\r\n", "POST"), StartsWith("HTTP/1.1 405"));
  EXPECT_THAT(Send("nonsense\r\n\r\n"), StartsWith("HTTP/1.1 400"));
  EXPECT_THAT(Send("GET /" + std::string(20'000, 'a')), StartsWith("HTTP/1.1 400"));
}

TEST_F(FileServerTest, ListsFoldersForProgramsAndForPeople) {
  const std::string json = Get("/");
  EXPECT_THAT(json,
              testing::AllOf(HasSubstr("\"a b.tar\""), HasSubstr("\"size\": 10"), Not(HasSubstr("hidden"))));
  EXPECT_THAT(Get("/", "Accept: text/html\r\n"), HasSubstr("<a href=\"./a%20b.tar\">a b.tar</a>  10"));
}

TEST_F(FileServerTest, ServesShardsToTheReader) {
  folder_.Write("set/t/s-0.tar", Tar({{"a.jpg", "A"}, {"a.cls", "0"}}));
  const SourceOpener opener(SourceSettings{});
  for (const char* where : {"t", "t/", "t/s-*.tar"}) {
    const auto set = ShardSet::Open(server_->url() + where, opener);
    ASSERT_TRUE(set.has_value()) << set.error().message;
    FileBuffer buffer;
    ASSERT_TRUE((*set)->Read(0, buffer).has_value());
    EXPECT_EQ(buffer.bytes()[0], 'A');
  }
}

TEST_F(FileServerTest, TellsThoseThatAreTooManyToComeAgain) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<uint16_t>(server_->port()));
  std::vector<UniqueFd> others;
  for (int i = 0; i < 8; ++i) {
    others.emplace_back(::socket(AF_INET, SOCK_STREAM, 0));
    ASSERT_EQ(::connect(others.back().get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  }
  // Taken in the order in which they came; until all are, there is room.
  std::string answer;
  for (int i = 0; i < 1000 && !answer.starts_with("HTTP/1.1 503"); ++i) answer = Get("/inner");
  EXPECT_THAT(answer, testing::AllOf(StartsWith("HTTP/1.1 503"), HasSubstr("retry-after: 1")));
  others.clear();
  for (int i = 0; i < 1000 && !answer.starts_with("HTTP/1.1 200"); ++i) answer = Get("/inner");
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 200"));
}

TEST_F(FileServerTest, SaysWhyItCannotListen) {
  const auto error = [&](const std::string& address, int port) {
    return FileServer::Start({.folder = folder_.path(), .address = address, .port = port}).error();
  };
  EXPECT_EQ(error("127.0.0.1", server_->port()).code, ErrorCode::kAlreadyExists);
  EXPECT_THAT(error("127.0.0.1", server_->port()).message, HasSubstr("cannot listen on 127.0.0.1 port"));
  EXPECT_EQ(error("localhost:x", 0).code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(FileServer::Start({.folder = folder_.path() / "none"}).error().code, ErrorCode::kNotFound);
}

}  // namespace
}  // namespace imgd::data
