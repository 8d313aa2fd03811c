// xdp_port.cc - sets up an AF_XDP socket, and moves frames between its rings and the engine.
#include "drivers/xdp/xdp_port.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <ctime>
#include <utility>

#include "drivers/kernel_interface.h"
#include "unet/base/bytes.h"

namespace unet::drivers {
namespace {

constexpr uint32_t kQueue = 0;             // of the interface
constexpr uint32_t kChunks = 1024;         // for arriving frames: all of them fit into the receive ring
constexpr uint32_t kBuffers = 512;         // for frames to send: more than an engine holds
constexpr uint32_t kRing = 2048;           // of the other rings: the kernel says late what it has taken from the fill ring
constexpr uint32_t kJoined = 96;           // as many arriving frames of several pieces can be with the engine
constexpr uint32_t kHeadroom = 256;        // the kernel's own, before an arriving frame (XDP_PACKET_HEADROOM)
constexpr uint32_t kShort = 2048, kPage = 4096;  // sizes of a chunk
constexpr uint32_t kCallsMax = 8;          // system calls per burst; each sends up to 32 pieces
constexpr Nanoseconds kTryAgainAfter = kMillisecond;
constexpr int kOpenings = 20;              // attempts to open a busy queue: the kernel frees that of a closed socket 30 ms later
constexpr timespec kBetween{.tv_sec = 0, .tv_nsec = 10'000'000};
// Since Linux 6.6, newer than the headers.
constexpr uint16_t kPieces = 1 << 4;       // XDP_USE_SG
constexpr uint32_t kContinues = 1 << 0;    // XDP_PKT_CONTD

template <typename T>
bool set(int socket, int option, const T& value) noexcept {
  return ::setsockopt(socket, SOL_SOCKET, option, &value, sizeof value) == 0;
}

}  // namespace

XdpPort::Layout::Layout(uint32_t mtu) noexcept
    : chunk(mtu + kEthernetBytes + kHeadroom <= kShort ? kShort : kPage),
      buffer((mtu + kEthernetBytes + chunk - 1) / chunk * chunk),
      pieces(mtu + kEthernetBytes + kHeadroom > chunk) {}

size_t XdpPort::Layout::transmit_at() const noexcept { return size_t{chunk} * kChunks; }
size_t XdpPort::Layout::bytes() const noexcept { return transmit_at() + size_t{buffer} * kBuffers; }

Result<std::unique_ptr<XdpPort>> XdpPort::open(const XdpOptions& options) {
  for (int attempt = 1;; ++attempt) {
    auto port = open_now(options);
    if (port || port.error().code != Errc::already_exists || attempt == kOpenings) return port;
    ::nanosleep(&kBetween, nullptr);  // tidy: allow sleep because no engine drives the port yet
  }
}

Result<std::unique_ptr<XdpPort>> XdpPort::open_now(const XdpOptions& options) {
  const std::string port = "xdp:iface=" + options.interface;
  const Result<DriverCapabilities> capabilities = look_at_interface(port, options.interface, options.mtu);
  if (!capabilities) return tl::unexpected(capabilities.error());
  // The kernel and cards give frames of U-Net's own type to the first queue, and spread those of IP.
  if (const uint32_t queues = receive_queues(options.interface); options.all_types && queues > 1) {
    return fail(Errc::unavailable, port + ": frames of IP arrive at " + std::to_string(queues) +
                                       " queues, and this port has one: `ethtool -L " + options.interface + " combined 1`, or rx 1");
  }
  const Layout layout(capabilities->mtu);
  auto socket = make_socket(port, options, layout);
  if (!socket) return tl::unexpected(socket.error());
  auto program = attach_xdp_program({.port = port, .interface = options.interface, .station = capabilities->address,
                                     .all_types = options.all_types, .pieces = layout.pieces},
                                    xsk_socket__fd((*socket)->socket), kQueue);
  if (!program) return tl::unexpected(program.error());
  return std::unique_ptr<XdpPort>(new XdpPort(options, *capabilities, layout, std::move(*socket), std::move(*program)));
}

Result<std::unique_ptr<XdpPort::Socket>> XdpPort::make_socket(const std::string& port, const XdpOptions& options, const Layout& layout) {
  auto made = std::make_unique<Socket>();
  void* const memory = ::mmap(nullptr, layout.bytes(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return refuse_xdp(port, "mmap", errno);
  static_cast<void>(::madvise(memory, layout.bytes(), MADV_DONTFORK));  // a child process does not use it
  made->memory = static_cast<std::byte*>(memory);
  made->bytes = layout.bytes();
  const xsk_umem_config frames{.fill_size = kRing, .comp_size = kRing, .frame_size = layout.chunk, .frame_headroom = 0, .flags = 0};
  if (const int error = xsk_umem__create(&made->umem, memory, made->bytes, &made->fill, &made->completion, &frames); error != 0) {
    return refuse_xdp(port, "XDP_UMEM_REG", -error);
  }
  ::fcntl(xsk_umem__fd(made->umem), F_SETFD, FD_CLOEXEC);  // the same descriptor as the socket's
  // A card's driver may take its first chunks when the socket is bound.
  uint32_t at = 0;
  xsk_ring_prod__reserve(&made->fill, kChunks, &at);
  for (uint32_t i = 0; i < kChunks; ++i) *xsk_ring_prod__fill_addr(&made->fill, at + i) = uint64_t{layout.chunk} * i;
  xsk_ring_prod__submit(&made->fill, kChunks);
  xsk_socket_config how{};
  how.rx_size = kChunks;
  how.tx_size = kRing;
  how.libxdp_flags = XSK_LIBXDP_FLAGS__INHIBIT_PROG_LOAD;
  how.bind_flags = static_cast<uint16_t>(XDP_USE_NEED_WAKEUP | (layout.pieces ? kPieces : 0));
  const int error =
      xsk_socket__create(&made->socket, options.interface.c_str(), kQueue, made->umem, &made->receive, &made->transmit, &how);
  if (error == -EINVAL && layout.pieces) {
    return fail(Errc::unavailable, port + ": frames longer than a page need Linux 6.6: mtu=" +
                                       std::to_string(kPage - kHeadroom - kEthernetBytes) + " is the most without");
  }
  if (error != 0) return refuse_xdp(port, "bind", -error);
  const int fd = xsk_socket__fd(made->socket);
  constexpr int kYes = 1, kMicroseconds = 20;  // the time only matters for calls that wait, of which there are none
  if (options.busy_budget != 0 && !(set(fd, SO_PREFER_BUSY_POLL, kYes) && set(fd, SO_BUSY_POLL, kMicroseconds) &&
                                    set(fd, SO_BUSY_POLL_BUDGET, static_cast<int>(options.busy_budget)))) {
    return fail_errno((port + ": busy_budget=" + std::to_string(options.busy_budget)).c_str(), errno);
  }
  return made;
}

XdpPort::Socket::~Socket() {
  if (socket != nullptr) xsk_socket__delete(socket);
  if (umem != nullptr) xsk_umem__delete(umem);
  if (memory != nullptr) ::munmap(memory, bytes);
}

XdpPort::XdpPort(const XdpOptions& options, const DriverCapabilities& capabilities, const Layout& layout, std::unique_ptr<Socket> socket,
                 Descriptor program)
    : options_(options),
      capabilities_(capabilities),
      layout_(layout),
      socket_(std::move(socket)),
      program_(std::move(program)),
      link_(LinkWatch::open({.port = "xdp:iface=" + options.interface, .interface = options.interface, .station = capabilities.address,
                             .mtu = capabilities.mtu, .returns = false})),
      transmit_pool_(socket_->memory + layout.transmit_at(), kBuffers, layout.buffer),
      in_kernel_(kBuffers),
      joined_pool_(layout.pieces ? kJoined : 1, capabilities.mtu + kEthernetBytes) {
  if (!options.all_types || !link_) return;
  groups_ = Descriptor(::socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0));
  static_cast<void>(link_->bind(groups_.get(), 0, true));
}

// ---- arrivals

uint32_t XdpPort::receive(std::span<ReceivedFrame> frames, Nanoseconds) noexcept {
  xsk_ring_cons& ring = socket_->receive;
  const auto wanted = static_cast<uint32_t>(frames.size());
  uint32_t at = 0, count = 0;
  uint32_t came = xsk_ring_cons__peek(&ring, wanted, &at);
  if (came == 0) {
    if (options_.busy_budget == 0 && !xsk_ring_prod__needs_wakeup(&socket_->fill)) return 0;
    static_cast<void>(::recvfrom(wait_descriptor(), nullptr, 0, MSG_DONTWAIT, nullptr, nullptr));
    came = xsk_ring_cons__peek(&ring, wanted, &at);
    if (came == 0) return 0;
  }
  for (uint32_t i = 0; i < came; ++i) {
    const xdp_desc piece = *xsk_ring_cons__rx_desc(&ring, at + i);
    std::byte* const data = socket_->memory + piece.addr;
    __builtin_prefetch(data);
    ReceivedFrame frame{.data = data, .length = piece.len, .handle = data};
    const bool is_whole = joined_bytes_ == 0 && (piece.options & kContinues) == 0;
    if (__builtin_expect(!is_whole, 0) && !join(piece, frame)) continue;
    if (frame.length > capabilities_.mtu + kEthernetBytes) {
      ++rx_oversize_;
      release({&frame, 1});
      continue;
    }
    ++rx_frames_;
    rx_bytes_ += frame.length;
    frames[count++] = frame;
  }
  xsk_ring_cons__release(&ring, came);
  return count;
}

// Adds a piece to the unfinished frame. Returns true with the last piece, unless the frame is lost; `frame` is then whole.
bool XdpPort::join(const xdp_desc& piece, ReceivedFrame& frame) noexcept {
  const uint32_t room = capabilities_.mtu + kEthernetBytes;
  if (joined_bytes_ == 0) {
    joined_ = joined_pool_.take();
    if (joined_ == nullptr) ++rx_no_buffer_;
  }
  if (joined_ != nullptr && piece.len > room - joined_bytes_) {
    ++rx_oversize_;
    joined_pool_.give_back(std::exchange(joined_, nullptr));
  }
  if (joined_ != nullptr) copy_bytes(joined_ + joined_bytes_, frame.data, piece.len);
  joined_bytes_ += piece.len;
  fill(frame.data);
  xsk_ring_prod__submit(&socket_->fill, 1);
  if ((piece.options & kContinues) != 0) return false;
  frame = {.data = joined_, .length = std::exchange(joined_bytes_, 0), .handle = joined_};
  if (joined_ != nullptr) ++rx_joined_;
  return std::exchange(joined_, nullptr) != nullptr;
}

void XdpPort::release(std::span<const ReceivedFrame> frames) noexcept {
  uint32_t filled = 0;
  for (const ReceivedFrame& frame : frames) {
    auto* const data = static_cast<std::byte*>(frame.handle);
    const auto at = reinterpret_cast<uintptr_t>(data) - reinterpret_cast<uintptr_t>(socket_->memory);
    if (__builtin_expect(at < layout_.transmit_at(), 1)) fill(data), ++filled;
    else joined_pool_.give_back(data);
  }
  xsk_ring_prod__submit(&socket_->fill, filled);
}

// Writes the chunk of `data` into the fill ring, which has room for all chunks. The caller submits it.
void XdpPort::fill(const std::byte* data) noexcept {
  uint32_t place = 0;
  xsk_ring_prod__reserve(&socket_->fill, 1, &place);
  *xsk_ring_prod__fill_addr(&socket_->fill, place) = static_cast<uint64_t>(data - socket_->memory) & ~uint64_t{layout_.chunk - 1};
}

// ---- sends

uint32_t XdpPort::allocate(std::span<TransmitFrame> frames) noexcept {
  take_completed();
  return transmit_pool_.take(frames);
}

void XdpPort::take_completed() noexcept {
  uint32_t at = 0;
  const uint32_t count = xsk_ring_cons__peek(&socket_->completion, kRing, &at);
  if (count == 0) return;
  for (uint32_t i = 0; i < count; ++i) {
    const uint64_t address = *xsk_ring_cons__comp_addr(&socket_->completion, at + i);
    const auto buffer = static_cast<uint32_t>((address - layout_.transmit_at()) / layout_.buffer);
    if (--in_kernel_[buffer] != 0) continue;
    transmit_pool_.give_back(socket_->memory + layout_.transmit_at() + size_t{buffer} * layout_.buffer);
  }
  xsk_ring_cons__release(&socket_->completion, count);
}

uint32_t XdpPort::transmit(std::span<TransmitFrame> frames, Nanoseconds) noexcept {
  xsk_ring_prod& ring = socket_->transmit;
  uint32_t done = 0, submitted = 0;
  for (; done < frames.size(); ++done) {
    const TransmitFrame& frame = frames[done];
    const uint32_t pieces = frame.length <= layout_.chunk ? 1 : (frame.length + layout_.chunk - 1) / layout_.chunk;
    uint32_t at = 0;
    if (xsk_ring_prod__reserve(&ring, pieces, &at) == 0) break;
    const auto address = static_cast<uint64_t>(frame.data - socket_->memory);
    for (uint32_t i = 0; i < pieces; ++i) {
      const bool is_last = i + 1 == pieces;
      *xsk_ring_prod__tx_desc(&ring, at + i) = {.addr = address + uint64_t{layout_.chunk} * i,
                                                .len = is_last ? frame.length - layout_.chunk * i : layout_.chunk,
                                                .options = is_last ? 0 : kContinues};
    }
    in_kernel_[(address - layout_.transmit_at()) / layout_.buffer] = static_cast<uint8_t>(pieces);
    submitted += pieces;
    ++tx_frames_;
    tx_bytes_ += frame.length;
  }
  if (submitted != 0) xsk_ring_prod__submit(&ring, submitted);
  wake_kernel();
  return done;
}

bool XdpPort::has_unsent() const noexcept {
  return std::atomic_ref(*socket_->transmit.consumer).load(std::memory_order_relaxed) != socket_->transmit.cached_prod;
}

// Without zero-copy this call sends. It stops early if the interface has no room or is down: poll() goes on.
void XdpPort::wake_kernel() noexcept {
  for (uint32_t calls = 0; calls < kCallsMax && has_unsent(); ++calls) {
    if (options_.busy_budget == 0 && !xsk_ring_prod__needs_wakeup(&socket_->transmit)) return;
    if (::sendto(wait_descriptor(), nullptr, 0, MSG_DONTWAIT, nullptr, 0) >= 0) return;
    is_gone_ = errno == ENXIO;
    if (errno == EBUSY) ++tx_dropped_;  // by the interface
    else if (errno != EAGAIN && errno != EINTR) return;
  }
}

void XdpPort::poll(Nanoseconds now) noexcept {
  polled_at_ = now;
  if (__builtin_expect(has_unsent(), 0)) wake_kernel();
}

Nanoseconds XdpPort::next_event() const noexcept { return has_unsent() && !is_gone_ ? polled_at_ + kTryAgainAfter : ~Nanoseconds{0}; }

// ---- state

std::vector<DriverCounter> XdpPort::counters() const {
  xdp_statistics kernel{};
  socklen_t length = sizeof kernel;
  static_cast<void>(::getsockopt(wait_descriptor(), SOL_XDP, XDP_STATISTICS, &kernel, &length));
  return {{"rx_frames", rx_frames_}, {"rx_bytes", rx_bytes_}, {"rx_joined", rx_joined_}, {"rx_oversize", rx_oversize_},
          {"rx_no_buffer", rx_no_buffer_}, {"rx_missed", kernel.rx_dropped + kernel.rx_ring_full},
          {"rx_no_chunk", kernel.rx_fill_ring_empty_descs}, {"tx_frames", tx_frames_}, {"tx_bytes", tx_bytes_},
          {"tx_dropped", tx_dropped_}, {"tx_invalid", kernel.tx_invalid_descs}};
}

std::string XdpPort::description() const {
  xdp_options how{};
  socklen_t length = sizeof how;
  static_cast<void>(::getsockopt(wait_descriptor(), SOL_XDP, XDP_OPTIONS, &how, &length));
  const bool zero_copy = (how.flags & XDP_OPTIONS_ZEROCOPY) != 0;
  return "xdp:iface=" + options_.interface + " " + mac_text(capabilities_.address).data() + " mtu " + std::to_string(capabilities_.mtu) +
         (zero_copy ? ", zero-copy" : ", by copies");
}

}  // namespace unet::drivers
