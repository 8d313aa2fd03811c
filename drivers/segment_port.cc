// segment_port.cc - passes bursts of frames between the kernel and the engine.
#include "drivers/segment_port.h"

#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>

namespace unet::drivers {
namespace {

constexpr uint32_t kFrames = 256;             // transmit buffers: more than an engine holds
constexpr uint32_t kArrivals = 96;            // receive buffers: a burst that the engine holds, one to fill, and some that a wrapper delays
constexpr uint32_t kPacketMax = 65535;
constexpr uint32_t kSegmentsMax = 65500;      // less than 64 KiB with Ethernet: the kernel cuts longer ones before the device sees them
constexpr uint32_t kShortBurst = 4;           // frames per burst, if frames are long
constexpr uint32_t kLong = 32 * 1024;         // more bytes per frame than this (of up to four frames) make the next burst short

uint32_t round_up(uint32_t bytes) noexcept { return (bytes + 63) / 64 * 64; }

iovec vector_of(std::span<const std::byte> bytes) noexcept {
  return {.iov_base = const_cast<std::byte*>(bytes.data()), .iov_len = bytes.size()};
}

DriverCapabilities with_segments(DriverCapabilities capabilities, bool segments, uint32_t pieces) noexcept {
  capabilities.external_payload = true;
  capabilities.external_pieces = pieces;
  capabilities.segments_max = segments ? kSegmentsMax : 0;
  capabilities.udp_segments = segments && SegmentPort::kernel_cuts_udp();
  return capabilities;
}

}  // namespace

bool SegmentPort::kernel_cuts_udp() noexcept {
  utsname system{};
  int major = 0, minor = 0;
  return ::uname(&system) == 0 && std::sscanf(system.release, "%d.%d", &major, &minor) == 2 && (major > 6 || (major == 6 && minor >= 2));
}

SegmentPort::SegmentPort(const DriverCapabilities& capabilities, int descriptor, bool segments)
    : capabilities_(with_segments(capabilities, segments, kExternalPieces)),
      descriptor_(descriptor),
      room_(kEthernetBytes + (segments ? kPacketMax : capabilities.mtu) + 1),
      receive_pool_(kArrivals, round_up(room_)),
      transmit_pool_(kFrames, round_up(capabilities.mtu + kEthernetBytes)) {}

SegmentPort::~SegmentPort() { ::close(descriptor_); }

// ---- arrivals

uint32_t SegmentPort::receive(std::span<ReceivedFrame> frames, Nanoseconds) noexcept {
  const auto wanted = static_cast<uint32_t>(std::min<size_t>(frames.size(), burst_));
  uint32_t ready = 0;
  for (; ready < wanted; ++ready) {
    if (empty_[ready] == nullptr && (empty_[ready] = receive_pool_.take()) == nullptr) break;
    transfers_[ready].pieces[0] = {.iov_base = &transfers_[ready].header, .iov_len = sizeof(VnetHeader)};
    transfers_[ready].pieces[1] = {.iov_base = empty_[ready], .iov_len = room_};
    transfers_[ready].count = 2;
  }
  if (ready == 0) return 0;  // frames wait in the kernel, which counts its drops
  const uint32_t came = read(std::span(transfers_).first(ready));
  uint32_t count = 0;
  uint64_t bytes = 0;
  for (uint32_t i = 0; i < came; ++i) {
    ReceivedFrame frame{.data = empty_[i], .length = transfers_[i].length - std::min<uint32_t>(transfers_[i].length, sizeof(VnetHeader)),
                        .handle = empty_[i]};
    bytes += frame.length;
    if (!accept(transfers_[i].header, transfers_[i].cut, empty_[i], frame)) continue;
    empty_[i] = nullptr;
    frames[count++] = frame;
  }
  // If the wire was empty, the next read asks for a single frame.
  burst_ = came == 0 ? 1 : bytes > uint64_t{kLong} * std::min(came, kShortBurst) ? kShortBurst : kBurst;
  return count;
}

bool SegmentPort::accept(const VnetHeader& header, bool cut, std::byte* data, ReceivedFrame& frame) noexcept {
  if (cut) return ++counters_.rx_oversize, false;
  if (frame.length < kEthernetBytes || !take_vnet_header(header, data, frame)) return ++counters_.rx_bad_header, false;
  // A segment may be longer than the MTU, because its header says how it is made of packets.
  if (frame.segment_size == 0 && frame.length > capabilities_.mtu + kEthernetBytes) return ++counters_.rx_oversize, false;
  ++counters_.rx_frames;
  counters_.rx_bytes += frame.length;
  if (frame.segment_size != 0) ++counters_.rx_segments;
  return true;
}

void SegmentPort::release(std::span<const ReceivedFrame> frames) noexcept { receive_pool_.give_back(frames); }

// ---- sends

uint32_t SegmentPort::allocate(std::span<TransmitFrame> frames) noexcept { return transmit_pool_.take(frames); }

uint32_t SegmentPort::transmit(std::span<TransmitFrame> frames, Nanoseconds now) noexcept {
  uint32_t done = 0;
  while (done < frames.size()) {
    const auto burst = frames.subspan(done, std::min<size_t>(frames.size() - done, kBurst));
    for (size_t i = 0; i < burst.size(); ++i) {
      const TransmitFrame& frame = burst[i];
      Transfer& transfer = transfers_[i];
      transfer.header = make_vnet_header(frame);
      transfer.pieces[0] = {.iov_base = &transfer.header, .iov_len = sizeof transfer.header};
      transfer.pieces[1] = {.iov_base = frame.data, .iov_len = frame.length};
      transfer.count = 2;
      if (frame.external_length == 0) continue;
      transfer.pieces[transfer.count++] = vector_of({frame.external, frame.external_length});
      for (const auto& piece : frame.further) transfer.pieces[transfer.count++] = vector_of(piece);
    }
    int taken = write(std::span(transfers_).first(burst.size()));
    if (taken < 0) {
      const int error = errno;
      const bool full = is_full(error);
      if (full && !(may_be_the_frame(error) && refusals_.give_up(now))) {
        ++counters_.tx_full;
        break;
      }
      if (!full) refusals_.gone();
      // The frame is lost, as on any wire.
      ++(full ? counters_.tx_refused : error == EMSGSIZE ? counters_.tx_oversize : counters_.tx_errors);
      taken = 1;
    } else {
      refusals_.taken(now);
      for (const TransmitFrame& frame : burst.first(static_cast<size_t>(taken))) {
        ++counters_.tx_frames;
        counters_.tx_bytes += frame.size();
        if (frame.offload.segment_size != 0) ++counters_.tx_segments;
      }
    }
    sent(burst.first(static_cast<size_t>(taken)));
    done += static_cast<uint32_t>(taken);
  }
  return done;
}

bool SegmentPort::may_be_the_frame(int error) noexcept { return error == ENOBUFS || error == ENOMEM; }

void SegmentPort::sent(std::span<TransmitFrame> frames) noexcept {
  for (const TransmitFrame& frame : frames) {
    if (frame.external != nullptr) --frame.completion->pending;
  }
  discard(frames);
}

void SegmentPort::discard(std::span<const TransmitFrame> frames) noexcept { transmit_pool_.give_back(frames); }

std::vector<DriverCounter> SegmentPort::counters() const {
  const Counters& c = counters_;
  return {{"rx_frames", c.rx_frames}, {"rx_bytes", c.rx_bytes}, {"rx_segments", c.rx_segments}, {"rx_bad_header", c.rx_bad_header},
          {"rx_oversize", c.rx_oversize}, {"rx_errors", c.rx_errors}, {"tx_frames", c.tx_frames}, {"tx_bytes", c.tx_bytes},
          {"tx_segments", c.tx_segments}, {"tx_oversize", c.tx_oversize}, {"tx_errors", c.tx_errors},
          {"tx_refused", c.tx_refused}, {"tx_full", c.tx_full}};
}

}  // namespace unet::drivers
