// test_liar.h - a peer that says to a side of the provider what a test wants, and hears the answers; used by tests of trust.
#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <string>
#include <vector>

#include "am/endpoint.h"
#include "fabric/peers.h"
#include "fabric/protocol.h"
#include "fabric/shared_copy.h"
#include "fabric/slots.h"
#include "fabric/test_side.h"
#include "unet/mapping.h"
#include "unet/context.h"

namespace unet::fabric {

// An endpoint of Active Messages that has said hello to a side, and hears what that answers.
struct Liar {
  Liar() {
    endpoint = std::move(*am::Endpoint::create(context, {.both_ways = true}));
    for (uint8_t handler = 1; handler < heard.size(); ++handler) {
      endpoint->set_handler(handler, [](am::Token& token, void* to) {
        auto& list = *static_cast<std::vector<std::vector<uint32_t>>*>(to);
        list.emplace_back(token.arguments().begin(), token.arguments().end());
      }, &heard[handler]);
    }
    must(endpoint->bind("liar").has_value(), "bind");
    const std::string name = side.name();
    must(endpoint->start_map(0, name.substr(0, name.find('@'))).has_value(), "start_map");
  }
  void poll() {
    fi_cq_read(side.queue, nullptr, 0);
    endpoint->poll();
  }
  void settle() {
    for (int i = 0; i < 300; ++i) poll();
  }
  void say(uint8_t handler, std::vector<uint32_t> words, std::string payload = {}) {
    while (endpoint->request_now(0, handler, as_bytes(payload.data(), payload.size()), words) == am::Outcome::not_sent) poll();
    settle();
  }
  void greet(uint32_t version = kProtocolVersion, uint64_t process = 0) {
    greet(version, {.process = process, .address = 1, .secret = {}, .copies = -1});
  }
  void greet(uint32_t version, const Identity& identity) {
    say(Handlers::kHello, {version}, {reinterpret_cast<const char*>(&identity), sizeof identity});
  }
  // Says hello as this process, so that bytes are copied from it. `copies`: see Identity.
  void greet_as_self(int64_t copies) {
    static constexpr uint64_t kSecret[2] = {12, 34};
    greet(kProtocolVersion, {.process = static_cast<uint64_t>(::getpid()), .address = reinterpret_cast<uintptr_t>(kSecret),
                             .secret = {kSecret[0], kSecret[1]}, .copies = copies});
  }
  // Its number in the address vector of the side.
  fi_addr_t number() {
    fi_addr_t number = FI_ADDR_NOTAVAIL;
    const std::string name = "unet://" + std::string(side.info->domain_attr->name) + "/liar";
    must(fi_av_insert(side.vector, name.c_str(), 1, &number, 0, nullptr) == 1, "fi_av_insert");
    return number;
  }
  bool has_completion() {
    fi_cq_tagged_entry entry{};
    return fi_cq_read(side.queue, &entry, 1) == 1;
  }
  TestNi ni;
  Context context = *Context::open();
  Side side;
  std::unique_ptr<am::Endpoint> endpoint;
  std::array<std::vector<std::vector<uint32_t>>, Handlers::kShare + 1> heard;
};

// Memory for claims, which the liar offers to the side.
struct Claims {
  Claims() : memory(::memfd_create("claims", MFD_CLOEXEC | MFD_ALLOW_SEALING)) {
    must(::ftruncate(memory.get(), 2 * SharedCopy::kSlots * sizeof(SharedCopy)) == 0, "ftruncate");
    must(::fcntl(memory.get(), F_ADD_SEALS, F_SEAL_SHRINK) == 0, "fcntl");
    mapping = std::move(*Mapping::map(memory.get(), 2 * SharedCopy::kSlots * sizeof(SharedCopy)));
  }
  // The copy of the side that has a token.
  SharedCopy& of(uint32_t token) {
    return reinterpret_cast<SharedCopy*>(mapping.data())[SharedCopy::kSlots + token % Slots<int>::kMost];
  }
  // The copy of the liar that has a token.
  SharedCopy& of_liar(uint32_t token) { return reinterpret_cast<SharedCopy*>(mapping.data())[token % Slots<int>::kMost]; }
  Descriptor memory;
  Mapping mapping;
};

}  // namespace unet::fabric
