// Code that runs in namespaces of its own, which only root can make.
#pragma once

#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <functional>
#include <string>

namespace unisono::sys {

// What `body` says in a process with such namespaces; "no namespace" where there are none.
inline std::string said_apart(int namespaces, const std::function<std::string()>& body) {
  std::array<int, 2> pipes{};
  if (pipe(pipes.data()) != 0) return "no pipe";
  const pid_t child = fork();
  if (child == 0) {
    const bool is_apart = unshare(namespaces) == 0;
    const std::string said = is_apart ? body() : "no namespace";
    static_cast<void>(write(pipes[1], said.data(), said.size()));
    _exit(0);
  }
  close(pipes[1]);
  std::string said(4096, '\0');
  const ssize_t bytes = read(pipes[0], said.data(), said.size());
  said.resize(static_cast<std::size_t>(std::max<ssize_t>(bytes, 0)));
  close(pipes[0]);
  waitpid(child, nullptr, 0);
  return said;
}

}  // namespace unisono::sys
