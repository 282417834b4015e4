#pragma once

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>
#include <utility>
#include <vector>

#include "agent/testing/temp_dir.h"
#include "common/files.h"

namespace imgd {

/// An imgagent as a process of its own; its output goes to a file.
class AgentProcess {
 public:
  AgentProcess(const std::filesystem::path& output, std::vector<std::string> arguments) : output_(output) {
    std::string program = IMGAGENT_PROGRAM;
    std::vector<char*> words = {program.data()};
    for (auto& argument : arguments) words.push_back(argument.data());
    words.push_back(nullptr);
    posix_spawn_file_actions_t files;
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_addopen(&files, 1, output.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0644);
    posix_spawn_file_actions_adddup2(&files, 1, 2);
    if (::posix_spawn(&pid_, IMGAGENT_PROGRAM, &files, nullptr, words.data(), environ) != 0) pid_ = -1;
    posix_spawn_file_actions_destroy(&files);
  }
  ~AgentProcess() {
    if (pid_ > 0) End(SIGKILL);
  }
  AgentProcess(const AgentProcess&) = delete;
  AgentProcess& operator=(const AgentProcess&) = delete;

  pid_t pid() const { return pid_; }
  /// Sends the signal and waits; the exit code, or minus the signal that ended it.
  int End(int signal) {
    ::kill(pid_, signal);
    return Wait();
  }
  int Wait() {
    int status = 0;
    ::waitpid(std::exchange(pid_, -1), &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }
  std::string Output() const { return ReadFile(output_).value_or(""); }

 private:
  std::filesystem::path output_;
  pid_t pid_ = -1;
};

}  // namespace imgd
