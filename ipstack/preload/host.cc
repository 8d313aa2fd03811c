// host.cc - the process's stack: opening it, its lock, what comes, and the end.
#include "ipstack/preload/host.h"

#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <cstring>
#include <new>

#include "ipstack/preload/forks.h"
#include "ipstack/preload/real.h"
#include "ipstack/preload/relays.h"
#include "ipstack/preload/signals.h"
#include "unet/connection.h"

namespace unet::preload {
namespace {

[[gnu::tls_model("initial-exec")]] thread_local int depth = 0;  // of this thread, in the library
constexpr int kUntouched = -1;
[[gnu::tls_model("initial-exec")]] thread_local bool works_at_end = false;  // the helper, and the thread that ends the process
[[gnu::tls_model("initial-exec")]] thread_local int cancellation = kUntouched;  // whether the program lets it be cancelled

int errno_of(const Error& error) noexcept {
  switch (error.code) {
    case Errc::not_permitted: return EACCES;
    case Errc::quota_exceeded:
    case Errc::out_of_memory: return ENOBUFS;
    default: return ENETDOWN;
  }
}

// An interface that has just begun asks whether another host has its addresses, and they are not to be used so long. A program that is
// started with it need not know.
void await_addresses(sockets::EndpointNetwork& network) {
  constexpr int kTries = 100;  // RFC 5227 takes up to seven seconds
  constexpr timespec kBetween{.tv_sec = 0, .tv_nsec = 100'000'000};
  for (int i = 0; i < kTries; ++i) {
    const auto& all = network.configuration().addresses;
    if (std::none_of(all.begin(), all.end(), [](const auto& each) { return each.tentative; })) return;
    ::nanosleep(&kBetween, nullptr);
    if (!network.refresh()) return;
  }
}

// As the kernel's sockets of this network namespace have it (net.ipv4.tcp_ecn), by which programs ask for it or not.
tcp::Ecn ecn_of_system() noexcept {
  char mode = '2';
  if (const int fd = ::open("/proc/sys/net/ipv4/tcp_ecn", O_RDONLY | O_CLOEXEC); fd >= 0) {
    if (real().read(fd, &mode, 1) != 1) mode = '2';
    real().close(fd);
  }
  // 3 asks for more accurate marks (RFC 9768), which we have not and which fall back on these; 4 and 5 agree to them, and 4 asks for these.
  return mode == '0' ? tcp::Ecn::off : mode == '1' || mode == '3' || mode == '4' ? tcp::Ecn::on : tcp::Ecn::passive;
}

Nanoseconds microseconds_of(const char* variable, Nanoseconds otherwise) noexcept {
  const char* const text = ::secure_getenv(variable);
  if (text == nullptr) return otherwise;
  char* end = nullptr;
  const unsigned long value = std::strtoul(text, &end, 10);
  return end == text || *end != 0 || value > 1'000'000 ? otherwise : value * kMicrosecond;
}

}  // namespace

Host& Host::get() noexcept {
  alignas(Host) static std::byte memory[sizeof(Host)];
  static Host* const host = new (memory) Host;
  return *host;
}

Host::Host() {
  protect();
  read_environment();
}

void Host::read_environment() {
  spin_most_ = spin_ = microseconds_of("UNET_SOCKETS_SPIN_US", spin_most_);
  logs_ = ::secure_getenv("UNET_SOCKETS_LOG") != nullptr;
  // Now, as programs such as nginx give their children an environment without it.
  if (const char* const ni = ::secure_getenv("UNET_NI")) ni_ = ni;
  const char* const text = ::secure_getenv("UNET_SOCKETS_RULES");
  if (text == nullptr) return;
  if (auto rules = Rules::parse(text)) rules_ = std::move(*rules);
  else std::fprintf(stderr, "unet-sockets: UNET_SOCKETS_RULES: %s; no rule is used\n", rules.error().text.c_str());
}

// ---- the lock

bool Host::inside() noexcept { return depth != 0; }
bool Host::holds_signals() noexcept { return depth != 0 && !get().ending_.load(std::memory_order_relaxed); }

// This thread is not inside any longer, and signals that came meanwhile are handled.
void Host::come_out() noexcept {
  --depth;
  std::atomic_signal_fence(std::memory_order_seq_cst);  // what comes from here on is not held back
  if (signals_held) [[unlikely]] let_signals_in();
}

// The kernel ends all threads at once. So no call returns to the program in another thread while finish() closes its sockets. That thread
// would go on, and its exit() could decide the exit status.
void Host::halt_at_end() noexcept {
  if (!ends_ || works_at_end) [[likely]] return;
  mutex_.unlock();
  for (;;) ::pause();
}

void Host::lock() noexcept {
  ++depth;
  hold_off_cancellation();
  if (!mutex_.try_lock()) {
    wanting_.fetch_add(1, std::memory_order_relaxed);
    mutex_.lock();
    wanting_.fetch_sub(1, std::memory_order_relaxed);
  }
  halt_at_end();
  hold_off_cancellation();
  this_call = {};
  ++locks_;
  if (SleepOfThread::own.at != nullptr) [[unlikely]] forget_sleep(__builtin_frame_address(0));
}

void Host::unlock() noexcept { release(); }

// While a thread sleeps: signal handlers that run then are the program's, and not inside; some do before this returns.
void Host::release() noexcept {
  if (hands_on()) kick_helper();  // under the lock, as a thread may be cancelled in write()
  mutex_.unlock();
  // Before handlers, of which one may leave by longjmp().
  if (cancellation != kUntouched) [[unlikely]] ::pthread_setcancelstate(std::exchange(cancellation, kUntouched), nullptr);
  come_out();
}

void Host::regain() noexcept {
  ++depth;
  hold_off_cancellation();
  wanting_.fetch_add(1, std::memory_order_relaxed);
  mutex_.lock();
  wanting_.fetch_sub(1, std::memory_order_relaxed);
  halt_at_end();
  hold_off_cancellation();
}

// Lets a thread in that waits for the lock. std::mutex alone would not: who spins takes it again at once.
void Host::give_way() noexcept {
  mutex_.unlock();
  ::sched_yield();
  mutex_.lock();
  halt_at_end();
  hold_off_cancellation();
}

// A thread is not cancelled while it has the lock. To say so costs two locked instructions a call, behind which the core waits for what it
// has stored: so threads only do it once the program has cancelled one, which it cannot while another has the lock.
void Host::hold_off_cancellation() noexcept {
  if (!cancels_.load(std::memory_order_relaxed) || cancellation != kUntouched) [[likely]] return;
  ::pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancellation);
}

// ---- the stack

// Either all of it, or nothing.
Status Host::open_stack() {
  const bool holds = held_ && held_->alive();
  auto context = holds ? Result<Context>(*held_) : Context::open(ni_, {}, kFirstDescriptor);
  if (!context) return tl::unexpected(context.error());
  sockets::SocketsOptions options;
  options.clock = clock_;
  options.stack.tcp.ecn = ecn_of_system();
  auto made = sockets::Sockets::open(*context, options);
  if (!made) return tl::unexpected(made.error());
  const auto descriptor = (*made)->network().descriptor();
  if (!descriptor) return tl::unexpected(descriptor.error());
  await_addresses((*made)->network());
  if (!helper_runs_ && !start_helper()) return fail(Errc::out_of_memory, "no thread can be started");
  helper_runs_ = true;
  endpoint_fd_ = *descriptor;
  context_ = std::move(*context);
  held_.reset();
  sockets_ = std::move(*made);
  taken_in_ = 0;
  return {};
}

bool Host::open(bool quiet) {
  if (sockets_ != nullptr) return true;
  Status opened;
  try {
    opened = open_stack();
  } catch (const std::bad_alloc&) {
    opened = fail(Errc::out_of_memory, "no memory for a stack");
  }
  lacks_memory_ = !opened && opened.error().code == Errc::out_of_memory;
  if (opened) {
    opened_at_ = now();
    known_ = sockets_->network().configuration();
    protect();
    return true;
  }
  static bool told = false;
  if (logs_ || (!quiet && !std::exchange(told, true))) tell_user("unet-sockets: %s\n", opened.error().text.c_str());
  errno = errno_of(opened.error());
  return false;
}

void Host::hold_interface() {
  if (sockets_ != nullptr || held_ || ni_.starts_with("embedded:")) return;
  if (auto context = Context::open(ni_, {}, kFirstDescriptor)) held_ = std::move(*context);
}

// Asked for anew while an address is not to be used yet.
const IpConfiguration* Host::configuration() {
  if (sockets_ == nullptr) return known_ ? &*known_ : nullptr;
  sockets::EndpointNetwork& network = sockets_->network();
  const auto& all = network.configuration().addresses;
  if (std::any_of(all.begin(), all.end(), [](const auto& each) { return each.tentative; })) static_cast<void>(network.refresh());
  return &network.configuration();
}

void Host::give_socket(File& file, int socket) {
  file.socket = socket;
  const auto index = static_cast<size_t>(socket);
  if (index >= by_socket_.size()) by_socket_.resize(index + 1);
  by_socket_[index] = &file;
}

int Host::leave_socket(File& file) noexcept {
  by_socket_[static_cast<size_t>(file.socket)] = nullptr;
  return std::exchange(file.socket, -1);
}

void Host::close_socket(File& file) {
  if (file.is_ours()) sockets_->drop(leave_socket(file));
}

void Host::await_end(File& file) {
  constexpr Nanoseconds kLook = 10 * kMillisecond;  // that an end is acknowledged is no event that wakes
  if (file.is_ours()) turn();
  const Nanoseconds time = file.is_ours() ? sockets_->stack().linger_time(file.socket) : 0;
  if (time == 0) return;
  const Nanoseconds until = now() + time;
  sockets_->shutdown(file.socket, SHUT_WR);
  while (file.is_ours() && sockets::is_ending(sockets_->stack(), file.socket) && now() < until) {
    if (wait_for(file, {}, std::min(until, now() + kLook)) == Woken::interrupted) return;
  }
}

void Host::end_by_reset(File& file) noexcept {
  constexpr linger kAtOnce{.l_onoff = 1, .l_linger = 0};
  if (file.is_ours()) sockets_->setsockopt(file.socket, SOL_SOCKET, SO_LINGER, &kAtOnce, sizeof kAtOnce);
}

void Host::reset(File& file) noexcept {
  end_by_reset(file);
  --file.holds;
  let_go(file);
}

void Host::let_go(Entry& entry) {
  if (entry.fds.empty() && entry.holds != 0 && relays_ != nullptr) {  // what comes is another process's now
    if (entry.kind == Entry::Kind::socket) rest(static_cast<File&>(entry));
    kick_helper();
  }
  if (!entry.fds.empty() || entry.holds != 0) return;
  if (entry.kind == Entry::Kind::socket && Relays::has_heirs(static_cast<File&>(entry))) return leave(static_cast<File&>(entry));
  if (entry.kind == Entry::Kind::socket) {
    File& file = static_cast<File&>(entry);
    EpollSet::forget(file);
    std::erase(waiting_back_, &file);
    std::erase(given_up_, &file);
    if (!file.is_stream() && file.is_ours() && !file.origins.empty()) {
      give_back(file);
      ancestors_.serve();
    }
    if (!file.pair) Ancestors::say_all(file, LinkMessage::Kind::close);
    Ancestors::give_back(file);
    if (relays_ != nullptr) relays_->forget_closed(file);
    close_socket(file);
  }
  delete &entry;
}

uint32_t Host::events(const File& file) const noexcept {
  if (file.lost) return EPOLLIN | EPOLLOUT | EPOLLERR | EPOLLHUP | EPOLLRDHUP | EPOLLRDNORM | EPOLLWRNORM;
  const uint32_t handed = file.waiting.empty() ? 0 : EPOLLIN | EPOLLRDNORM;
  if (!file.is_ours()) return handed;
  uint32_t events = sockets_->stack().events(file.socket) | handed;
  const bool few = file.receive_least > 1 && file.is_stream() && !file.listens && (events & (EPOLLIN | EPOLLRDHUP | EPOLLERR)) == EPOLLIN;
  if (few && is_less(file)) [[unlikely]] events &= ~static_cast<uint32_t>(EPOLLIN);
  if ((events & EPOLLIN) != 0) events |= EPOLLRDNORM;
  if ((events & EPOLLOUT) != 0) events |= EPOLLWRNORM;
  return events;
}

uint32_t Host::events(const Entry& entry) const noexcept {
  if (entry.kind == Entry::Kind::socket) return events(static_cast<const File&>(entry));
  const bool ready = static_cast<const EpollSet&>(entry).is_ready([this](const Entry& each) { return events(each); });
  return ready ? EPOLLIN | EPOLLRDNORM : 0;
}

// Than SO_RCVLOWAT says. Of a small buffer Linux wants no more than it holds, and neither do we.
bool Host::is_less(const File& file) const noexcept {
  sockets::Stack& stack = sockets_->stack();
  const auto room = static_cast<uint32_t>(stack.option(file.socket, sockets::Stack::Option::receive_buffer));
  const uint32_t urgent = stack.to_urgent(file.socket) == 0 ? 1 : 0;  // is not for who reads on
  return stack.queued(file.socket).receive - urgent < std::min(static_cast<uint32_t>(file.receive_least), room / 2);
}

File* Host::file(int fd) {
  File* const file = table_.file(fd);
  // What another process has done with it before is carried first, as it would have happened at once.
  if (file != nullptr && file->is_ours() && file->holds != 0 && !file->is_joined()) hear();
  if (file == nullptr || !file->inherited) return file;
  static_cast<void>(Forks::adopt(*file));
  return table_.file(fd);
}

void Host::hear() {
  if (sockets_ != nullptr && relays_ != nullptr && !relays_->empty()) static_cast<void>(relays_->serve({}));
}

void Host::protect() noexcept {
  const bool is_open = sockets_ != nullptr;
  Connection* const connection = is_open ? &sockets_->network().endpoint().connection() : nullptr;
  const auto links = ancestors_.all();
  const int all[] = {is_open ? connection->descriptor() : -1, is_open ? connection->news_descriptor() : -1, endpoint_fd_, helper_event_};
  static_assert(std::size(all) + Ancestors::kMost == std::tuple_size_v<decltype(protected_)>);
  for (size_t i = 0; i < protected_.size(); ++i) {
    const size_t link = i - std::size(all);
    protected_[i].store(i < std::size(all) ? all[i] : link < links.size() ? links[link]->fd : -1, std::memory_order_relaxed);
  }
}

bool Host::protects(int fd) const noexcept {
  const auto is_it = [&](const auto& each) { return each.load(std::memory_order_relaxed) == fd; };
  return fd >= 0 && std::any_of(protected_.begin(), protected_.end(), is_it) && is_own_process();
}

std::vector<int> Host::own_descriptors() {
  if (inside() || !is_own_process()) return {};
  const Guard guard;
  return descriptors();
}

std::vector<int> Host::descriptors() const {
  std::vector<int> all;
  for (const auto& each : protected_) {
    if (each.load(std::memory_order_relaxed) >= 0) all.push_back(each.load(std::memory_order_relaxed));
  }
  append_own(all);
  if (relays_ != nullptr) relays_->append(all);
  const auto append = [&](const File* file) {
    if (file == nullptr) return;
    for (const File::Waiting& each : file->waiting) {
      if (each.fd >= 0) all.push_back(each.fd);
    }
  };
  for (int i = 0; i < table_.end(); ++i) append(table_.file(i));
  for (const File* each : by_socket_) append(each);  // also what others have, and no descriptor names here
  std::sort(all.begin(), all.end());
  return all;
}

bool Host::is_own(int fd) {
  if (fd < kFirstDescriptor) return protects(fd);
  const std::vector<int> all = own_descriptors();
  return std::binary_search(all.begin(), all.end(), fd);
}

Relays& Host::relays() {
  if (relays_ == nullptr) relays_ = std::make_unique<Relays>(helper_event_);
  return *relays_;
}

void Host::relay(File& file, int fd, bool used) {
  relays().add_relay(file, fd, used);
  kick_helper();
}

void Host::share(File& file, int fd) {
  File* const all[] = {&file};
  relays().add_link(fd, all);
  kick_helper();
}

void Host::leave(File& listener) {
  relays().leave(listener);
  kick_helper();
}

bool Host::turn(uint32_t neighbours) {
  if (sockets_ == nullptr) return false;
  sockets::Stack& stack = sockets_->stack();
  const Nanoseconds at = now();
  stack.set_time(at);
  sockets::EndpointNetwork& network = sockets_->network();
  const bool looked = network.poll(stack, neighbours) != 0;
  // Calls take in what has come, too.
  const bool came = network.taken_in() != std::exchange(taken_in_, network.taken_in());
  if (looked || stack.is_due() || at - turned_at_ > kTurnEvery) {
    stack.run();
    turned_at_ = at;
    sockets_->note_run(at);
  }
  ++turns_;
  if (came) {
    ++arrivals_;
    armed_ = false;
  }
  if (stack.changes() == 0) return false;
  dispatch();
  return true;
}

void Host::begin_to_serve(File& file) {
  if (!file.is_stream()) return begin_to_read(file);
  const bool begins = !std::exchange(file.serves, true);
  if (!file.is_ours()) return;
  if (begins) {
    std::erase(given_up_, &file);
    static_cast<void>(sockets_->stack().set_accepts_new_flows(file.socket, true));
    if (!file.origins.empty()) kick_helper();  // it may not know the link yet
  }
  file.asked = true;
  Ancestors::say_all(file, LinkMessage::Kind::serve);
}

// Of a datagram socket. Those that it is from are asked when there is nothing.
void Host::begin_to_read(File& file) {
  const bool begins = !std::exchange(file.serves, true);
  if (!file.is_ours()) return;
  if (begins && relays_ != nullptr) relays_->settle(file);
  if (file.origins.empty() || (events(file) & EPOLLIN) != 0) return;
  if (begins) kick_helper();
  file.asked = true;
  Ancestors::say_all(file, LinkMessage::Kind::serve);
}

void Host::rest(File& file) {
  if (!file.is_joined() || !file.is_ours() || !std::exchange(file.serves, false)) return;
  if (!file.is_stream()) return relays().settle(file);
  static_cast<void>(sockets_->stack().set_accepts_new_flows(file.socket, false));
}

void Host::give_up(File& listener) {
  rest(listener);
  if (std::find(given_up_.begin(), given_up_.end(), &listener) == given_up_.end()) given_up_.push_back(&listener);
}

// A thread begins to wait: perhaps for one of these, by a set in a set, too.
void Host::serve_given_up() {
  for (size_t i = 0; i < given_up_.size();) {
    File& listener = *given_up_[i];
    if (!listener.serves && relays().is_waited_for(listener)) serve(listener);
    if (listener.serves) std::erase(given_up_, &listener);
    else ++i;
  }
}

void Host::tell(File& file) {
  EpollSet::mark_all(file);
  for (Sleeper* each : file.sleepers) each->wake();
}

void Host::set_signals(File& file, int fd, bool on) {
  if (!on) return void(file.signals_of = -1);
  if (file.signals_of >= 0) return;
  file.signals_of = fd;
  file.signalled = file.is_ours() ? events(file) : File::kUnconnected;
  serve(file);  // it waits from now on
}

void Host::tell_owner_too(File& file, bool came) {
  tell(file);
  if (file.signals_of < 0) [[likely]] return;
  const uint32_t now = events(file);
  const uint32_t what = (now & EPOLLIN) != 0 ? EPOLLIN : now & (EPOLLERR | EPOLLPRI);
  const uint32_t fresh = (now & ~file.signalled) | (came ? what : 0);
  file.signalled = now;
  if (!file.fds.empty()) tell_owner_ready(file.fd(), file.signals_of, fresh);  // its owner is known by a descriptor
}

void Host::dispatch() {
  sockets::Change change;
  while (sockets_->stack().next_change(change)) {
    const auto index = static_cast<size_t>(change.socket);
    File* const file = index < by_socket_.size() ? by_socket_[index] : nullptr;
    if (file == nullptr) continue;
    if (change.urgent && !file->fds.empty()) [[unlikely]] tell_owner(file->fd(), SIGURG);  // before who waits is woken, as the kernel
    tell_owner_too(*file, change.came || change.urgent);
    if (file->wanted) [[unlikely]] relays().note_arrival(*file);
  }
}

// Of a process that ends before others have what is theirs. The helper goes on meanwhile.
void Host::await_others(bool (Relays::*what)() const noexcept, Nanoseconds within) noexcept {
  constexpr timespec kBetween{.tv_sec = 0, .tv_nsec = 1'000'000};
  const Nanoseconds until = now() + within;
  while (sockets_ != nullptr && relays_ != nullptr && now() < until) {
    turn();
    hear();
    if (!(*relays_.*what)()) return;
    release();
    ::nanosleep(&kBetween, nullptr);
    regain();
  }
}

// What the process has not read is for others who have the socket.
// Of a socket that is from another process: what has come, and what was handed, while its owner knows that it is here.
void Host::give_back(File& file) {
  file.serves = false;
  static_cast<void>(sockets_->stack().set_accepts_new_flows(file.socket, false));
  turn();
  Relays::give_back(file);
}

void Host::give_back_datagrams() {
  if (sockets_ == nullptr) return;
  for (File* const each : by_socket_) {
    if (each == nullptr || each->is_stream()) continue;
    if (relays_ != nullptr) rest(*each);
    if (!each->origins.empty()) give_back(*each);
  }
  ancestors_.serve();
}

// What has come to them is for others who have them: who has not looked yet is waited for (Relays::is_awaited()).
void Host::leave_listeners() {
  for (size_t i = 0; i < by_socket_.size(); ++i) {
    File* const file = by_socket_[i];
    if (file == nullptr || !file->listens) continue;
    if (Relays::has_heirs(*file)) leave(*file);
    else if (relays_ != nullptr && relays_->is_held(*file) && (events(*file) & EPOLLIN) != 0) rest(*file);
  }
}

void* Host::helper(void* host) {
  works_at_end = true;
  static_cast<Host*>(host)->help();
  return nullptr;
}

void Host::finish() noexcept {
  lock();
  ends_ = works_at_end = true;
  give_back_datagrams();
  leave_listeners();
  await_others(&Relays::is_leaving);
  const bool keeper = keeps_until_ != 0;
  // A keeper for children that have ended just before would hold the ports after this process, and a server that starts again wants them.
  if (!keeper) await_others(&Relays::carries, 100 * kMillisecond);
  unlock();
  if (!keeper) Forks::close_own(*this);
  const bool left = !keeper && Forks::leave_keeper(false);
  if (!left) lock();
  if (!left && !keeper) await_others(&Relays::is_awaited);
  ending_ = true;
  if (signals_held) let_signals_in();
  if (!left) {
    give_back_datagrams();  // what came while the lock was given away
    ancestors_.end();
  }
  for (const auto& each : ancestors_.all()) each->renew(-1);  // what nobody has accepted is another's
  if (sockets_ != nullptr && !left) {
    context_.reset();
    sockets_.reset();  // waits for the ends of its streams
  }
  // The lock is never given back: other threads may be in calls, and there is no stack for them any longer. What this one still calls, the
  // kernel's sockets answer.
}

}  // namespace unet::preload
