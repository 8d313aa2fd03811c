// channel_set.h - what an endpoint asks of its channels; OwnChannels and Emulated implement it, Endpoint calls it.
//
// An endpoint with queues of its own has OwnChannels; an emulated one has Emulated, which uses the OwnChannels of its carrier. Functions
// with the names of Endpoint's work like those.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "unet/base/result.h"
#include "unet/base/time.h"
#include "unet/control.h"
#include "unet/mapping.h"
#include "unet/message.h"

namespace unet {

class Endpoint;

struct ChannelTraits {
  control::ChannelKind kind = control::ChannelKind::none;
  bool open = false;  // sends are possible
  bool same_user = false;
  int peer_pid = -1;
  bool over_wire = false;
};

class ChannelSet {
 public:
  using Counters = std::vector<std::pair<std::string_view, uint64_t>>;
  // A channel that refused a send, and must have room again; none: the caller does not wait for room.
  using Refused = std::optional<Channel>;

  virtual ~ChannelSet() = default;

  // ---- messages

  virtual SendOutcome send(Channel channel, Bytes data, bool more) noexcept = 0;
  virtual MutableBytes reserve(Channel channel, uint32_t length) noexcept = 0;
  virtual SendOutcome post(Channel channel, uint32_t length, bool more) noexcept = 0;
  virtual SendOutcome put(Channel channel, uint64_t region_offset, Bytes data, bool notify, bool more) noexcept = 0;
  virtual bool receive(Message& message) noexcept = 0;
  virtual void release(const Message& message) noexcept = 0;
  virtual bool has_message() const noexcept = 0;
  // A closed channel counts as having room, so that its sender tries again and learns of the close.
  virtual bool has_room(Channel channel) noexcept = 0;
  // Returns released memory to the senders now.
  virtual void flush_credits() noexcept = 0;
  // Waits until the NI has taken all sent messages, at most Endpoint::kLinger. The NI drops messages in the send queue of a closed channel.
  virtual void linger() noexcept = 0;

  // ---- channels

  // Returns the default values if there is no such channel.
  virtual ChannelTraits traits(Channel channel) const noexcept = 0;
  virtual bool has_locals() const noexcept = 0;
  virtual std::vector<Channel> ni_channels() const = 0;
  // Announces that `asked` channels are requested. Until opened(), messages of a channel may come before the answer that opens it.
  virtual void opening(uint64_t /*asked*/) noexcept {}
  virtual void opened() noexcept {}
  // Adds a channel that the service has opened.
  virtual Result<Channel> adopt(const control::ChannelInfo& info, std::vector<Descriptor> descriptors) = 0;
  // Ends sending: the service, or the end of the NI, closed the channel. Returns false if it had ended before.
  virtual bool end(Channel channel) noexcept = 0;
  // The program closes a channel. Sent messages leave first. Returns false if there is no such channel.
  virtual bool forget(Channel channel) noexcept = 0;
  // The endpoint ends: its id may belong to another one as soon as the service has destroyed it.
  virtual void forget_all() noexcept {}
  virtual Result<MutableBytes> expose(uint64_t bytes) = 0;
  virtual Result<uint64_t> map_peer_region(Channel channel) = 0;

  // ---- sleeping; `endpoint` is the one that has these channels

  // Sleeps once, until there may be something. Returns true if a signal ended the sleep.
  virtual bool sleep(Endpoint& endpoint, Nanoseconds timeout, Refused refused) noexcept = 0;
  virtual Result<int> descriptor() = 0;
  virtual bool arm(Endpoint& endpoint, Refused refused) noexcept = 0;

  virtual Counters counters() const = 0;
};

}  // namespace unet
