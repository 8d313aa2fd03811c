// runtime.cc - the process's stack: opening it, its sockets, and arrivals.
#include "ipstack/preload/runtime.h"

#include <signal.h>

#include <algorithm>
#include <cerrno>
#include <new>
#include <utility>

#include "ipstack/preload/helper_thread.h"
#include "ipstack/preload/real.h"
#include "ipstack/preload/shared/adoption.h"
#include "ipstack/preload/shared/socket_proxies.h"
#include "ipstack/preload/signals.h"
#include "unet/connection.h"

namespace unet::preload {
namespace {

int errno_of(const Error& error) noexcept {
  switch (error.code) {
    case Errc::not_permitted: return EACCES;
    case Errc::quota_exceeded:
    case Errc::out_of_memory: return ENOBUFS;
    default: return ENETDOWN;
  }
}

}  // namespace

Runtime& Runtime::get() noexcept {
  alignas(Runtime) static std::byte memory[sizeof(Runtime)];
  static Runtime* const runtime = new (memory) Runtime;
  return *runtime;
}

Runtime::Runtime() = default;

// ---- the lock

void Runtime::enter() noexcept {
  lock_.take();
  this_call = {};
  poller_.note_lock();
  if (SleepOfThread::own.at != nullptr) [[unlikely]] forget_sleep(__builtin_frame_address(0));
}

void Runtime::leave() noexcept {
  if (endpoint_stack_ != nullptr) {
    if (stack().changes() != 0) dispatch();
    poller_.hand_on();  // under the lock, as a thread may be cancelled in write()
  }
  lock_.release();
}

// ---- the stack

// Either all of it, or nothing.
Status Runtime::open_stack() {
  auto opened = ni_.open(clock_);
  if (!opened) return tl::unexpected(opened.error());
  if (!poller_.start_helper(&run_helper)) {
    opened->stack.reset();
    ni_.close();
    return fail(Errc::out_of_memory, "no thread can be started");
  }
  ni_.forget_reserve();
  endpoint_stack_ = std::move(opened->stack);
  ni_.remember(endpoint_stack_->network().configuration());
  poller_.attach(*endpoint_stack_, opened->endpoint);
  interface_loss_.note_open(now());
  own_descriptors_.update();
  return {};
}

int Runtime::open(bool quiet) {
  if (endpoint_stack_ != nullptr) return 0;
  const Status opened = open_stack();
  lacks_memory_ = !opened && opened.error().code == Errc::out_of_memory;
  if (opened) return 0;
  static bool told = false;
  if (settings_.logs || (!quiet && !std::exchange(told, true))) tell_user("unet-sockets: %s\n", opened.error().text.c_str());
  return -errno_of(opened.error());
}

void Runtime::reserve_interface() {
  if (endpoint_stack_ == nullptr) ni_.reserve();
}

// Asks again while an address is tentative.
const IpConfiguration* Runtime::configuration() {
  if (endpoint_stack_ == nullptr) return ni_.known();
  sockets::EndpointNetwork& network = endpoint_stack_->network();
  const auto& all = network.configuration().addresses;
  if (std::any_of(all.begin(), all.end(), [](const auto& each) { return each.tentative; })) static_cast<void>(network.refresh());
  return &network.configuration();
}

void Runtime::close_socket(File& file) {
  if (file.in_stack()) endpoint_stack_->timed_stack().close(table_.take_socket(file));
}

void Runtime::linger(File& file) {
  constexpr Nanoseconds kLook = 10 * kMillisecond;  // the acknowledgement of a FIN wakes no thread
  if (file.in_stack()) poll();
  const Nanoseconds time = file.in_stack() ? stack().linger_time(file.socket) : 0;
  if (time == 0) return;
  endpoint_stack_->shut_down(file.socket, SHUT_WR);
  const auto ended = [&]() -> int64_t { return file.in_stack() && sockets::is_ending(stack(), file.socket) ? -EAGAIN : 0; };
  if (ended() == 0) return;
  block(now() + time, false, [&](Nanoseconds until) { return wait_for(file, {}, std::min(until, now() + kLook)); }, ended);
}

void Runtime::reset_at_close(File& file) noexcept {
  if (file.in_stack()) stack().set_option(file.socket, sockets::Stack::Option::linger, 0);
}

void Runtime::reset(File& file) noexcept {
  reset_at_close(file);
  --file.holds;
  let_go(file);
}

void Runtime::let_go(Entry& entry) {
  if (entry.fds.empty() && entry.holds != 0 && proxies_ != nullptr) {  // arrivals are for other processes now
    if (entry.kind == Entry::Kind::socket) Reception::stop(static_cast<File&>(entry));
    poller_.kick_helper();
  }
  if (!entry.fds.empty() || entry.holds != 0) return;
  if (entry.kind == Entry::Kind::socket) {
    File& file = static_cast<File&>(entry);
    if (SocketProxies::has_other_owners(file)) return proxies().drain(file);
    EpollSet::forget(file);
    interface_loss_.forget(file);
    reception_.forget(file);
    if (!file.is_stream() && file.in_stack() && !file.origins.empty()) {
      Reception::return_unread(file);
      parents_.process();
    }
    if (!file.pair) ParentChannels::send_to_all(file, ParentMessage::Kind::close);
    ParentChannels::give_back(file);
    if (proxies_ != nullptr) proxies_->forget_closed(file);
    close_socket(file);
  }
  delete &entry;
}

int64_t Runtime::result_of_lost(File& file, bool sends) noexcept {
  if (!file.lost) return file.waits_back() ? -ENETDOWN : -EBADF;
  if (const int error = std::exchange(file.error, 0); error != 0) return -error;
  return sends ? -EPIPE : 0;
}

void Runtime::defer_error(File& file, int64_t error) noexcept {
  if (error >= 0 || error == -EAGAIN || error == -EINTR) return;
  if (file.in_stack()) stack().return_error(file.socket, static_cast<int>(-error));
  else if (file.lost && error != -EPIPE) file.error = static_cast<int>(-error);
}

uint32_t Runtime::events(const File& file) const noexcept {
  if (file.lost) return EPOLLIN | EPOLLOUT | EPOLLERR | EPOLLHUP | EPOLLRDHUP | EPOLLRDNORM | EPOLLWRNORM;
  const uint32_t handed = file.pending_accepts.empty() ? 0 : EPOLLIN | EPOLLRDNORM;
  if (!file.in_stack()) return handed;
  uint32_t events = stack().events(file.socket) | handed;
  if (file.receive_low_water > 1 && file.is_stream() && !file.listens) [[unlikely]] {
    const bool only_data = (events & (EPOLLIN | EPOLLRDHUP | EPOLLERR)) == EPOLLIN;
    if (only_data && is_below_low_water(file)) events &= ~static_cast<uint32_t>(EPOLLIN);
  }
  if ((events & EPOLLIN) != 0) events |= EPOLLRDNORM;
  if ((events & EPOLLOUT) != 0) events |= EPOLLWRNORM;
  return events;
}

uint32_t Runtime::events(const Entry& entry) const noexcept {
  if (entry.kind == Entry::Kind::socket) return events(static_cast<const File&>(entry));
  const bool ready = static_cast<const EpollSet&>(entry).is_ready([this](const Entry& each) { return events(each); });
  return ready ? EPOLLIN | EPOLLRDNORM : 0;
}

// Whether fewer bytes are there than SO_RCVLOWAT asks for. Half of the receive buffer is always enough, as in Linux.
bool Runtime::is_below_low_water(const File& file) const noexcept {
  sockets::Stack& stack = endpoint_stack_->stack();
  const auto room = static_cast<uint32_t>(stack.option(file.socket, sockets::Stack::Option::receive_buffer));
  const uint32_t urgent = stack.to_urgent(file.socket) == 0 ? 1 : 0;  // the urgent byte does not count
  return stack.queued(file.socket).receive - urgent < std::min(static_cast<uint32_t>(file.receive_low_water), room / 2);
}

File* Runtime::file(int fd) {
  File* const file = table_.file(fd);
  // Messages of other processes come first: a call on the kernel's sockets would take effect for all processes at once.
  if (file != nullptr && file->in_stack() && file->holds != 0 && !file->is_joined()) process_channels();
  if (file == nullptr || !file->inherited) return file;
  static_cast<void>(Adoption::adopt(*file));
  return table_.file(fd);
}

void Runtime::process_channels() {
  if (endpoint_stack_ != nullptr && proxies_ != nullptr && !proxies_->empty()) static_cast<void>(proxies_->process({}));
}

SocketProxies& Runtime::proxies() {
  if (proxies_ == nullptr) proxies_ = std::make_unique<SocketProxies>(poller_.helper_event());
  return *proxies_;
}

void Runtime::forget_duties() {
  interface_loss_.forget_all();
  reception_.forget_all();
  ni_.forget_reserve();
  if (proxies_ != nullptr) proxies_->forget();
  proxies_.reset();
}

void Runtime::end_stack(void (*end)(std::unique_ptr<sockets::EndpointStack>)) {
  ni_.remember(endpoint_stack_->network().configuration());
  table_.forget_sockets();
  poller_.detach();
  end(std::move(endpoint_stack_));
  ni_.close();
  own_descriptors_.update();
}

bool Runtime::poll(uint32_t local_messages) {
  if (!poller_.poll(now(), local_messages)) return false;
  dispatch();
  return true;
}

void Runtime::poll_all() {
  constexpr int kPollsMost = 64;
  for (int i = 0; i < kPollsMost; ++i) {
    const uint64_t before = poller_.arrivals();
    poll();
    if (poller_.arrivals() == before) return;
  }
}

void Runtime::notify(File& file) {
  EpollSet::notify_sets(file);
  for (Sleeper* each : file.sleepers) each->wake();
}

void Runtime::set_signals(File& file, int fd, bool on) {
  if (!on) return void(file.async_fd = -1);
  if (file.async_fd >= 0) return;
  file.async_fd = fd;
  file.signalled = file.in_stack() ? events(file) : File::kUnconnected;
  reception_.start(file);  // the program waits for its signals
}

void Runtime::notify_and_signal(File& file, bool came) {
  notify(file);
  if (file.async_fd < 0) [[likely]] return;
  const uint32_t now = events(file);
  const uint32_t what = (now & EPOLLIN) != 0 ? EPOLLIN : now & (EPOLLERR | EPOLLPRI);
  const uint32_t fresh = (now & ~file.signalled) | (came ? what : 0);
  file.signalled = now;
  if (!file.fds.empty()) tell_owner_ready(file.fd(), file.async_fd, fresh);
}

void Runtime::dispatch() {
  sockets::Change change;
  while (stack().next_change(change)) {
    File* const file = table_.by_socket(change.socket);
    if (file == nullptr) continue;
    if (change.urgent && !file->fds.empty()) [[unlikely]] tell_owner(file->fd(), SIGURG);  // before it wakes threads, as in Linux
    notify_and_signal(*file, change.came || change.urgent);
    if (file->wanted) [[unlikely]] proxies().handle_arrival(*file);
  }
}

}  // namespace unet::preload
