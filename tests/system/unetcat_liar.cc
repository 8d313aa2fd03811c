// unetcat_liar.cc - a peer of unetcat that breaks its protocol in one named way; tests/system/unetcat.py runs it.
//
// Usage: unetcat_liar NAME LIE      (silent, deserter: binds NAME instead; the one has no handler, the other ends at a hello)
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <unistd.h>
#include <vector>

#include "am/endpoint.h"
#include "apps/unetcat/halves.h"
#include "apps/unetcat/protocol.h"
#include "unet/context.h"

namespace {

using namespace unet;
using namespace unet::unetcat;

bool heard = false;

template <typename T>
T take(Result<T> result) {
  if (result) return std::move(*result);
  std::fprintf(stderr, "unetcat_liar: %s\n", result.error().text.c_str());
  std::exit(1);
}

class Liar {
 public:
  Liar(am::Endpoint& endpoint, std::string_view lie) : endpoint_(endpoint), lie_(lie) {}

  void data(uint64_t offset, size_t size) {
    const std::vector<std::byte> bytes(size);
    endpoint_.request_medium(0, kData, bytes, am::Words<uint64_t>(offset));
  }
  void end(uint64_t count, uint32_t crc = 0) { endpoint_.request(0, kEnd, count, crc); }
  void hello(uint32_t version) { endpoint_.request(0, kHello, version, uint32_t{0}); }

  void tell() {
    const bool all = lie_ == "strange";
    if (all || lie_ == "window") {
      for (uint64_t at = 0; at < 4 * kWindow; at += am::kMediumMax) data(at, am::kMediumMax);  // also more than a pipe holds
    }
    if (all || lie_ == "order") data(1, 1);
    if (all || lie_ == "late") end(0), data(0, 1);
    if (all || lie_ == "total") end(1);
    if (all || lie_ == "ends") end(0), end(0);
    if (all || lie_ == "grant") endpoint_.request(0, kGrant, 2 * kWindow + 1);
    if (all || lie_ == "done") endpoint_.request(0, kDone, uint64_t{0});
    if (lie_ == "hello") hello(kVersion);
    if (all || lie_ == "heard") endpoint_.request(0, kHeard, uint32_t{0}, uint32_t{0});
    if (lie_ == "digest") data(0, 1), end(1, 1);
    if (all) endpoint_.request(0, kAbort, uint32_t{99});
  }

 private:
  am::Endpoint& endpoint_;
  std::string_view lie_;
};

}  // namespace

int main(int, char** argv) {
  const std::string name = argv[1], lie = argv[2];
  Context context = take(Context::open({}, "unetcat_liar"));
  const auto endpoint = take(am::Endpoint::create(context, {.both_ways = true}));
  if (lie == "deserter") endpoint->set_handler(kHello, [](am::Token&, void*) { std::_Exit(0); }, nullptr);
  if (lie == "silent" || lie == "deserter") {
    if (!endpoint->bind(name)) return 1;
    std::puts("ready");
    std::fflush(stdout);
    for (;;) endpoint->wait();
  }
  endpoint->set_handler(kHeard, [](am::Token& token, void*) {
    heard = true;
    std::printf("refusal %u\n", token.argument(0));
  }, nullptr);
  for (const uint8_t each : {kData, kGrant, kEnd, kDone, kAbort}) endpoint->set_handler(each, [](am::Token&, void*) {}, nullptr);
  while (!endpoint->map(0, name)) usleep(10'000);
  Liar liar(*endpoint, lie);
  if (lie != "strange") {
    liar.hello(lie == "version" ? kVersion + 1 : kVersion);
    while (!heard) endpoint->wait(kMillisecond);
  }
  liar.tell();
  endpoint->flush(kSecond);
  if (lie == "strange" || lie == "version") return 0;
  while (endpoint->is_open(0)) endpoint->wait(kMillisecond);
  return 0;
}
