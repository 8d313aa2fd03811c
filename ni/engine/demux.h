// demux.h - sorts arriving frames: a message, a fragment, a put, a signal, or a named drop.
#pragma once

#include <cstdint>
#include <span>

#include "ni/engine/delivery.h"
#include "ni/engine/ip_datapath.h"
#include "ni/engine/link.h"
#include "ni/engine/mailbox.h"
#include "ni/engine/ni_counters.h"
#include "ni/engine/port.h"
#include "ni/engine/reassembly.h"
#include "ni/engine/tag_table.h"

namespace unet::engine {

class Demux {
 public:
  // `links`: nullptr for a single engine.
  Demux(const TagTable& tags, Delivery& delivery, Reassembly& reassembly, NiCounters& counters, EventMailbox& events,
        Links* links = nullptr) noexcept
      : tags_(tags), delivery_(delivery), reassembly_(reassembly), counters_(counters), events_(events), links_(links) {}

  // For frames with Ethernet types of IP, from ports that have IP.
  void set_ip(IpDatapath& ip) noexcept { ip_ = &ip; }

  // A burst from a port; the caller still owns the frames.
  void burst(const Port& port, uint32_t port_index, std::span<const ReceivedFrame> frames, Nanoseconds now) noexcept;

  // The burst has a frame of ours with an unknown tag.
  bool has_unknown_tag(std::span<const ReceivedFrame> frames) const noexcept;

  // True once after a burst put signals into the event mailbox.
  bool take_signalled() noexcept {
    const bool signalled = signalled_;
    signalled_ = false;
    return signalled;
  }

 private:
  void frame(const Port& port, uint32_t port_index, const ReceivedFrame& frame, Nanoseconds now) noexcept;
  void stray(const Port& port, uint32_t port_index, const ReceivedFrame& frame, const TagEntry& entry, Tag tag) noexcept;
  void signal(uint32_t port_index, const FrameView& view) noexcept;
  void whole_message(const TagEntry& entry, const FrameView& view) noexcept;
  void fragment(const TagEntry& entry, const FrameView& view, Nanoseconds now) noexcept;
  void put_fragment(const TagEntry& entry, const FrameView& view) noexcept;
  Reassembling* begin(const TagEntry& entry, const FrameView& view, Nanoseconds now) noexcept;
  void complete(const TagEntry& entry, Reassembling& message) noexcept;

  const TagTable& tags_;
  Delivery& delivery_;
  Reassembly& reassembly_;
  NiCounters& counters_;
  EventMailbox& events_;
  Links* const links_;
  IpDatapath* ip_ = nullptr;
  bool signalled_ = false;
};

}  // namespace unet::engine
