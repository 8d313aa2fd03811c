// command.cc - where programs are, and posix_spawn with the output caught.
#include "apps/bench/machine/command.h"

#include <fcntl.h>
#include <glob.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>

extern char** environ;

namespace unet::bench {

namespace {

std::string joined(const std::vector<std::string>& arguments) {
  std::string text;
  for (const std::string& argument : arguments) text += (text.empty() ? "" : " ") + argument;
  return text;
}

std::string read_all(int fd) {
  std::string text;
  char buffer[4096];
  for (;;) {
    const ssize_t n = read(fd, buffer, sizeof(buffer));
    if (n > 0) text.append(buffer, static_cast<size_t>(n));
    else if (n == 0 || errno != EINTR) return text;
  }
}

std::string directory_of_this_program() {
  char path[4096];
  const ssize_t n = readlink("/proc/self/exe", path, sizeof(path));
  if (n <= 0) return ".";
  const std::string program(path, static_cast<size_t>(n));
  return program.substr(0, program.rfind('/'));
}

bool is_program(const std::string& path) {
  struct stat status {};
  return stat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode) && access(path.c_str(), X_OK) == 0;
}

}  // namespace

std::string find_program(const std::string& directory, const std::string& name) {
  const std::string here = directory_of_this_program();
  for (const std::string& path : {here + "/" + name, here + "/../" + directory + "/" + name}) {
    if (is_program(path)) return path;
  }
  return name;
}

namespace {

// Debian has the programs of each version of PostgreSQL outside of PATH.
std::string postgresql_directories() {
  glob_t found{};
  std::string all;
  if (glob("/usr/lib/postgresql/*/bin", 0, nullptr, &found) == 0) {
    for (size_t i = 0; i < found.gl_pathc; ++i) all = ":" + std::string(found.gl_pathv[i]) + all;
  }
  globfree(&found);
  return all;
}

}  // namespace

std::string path_of(const std::string& name) {
  const char* const set = std::getenv("PATH");
  const std::string directories = std::string(set == nullptr ? "" : set) + ":/usr/sbin:/sbin" + postgresql_directories();
  for (size_t begin = 0; begin <= directories.size();) {
    const size_t end = std::min(directories.find(':', begin), directories.size());
    const std::string path = directories.substr(begin, end - begin) + "/" + name;
    if (is_program(path)) return path;
    begin = end + 1;
  }
  return "";
}

Result<std::string> run_command(const std::vector<std::string>& arguments) {
  int output[2];
  if (pipe2(output, O_CLOEXEC) != 0) return fail_errno("pipe2", errno);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, output[1], STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, output[1], STDERR_FILENO);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  std::vector<char*> argv;
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  pid_t pid = 0;
  const int error = posix_spawnp(&pid, argv[0], &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  close(output[1]);
  if (error != 0) {
    close(output[0]);
    return fail(Errc::unavailable, "cannot run '" + arguments[0] + "': " + std::strerror(error));
  }
  std::string text = read_all(output[0]);
  close(output[0]);
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return text;
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return fail(Errc::unavailable, "'" + joined(arguments) + "' failed: " + (text.empty() ? "no output" : text));
}

std::vector<std::string> provider_environment(const std::string& ni) {
  std::vector<std::string> environment{"UNET_NI=" + ni};
  const std::string provider = find_program("../fabric", "libunet-fi.so");  // an installed one is found by libfabric itself
  const size_t end = provider.rfind('/');
  if (end != std::string::npos && std::getenv("FI_PROVIDER_PATH") == nullptr) {
    environment.push_back("FI_PROVIDER_PATH=" + provider.substr(0, end));
  }
  return environment;
}

}  // namespace unet::bench
