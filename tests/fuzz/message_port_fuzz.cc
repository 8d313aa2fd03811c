// message_port_fuzz.cc - any bytes as records of message ports, from two peers, beside a program that uses its rights: memory stays within
// its bound, and nothing is left when the peers are gone.
#include "am/rpc/port/port_router.h"
#include "unet/base/check.h"

using namespace unet;
using namespace unet::rpc;

namespace {

struct Carrier : PortCarrier {
  PeerId reach(std::string_view space) override { return space.empty() ? kNoPeer : static_cast<PeerId>(space[0]) % 2; }
  std::string_view host_of(PeerId peer) const override { return peer == 0 ? std::string_view() : std::string_view("host"); }
};

}  // namespace

// Each step has a byte for the peer and for calls of the program, a byte with the length of a record, and the record.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Carrier carrier;
  const PortOptions options{.queue_limit = 4, .message_max = 1000, .memory = 10'000, .ports_max = 8, .rights_max = 60, .senders_max = 10,
                            .peer_rights_max = 20, .grace = 100};
  PortRouter router(carrier, "fuzz", options, 1);
  std::vector<uint32_t> ports{router.make_port(), router.make_port()}, rights{router.look_up("a", "port"), router.look_up("b", "port")};
  UNET_CHECK(router.publish("port", router.make_send_right(ports[0])) == Published::yes);
  Nanoseconds now = 0;
  for (size_t at = 0; at + 2 <= size;) {
    const uint8_t step = data[at];
    const size_t length = std::min<size_t>(data[at + 1], size - at - 2);
    const PeerId peer = step & 1;
    if (const auto record = decode_record(as_bytes(data + at + 2, length))) {
      std::vector<std::byte> again(head_size(*record) + record->body.size());
      UNET_CHECK(encode_record(*record, again.data()) == again.size() && again.size() == length);
      router.handle(peer, *record);
    }
    at += 2 + length;
    const Given given{ports[(step >> 1) % ports.size()], true};
    if ((step & 0x08) != 0) router.send(rights[step % rights.size()], std::vector<std::byte>(step), {&given, step % size_t{2}});
    if ((step & 0x10) != 0) {
      if (const auto got = router.receive(ports[step % ports.size()])) {
        for (const Given& each : got->rights) (each.receive ? ports : rights).push_back(each.number);
      }
    }
    if (step >= 0xF8) router.peer_lost(peer);
    router.poll(now += step, (step & 0x20) != 0);
    Record record;
    while ((step & 0x40) != 0 && router.take(peer, record)) UNET_CHECK(head_size(record) + record.body.size() <= kRecordMax);
    UNET_CHECK(router.memory() <= options.memory + 8 * 1000 && router.rights() <= 60 && router.ports() <= 8);
  }
  for (const uint32_t each : rights) router.close(each);
  for (const PeerId peer : {0u, 1u}) router.peer_lost(peer);
  router.unpublish("port");
  for (const uint32_t each : ports) router.destroy_port(each);
  router.poll(now + 1000, true);
  UNET_CHECK(router.rights() == 0 && router.ports() == 0 && router.attachments() == 0 && router.transits() == 0 && router.memory() == 0);
  return 0;
}
