// two_sides.cc - processes and namespaces for tests of real wires.
#include "tests/system/two_sides.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <new>

namespace unet::test {

namespace {

void nap() {
  const timespec time{0, 1'000'000};
  nanosleep(&time, nullptr);
}

// Runs it without output; true on success.
bool run(const std::string& command) { return std::system((command + " >/dev/null 2>&1").c_str()) == 0; }

}  // namespace

std::unique_ptr<Shared, void (*)(Shared*)> make_shared_page() {
  void* page = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) std::abort();
  return {new (page) Shared{}, [](Shared* shared) { munmap(shared, sizeof(Shared)); }};
}

bool eventually(Nanoseconds timeout, const std::function<bool()>& ready) {
  for (const Nanoseconds end = monotonic_now() + timeout; monotonic_now() < end; nap()) {
    if (ready()) return true;
  }
  return ready();
}

Child::Child(Shared& shared, const Side& side) {
  std::fflush(nullptr);
  const pid_t parent = getpid();
  pid_ = fork();
  if (pid_ != 0) return;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(1);
  const int status = side(shared);
  std::fflush(nullptr);
  _exit(status);
}

Child::~Child() {
  if (!ended_) kill();
}

void Child::kill() {
  if (ended_ || pid_ <= 0) return;
  ::kill(pid_, SIGKILL);
  wait(kHang);
}

int Child::wait(Nanoseconds timeout) {
  const bool over = eventually(timeout, [&] {
    int status = 0;
    if (ended_ || waitpid(pid_, &status, WNOHANG) != pid_) return ended_;
    ended_ = true;
    if (WIFEXITED(status)) status_ = WEXITSTATUS(status);
    if (WIFSIGNALED(status)) signal_ = WTERMSIG(status);
    return true;
  });
  return over ? status_ : -1;
}

Network::Network(Kind kind) : kind_(kind), prefix_("unet-test-" + std::to_string(getpid())) {
  if (kind == Kind::none) {
    usable_ = true;
    return;
  }
  const std::string a = prefix_ + "-a", b = prefix_ + "-b";
  if (kind == Kind::veth) {
    usable_ = run("ip netns add " + a) && run("ip netns add " + b) &&
              run("ip -n " + a + " link add " + interface(0) + " type veth peer name " + interface(1) + " netns " + b) &&
              run("ip -n " + a + " link set " + interface(0) + " up") && run("ip -n " + b + " link set " + interface(1) + " up");
  } else {
    usable_ = run("ip netns add " + a) && run("ip -n " + a + " link add unet-br type bridge") && run("ip -n " + a + " link set unet-br up");
  }
}

Network::~Network() {
  if (kind_ == Kind::none) return;
  run("ip netns del " + prefix_ + "-a");
  if (kind_ == Kind::veth) run("ip netns del " + prefix_ + "-b");
}

std::string Network::interface(int side) const { return side == 0 ? "unet-va" : "unet-vb"; }

bool Network::enter(int side) const {
  if (kind_ == Kind::none) return true;
  const std::string path = "/var/run/netns/" + prefix_ + (side == 0 || kind_ == Kind::bridge ? "-a" : "-b");
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  const bool entered = fd >= 0 && setns(fd, CLONE_NEWNET) == 0;
  if (fd >= 0) close(fd);
  return entered;
}

bool Network::set_up(int side, bool up) const { return run("ip link set " + interface(side) + (up ? " up" : " down")); }

bool Network::join_bridge(const std::string& interface) const {
  return run("ip link set " + interface + " master unet-br") && run("ip link set " + interface + " up");
}

}  // namespace unet::test
