#include <gmock/gmock.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "cli/testing/run_cli.h"
#include "common/files.h"
#include "common/sha256.h"
#include "trainer/data/file_server.h"

namespace imgd::cli {
namespace {

using testing::HasSubstr;
namespace fs = std::filesystem;

/// A folder that is served, and one to fetch into. What serve does with signals is in tests/python.
class DatasetRemote : public testing::Test {
 protected:
  DatasetRemote() : root_(fs::path(testing::TempDir()) / fmt::format("imgd_remote_{}", ::getpid())) {
    fs::create_directories(root_ / "site/other");
    Write("site/x.tar", std::string(100'000, 'x'));
    Write("site/other/x.tar", "another");
    server_ = data::FileServer::Start({.folder = root_ / "site"}).value();
  }
  ~DatasetRemote() override { fs::remove_all(root_); }

  void Write(const std::string& name, const std::string& content) const {
    std::ofstream(root_ / name, std::ios::binary) << content;
  }
  std::string At(const std::string& name) const { return (root_ / name).string(); }
  std::string Url(const std::string& name) const { return server_->url() + name; }
  static CliResult Dataset(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), "dataset");
    return RunCli({.arguments = std::move(arguments)});
  }
  CliResult Fetch(std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), "fetch");
    arguments.push_back(At("out"));
    return Dataset(std::move(arguments));
  }
  /// A file of checksums with this one for x.tar.
  std::string Sums(const std::string& digits) const {
    Write("SUMS", digits + "  x.tar\n");
    return At("SUMS");
  }
  bool OutIsEmpty() const { return !fs::exists(At("out")) || fs::is_empty(At("out")); }

  fs::path root_;
  std::unique_ptr<data::FileServer> server_;
};

TEST_F(DatasetRemote, ServeSaysWhyItCannot) {
  const auto serve = [&](std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), "serve");
    return Dataset(std::move(arguments));
  };
  const std::string port = std::to_string(server_->port());
  const auto taken = serve({At("site"), "--port", port});
  EXPECT_EQ(taken.exit_code, 5);
  EXPECT_THAT(taken.err, HasSubstr("cannot listen on 127.0.0.1 port " + port + ": Address already in use"));
  EXPECT_EQ(taken.out, "") << "nothing is served";
  for (const char* folder : {"none", "site/x.tar"}) {
    const auto missing = serve({At(folder), "--port", "0"});
    EXPECT_EQ(missing.exit_code, 3);
    EXPECT_THAT(missing.err, HasSubstr("cannot serve " + At(folder)));
  }
  for (const auto& bad : {std::vector<std::string>{"--listen", "localhost:0"},
                          {"--listen", "127.0.0.1:x"},
                          {"--listen", "127.0.0.1:0", "--port", "0"},
                          {"--port", "65536"}}) {
    auto arguments = bad;
    arguments.push_back(At("site"));
    EXPECT_EQ(serve(arguments).exit_code, 2) << bad.back();
  }
  EXPECT_EQ(serve({}).exit_code, 2);
}

TEST_F(DatasetRemote, FetchTakesAFileOnce) {
  const std::string sums = Sums(Sha256Of(std::string(100'000, 'x')));
  const auto first = Fetch({Url("x.tar"), "--checksums", sums});
  ASSERT_EQ(first.exit_code, 0) << first.err;
  EXPECT_THAT(first.out, testing::AllOf(HasSubstr("out/x.tar: "), testing::EndsWith(", checksum right\n"),
                                        testing::Not(HasSubstr("already"))));
  EXPECT_EQ(ReadFile(At("out/x.tar")).value().size(), 100'000U);
  const uint64_t asked = server_->requests();
  const auto second = Fetch({Url("x.tar"), "--checksums", sums});
  EXPECT_EQ(second.exit_code, 0) << second.err;
  EXPECT_THAT(second.out, HasSubstr(", was there already, checksum right"));
  EXPECT_EQ(server_->requests(), asked + 1) << "its size is looked at, no more";
  EXPECT_LE(server_->bytes(), 100'000U + 2) << "a byte each time for the size, and the file once";

  Write("out/x.tar", "cut");
  const auto cut = Fetch({Url("x.tar")});
  EXPECT_EQ(cut.exit_code, 6);
  EXPECT_THAT(cut.err, HasSubstr("is there with 3 bytes"));
}

TEST_F(DatasetRemote, FetchRemovesWhatHasAWrongChecksum) {
  const auto done = Fetch({Url("x.tar"), "--checksums", Sums(std::string(32, 'a'))});
  EXPECT_EQ(done.exit_code, 6);
  EXPECT_THAT(done.err, testing::AllOf(HasSubstr("x.tar.part has the MD5 "),
                                       HasSubstr(", not " + std::string(32, 'a'))));
  EXPECT_TRUE(OutIsEmpty());
}

TEST_F(DatasetRemote, FetchRefusesWhatMakesNoSense) {
  const auto refused = [&](std::vector<std::string> arguments, const std::string& words) {
    const auto done = Fetch(std::move(arguments));
    EXPECT_EQ(done.exit_code, 2) << words;
    EXPECT_THAT(done.err, HasSubstr(words));
    EXPECT_TRUE(OutIsEmpty()) << words;
  };
  refused({Url("x.tar"), Url("other/x.tar")}, "two of the URLs name a file x.tar");
  refused({Url("{,other/}x.tar")}, "two of the URLs name a file x.tar");
  refused({At("site/x.tar")}, "is no URL");
  refused({Url("other/")}, "names no file");
  refused({Url("a%2Fb")}, "with a '/' in it");
  refused({Url("y.tar"), "--checksums", Sums(std::string(32, 'a'))}, "does not list y.tar");
  refused({Url("x.tar"), "--connections", "0"}, "--connections");
  refused({Url("x.tar"), "--connections", "65"}, "--connections");
  refused({}, "URL");
  const auto none = Fetch({Url("none.tar")});
  EXPECT_EQ(none.exit_code, 3);
  EXPECT_THAT(none.err, HasSubstr("/none.tar: the server answers 404"));
  Write("SUMS", "no checksum\n");
  EXPECT_THAT(Fetch({Url("x.tar"), "--checksums", At("SUMS")}).err, HasSubstr("SUMS:1: no line of md5sum"));
}

}  // namespace
}  // namespace imgd::cli
