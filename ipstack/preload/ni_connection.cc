// ni_connection.cc - opens a stack over the network interface.
#include "ipstack/preload/ni_connection.h"

#include <fcntl.h>

#include <algorithm>
#include <ctime>
#include <new>
#include <utility>

#include "ipstack/preload/own_descriptors.h"
#include "ipstack/preload/real.h"

namespace unet::preload {
namespace {

// Waits until the interface may use its addresses: a new one first asks whether another host has them. This is no wait by Runtime::block(),
// as there is no stack yet that could be polled, and other threads need the stack, too.
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

// The setting of the kernel's sockets in this network namespace (net.ipv4.tcp_ecn).
tcp::Ecn ecn_of_system() noexcept {
  char mode = '2';
  if (const int fd = ::open("/proc/sys/net/ipv4/tcp_ecn", O_RDONLY | O_CLOEXEC); fd >= 0) {
    if (real().read(fd, &mode, 1) != 1) mode = '2';
    real().close(fd);
  }
  // 3 asks for accurate ECN (RFC 9768), which falls back on the classic one. 4 and 5 accept accurate ECN; 4 asks for the classic one.
  return mode == '0' ? tcp::Ecn::off : mode == '1' || mode == '3' || mode == '4' ? tcp::Ecn::on : tcp::Ecn::passive;
}

}  // namespace

Result<NiConnection::Opened> NiConnection::try_open(const Clock& clock) {
  auto context = reserve_ && reserve_->alive() ? Result<Context>(*reserve_) : Context::open(name_, {}, kFirstDescriptor);
  if (!context) return tl::unexpected(context.error());
  sockets::SocketsOptions options;
  options.clock = clock;
  options.stack.tcp.ecn = ecn_of_system();
  auto network = sockets::EndpointNetwork::open(*context, options.network);
  if (!network) return tl::unexpected(network.error());
  auto stack = std::make_unique<sockets::EndpointStack>(std::move(*network), options);
  const auto descriptor = stack->network().descriptor();
  if (!descriptor) return tl::unexpected(descriptor.error());
  await_addresses(stack->network());
  context_ = std::move(*context);
  return Opened{std::move(stack), *descriptor};
}

Result<NiConnection::Opened> NiConnection::open(const Clock& clock) {
  try {
    return try_open(clock);
  } catch (const std::bad_alloc&) {
    return fail(Errc::out_of_memory, "no memory for a stack");
  }
}

void NiConnection::reserve() {
  if (reserve_ || is_embedded()) return;
  if (auto context = Context::open(name_, {}, kFirstDescriptor)) reserve_ = std::move(*context);
}

}  // namespace unet::preload
