// own_channels.h - the channels of an endpoint with queues of its own: local channels, and those through the NI.
//
// Endpoint calls this class directly on the data path: no call there is virtual, and the frequent ones are inline. A carrier of emulated
// endpoints is such an endpoint, so Emulated uses this class too.
#pragma once

#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "unet/base/sleep_pace.h"
#include "unet/channel_set.h"
#include "unet/embedded_ni.h"
#include "unet/epoll_set.h"
#include "unet/local_poller.h"
#include "unet/ni_queues.h"

struct epoll_event;

namespace unet {

class Connection;

class OwnChannels final : public ChannelSet {
 public:
  struct State : ChannelTraits {
    uint32_t longest = kMessageMax;  // maximum bytes of a message
    bool mapped_region = false;
    std::unique_ptr<LocalChannel> local;
    LocalChannel* open_local = nullptr;  // `local`, while sends are possible
  };

  // `endpoint`: its id at the NI. Without `queues` this set stays empty: the endpoint is emulated.
  OwnChannels(Connection& connection, uint32_t endpoint, std::unique_ptr<NiQueues> queues) noexcept;

  // ---- sending

  // Whether this is the number of a channel, or of one that was closed.
  bool knows(Channel channel) const noexcept { return static_cast<uint32_t>(channel) < channels_.size(); }

  SendOutcome send(Channel channel, Bytes data, bool more) noexcept override;
  // Sends on a channel of this set that is not an open local one.
  SendOutcome send_ni(const State& to, Channel channel, Bytes data, bool more) noexcept;
  MutableBytes reserve(Channel channel, uint32_t length) noexcept override;
  SendOutcome post(Channel channel, uint32_t length, bool more) noexcept override;
  // See LayerEndpoint.
  SendOutcome post(Channel channel, uint32_t length, std::span<const Bytes> pieces) noexcept;
  SendOutcome put(Channel channel, uint64_t region_offset, Bytes data, bool notify, bool more) noexcept override;

  // ---- receiving

  // Receives the next message of the local channel that delivered last. False says nothing about other channels.
  bool receive_hot(Message& message) noexcept { return locals_.receive_hot(message); }
  // Receives a message that has arrived through the embedded NI, or lets its engine fetch more. A burst per received message would overrun
  // the receive queue. Frames left on the wire slow down their sender instead.
  bool receive_or_fetch(Message& message) noexcept;
  bool receive(Message& message) noexcept override {
    const bool was_empty = std::exchange(was_empty_, false) && !locals_.has_delivered();
    locals_.renew_budget();
    // The NI's queue and the local channels alternate in being checked first.
    ni_first_ = !ni_first_ || locals_.empty();
    if (ni_first_ && queues_->receive(message)) return true;
    if (locals_.receive(message)) return true;
    if (!ni_first_ && queues_->receive(message)) return true;
    queues_->flush_credits();
    // An empty poll pauses. A core that reads a line without a break delays the store that it waits for: the pause shortens a round trip
    // from 120 ns to 87 ns (docs/ARCHITECTURE.md, "Pause in an empty poll"). A turn of an embedded NI is break enough. The first empty poll
    // after a message does not pause: the program may only have checked for a second message before it answers the first one.
    was_empty_ = true;
    if (was_empty && !embedded_) spin_pause();
    return false;
  }
  void release(const Message& message) noexcept override;
  bool has_message() const noexcept override;
  bool has_room(Channel channel) noexcept override;
  void flush_credits() noexcept override;
  void linger() noexcept override;

  // ---- channels

  State* find(Channel channel) noexcept { return knows(channel) ? &channels_[static_cast<uint32_t>(channel)] : nullptr; }
  // The local channel of this number, or nullptr.
  LocalChannel* local(Channel channel) const noexcept {
    return __builtin_expect(knows(channel), 1) ? channels_[static_cast<uint32_t>(channel)].local.get() : nullptr;
  }
  // The local channel of this number if sends are possible, or nullptr.
  LocalChannel* open_local(Channel channel) const noexcept {
    return __builtin_expect(knows(channel), 1) ? channels_[static_cast<uint32_t>(channel)].open_local : nullptr;
  }
  ChannelTraits traits(Channel channel) const noexcept override {
    if (!knows(channel)) return {};
    return channels_[static_cast<uint32_t>(channel)];
  }
  bool has_locals() const noexcept override { return !locals_.empty(); }
  std::vector<Channel> ni_channels() const override;
  // Makes room for all channels: from then on no State moves.
  void reserve_numbers() { channels_.reserve(kChannelsPerEndpointMax); }
  Result<Channel> adopt(const control::ChannelInfo& info, std::vector<Descriptor> descriptors) override;
  bool end(Channel channel) noexcept override;
  bool forget(Channel channel) noexcept override;
  // Forgets a channel at once, with messages that the NI has not taken.
  void clear(State& state) noexcept;
  Result<MutableBytes> expose(uint64_t bytes) override;
  Result<uint64_t> map_peer_region(Channel channel) override;
  // Maps the region of a local channel's peer. `endpoint`: the owner of the channel.
  Result<uint64_t> map_region(State& state, Channel channel, uint32_t endpoint);

  // ---- sleeping

  bool sleep(Endpoint& endpoint, Nanoseconds timeout, Refused refused) noexcept override;
  Result<int> descriptor() override;
  bool arm(Endpoint& endpoint, Refused refused) noexcept override;
  // The steps of a sleep, also for a carrier. After announce() all senders wake this side, until end_announcement().
  void announce(Refused refused) noexcept;
  void end_announcement() noexcept;
  EpollSet& epoll() noexcept { return epoll_; }
  // Whether the service may have sent a packet. It counts a packet only after sending it, so an edge is more reliable than the count.
  bool from_service(std::span<const epoll_event> edges) const noexcept;

  Counters counters() const override;
  static void add_local_counters(Counters& to, const LocalCounters& sum);

  EmbeddedNi& embedded() noexcept { return embedded_; }
  const EmbeddedNi& embedded() const noexcept { return embedded_; }
  NiQueues* queues() const noexcept { return queues_.get(); }  // nullptr: the endpoint is emulated

 private:
  SendOutcome after_ni_send(SendOutcome outcome, bool more) noexcept;
  Status make_descriptor();

  // Used on every call
  LocalPoller locals_;
  std::vector<State> channels_;  // by channel number
  std::unique_ptr<NiQueues> queues_;
  EmbeddedNi embedded_;
  bool ni_first_ = false;
  bool was_empty_ = false;  // the last receive() found nothing

  Connection* connection_;
  uint32_t endpoint_;
  Mapping region_;
  EpollSet epoll_;   // opened on first use
  Descriptor wake_;  // written by the NI
  SleepPace sleep_pace_;
};

}  // namespace unet
