#pragma once

#include <string>

#include "cli/settings.h"

/// What this user has to show to a daemon, and how the daemon is known: in the folder `logins` beside the
/// configuration file, a folder for each daemon that `imgcli login` was used for.
namespace imgd::cli {

/// What `imgcli login` keeps of a daemon.
struct Login {
  std::string address;  ///< "host:port"
  std::string ca;       ///< the certificate that it is known by, PEM
  std::string token;
};

/// The login for the daemon at "host:port"; an empty one where there is none.
Login LoginFor(const std::string& address, const Environment& env);
/// Keeps it, for this user's eyes only, and for commands that name no daemon. Errors: those of the files.
Status KeepLogin(const Login& login, const Environment& env);
/// "https://host:port" of the last login; empty where there is none.
std::string LastLogin(const Environment& env);

/// Fills in what is shown to the daemon at `address.target` and how it is known: IMGD_CA, `ca_file`, a login;
/// and IMGD_TOKEN, IMGD_TOKEN_FILE, `token_file`, a login. `is_said`: the address came with a scheme. A token
/// never goes over the network in plain text. Errors: of files that are named and can't be read.
Status AddCredentials(ServerAddress& address, bool is_said, const std::string& ca_file,
                      const std::string& token_file, const Environment& env);

/// The token in the file: its first word. Errors: those of the file; kInvalidArgument for an empty one.
Result<std::string> ReadToken(const std::string& path);

}  // namespace imgd::cli
