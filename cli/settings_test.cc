#include "cli/settings.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include <filesystem>
#include <map>

#include "common/files.h"

namespace imgd::cli {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class Settings : public testing::Test {
 protected:
  Settings() : folder_(testing::TempDir() + fmt::format("imgcli-settings-{}", ::getpid())) {
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_ + "/imgd");
    vars_["XDG_CONFIG_HOME"] = folder_;
  }

  void WriteConfig(const std::string& text) {
    ASSERT_TRUE(WriteFileAtomically(folder_ + "/imgd/config.yaml", text));
  }

  Environment env() const {
    return [this](const char* name) {
      const auto found = vars_.find(name);
      return found == vars_.end() ? std::string() : found->second;
    };
  }

  std::vector<std::string> ErrorTexts(const std::string& flag = "") const {
    std::vector<std::string> texts;
    const auto server = ResolveServer(flag, env());
    if (server) return texts;
    for (const auto& error : server.error()) texts.push_back(error.ToString());
    return texts;
  }

  std::string folder_;
  std::map<std::string, std::string> vars_;
};

TEST_F(Settings, TheFlagWinsOverTheVariableOverTheFileOverTheDefault) {
  EXPECT_EQ(ResolveServer("", env())->target, "127.0.0.1:7650");
  EXPECT_EQ(ResolveServer("", env())->source, "the default");
  WriteConfig("server: file-host:1\n");
  EXPECT_EQ(ResolveServer("", env())->target, "file-host:1");
  EXPECT_EQ(ResolveServer("", env())->source, "from " + folder_ + "/imgd/config.yaml");
  vars_["IMGD_SERVER"] = "variable-host:2";
  EXPECT_EQ(ResolveServer("", env())->target, "variable-host:2");
  EXPECT_EQ(ResolveServer("", env())->source, "from IMGD_SERVER");
  EXPECT_EQ(ResolveServer("flag-host:3", env())->target, "flag-host:3");
  EXPECT_EQ(ResolveServer("flag-host:3", env())->source, "from --server");
}

TEST_F(Settings, AnUnknownKeyIsAnErrorWithItsPlace) {
  WriteConfig("# mine\nsevrer: a:1\n");
  EXPECT_THAT(ErrorTexts(),
              ElementsAre(folder_ + "/imgd/config.yaml:2:1: sevrer: unknown key (did you mean 'server'?)"));
}

TEST_F(Settings, ABadAddressInTheFileHasItsPlace) {
  WriteConfig("server: host:70000\n");
  EXPECT_THAT(ErrorTexts(), ElementsAre(HasSubstr("config.yaml:1:9: server: found 'host:70000'")));
}

TEST_F(Settings, AFaultyFileIsNoHindranceWhereItDecidesNothing) {
  WriteConfig("nonsense: true\n");
  EXPECT_THAT(ErrorTexts("host:1"), ElementsAre());
}

TEST_F(Settings, TheFileIsBelowHomeWithoutXdg) {
  vars_.erase("XDG_CONFIG_HOME");
  vars_["HOME"] = "/home/lena";
  EXPECT_EQ(UserConfigPath(env()), "/home/lena/.config/imgd/config.yaml");
}

TEST(ServerAddresses, AreHostWithOrWithoutPort) {
  EXPECT_EQ(*ParseServerAddress("gpu-head"), "gpu-head:7650");
  EXPECT_EQ(*ParseServerAddress("10.0.0.1:80"), "10.0.0.1:80");
  EXPECT_EQ(*ParseServerAddress("[::1]"), "[::1]:7650");
  EXPECT_EQ(*ParseServerAddress("[::1]:9"), "[::1]:9");
}

TEST(ServerAddresses, OthersAreRefusedWithWhatWasMeant) {
  EXPECT_EQ(ParseServerAddress("ftp://host:1").error().hint, "leave out the scheme");
  EXPECT_EQ(ParseServerAddress("::1").error().hint, "write an IPv6 address as [ADDRESS]:PORT");
  for (const char* bad :
       {"", ":1", "host:", "host:x", "host:0", "host:65536", "a b", "[::1", "[::1]x", "[::1]:"}) {
    EXPECT_FALSE(ParseServerAddress(bad)) << bad;
  }
}

TEST(Owner, IsTheUserOfTheEnvironmentOrTheLogin) {
  EXPECT_EQ(OwnerName([](const char* name) { return std::string(name) == "USER" ? "lena" : ""; }), "lena");
  EXPECT_FALSE(OwnerName([](const char*) { return std::string(); }).empty());
}

}  // namespace
}  // namespace imgd::cli
