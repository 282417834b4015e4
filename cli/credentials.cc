#include "cli/credentials.h"

#include <sys/stat.h>

#include <filesystem>

#include "common/files.h"
#include "common/text.h"
#include "common/tls/pem.h"
#include "common/url.h"

namespace imgd::cli {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMostFileBytes = size_t{1} << 20;

/// Empty without a home.
fs::path LoginsFolder(const Environment& env) {
  const std::string config = UserConfigPath(env);
  return config.empty() ? fs::path() : fs::path(config).parent_path() / "logins";
}

fs::path FolderOfLogin(const std::string& address, const Environment& env) {
  const fs::path logins = LoginsFolder(env);
  return logins.empty() ? logins : logins / PercentEncode(address);
}

Result<std::string> ReadSmall(const std::string& path) { return ReadFile(path, kMostFileBytes); }

bool IsLoopbackTarget(const std::string& target) {
  return IsLoopbackHost(target.substr(0, target.rfind(':')));
}

}  // namespace

Result<std::string> ReadToken(const std::string& path) {
  IMGD_ASSIGN(const std::string text, ReadSmall(path));
  std::string token(Trimmed(text, " \t\r\n"));
  if (token.empty() || token.find_first_of(" \t\r\n") != std::string::npos)
    return Fail(ErrorCode::kInvalidArgument, "{}: one line with a token is expected", path);
  return token;
}

Login LoginFor(const std::string& address, const Environment& env) {
  const fs::path folder = FolderOfLogin(address, env);
  if (folder.empty()) return {};
  auto ca = ReadSmall(folder / "ca.crt");
  auto token = ReadToken(folder / "token");
  if (!ca || !token) return {};
  return {address, std::move(*ca), std::move(*token)};
}

Status KeepLogin(const Login& login, const Environment& env) {
  const fs::path folder = FolderOfLogin(login.address, env);
  if (folder.empty()) return Fail(ErrorCode::kFailedPrecondition, "neither HOME nor XDG_CONFIG_HOME is set");
  IMGD_TRY(MakeFolders(folder));
  ::chmod(folder.c_str(), 0700);
  IMGD_TRY(tls::WriteSecretFile(folder / "ca.crt", login.ca));
  IMGD_TRY(tls::WriteSecretFile(folder / "token", login.token + "\n"));
  return tls::WriteSecretFile(folder.parent_path() / "last", "https://" + login.address + "\n");
}

std::string LastLogin(const Environment& env) {
  const fs::path folder = LoginsFolder(env);
  if (folder.empty()) return "";
  return ReadToken(folder / "last").value_or("");
}

Status AddCredentials(ServerAddress& address, bool is_said, const std::string& ca_file,
                      const std::string& token_file, const Environment& env) {
  const Login login = LoginFor(address.target, env);
  const std::string variable = env("IMGD_CA");
  if (!is_said && (!login.ca.empty() || !variable.empty())) address.tls = true;
  if (address.tls) {
    const std::string file = !variable.empty() ? variable : ca_file;
    if (!file.empty()) {
      IMGD_ASSIGN(address.ca, ReadSmall(file));
    } else {
      address.ca = login.ca;
    }
  }
  if (!address.tls && !IsLoopbackTarget(address.target)) return {};
  if (address.token = env("IMGD_TOKEN"); !address.token.empty()) return {};
  const std::string named = env("IMGD_TOKEN_FILE");
  if (const std::string file = !named.empty() ? named : token_file; !file.empty()) {
    IMGD_ASSIGN(address.token, ReadToken(file));
  } else if (address.tls) {
    address.token = login.token;
  }
  return {};
}

}  // namespace imgd::cli
