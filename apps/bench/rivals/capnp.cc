// capnp.cc - Cap'n Proto's RPC: a server with an event loop in a thread, and a client with one in its caller's.
#include <calls.capnp.h>
#include <capnp/ez-rpc.h>

#include <condition_variable>
#include <cstring>
#include <mutex>
#include <string>
#include <thread>

#include "apps/bench/rivals/rival.h"

namespace unet::bench {

namespace {

using capnp_calls::Calls;

// The default refuses messages of a few arguments of 8 MiB.
const capnp::ReaderOptions kLargeMessages{.traversalLimitInWords = uint64_t{1} << 40, .nestingLimit = 64};

class CallsServer final : public Calls::Server {
 protected:
  kj::Promise<void> nothing(NothingContext) override { return kj::READY_NOW; }
  kj::Promise<void> add(AddContext context) override {
    const auto words = context.getParams();
    context.getResults().setSum(words.getLeft() + words.getRight());
    return kj::READY_NOW;
  }
  kj::Promise<void> takeIn(TakeInContext) override { return kj::READY_NOW; }
  kj::Promise<void> inOut(InOutContext context) override {
    context.getResults().setContent(context.getParams().getContent());
    return kj::READY_NOW;
  }
};

// Runs `work`, which may throw.
template <typename Work>
bool succeeds(Work work) {
  return kj::runCatchingExceptions(work) == nullptr;
}

// What serve() and its thread share.
struct CapnpStart {
  std::mutex mutex;
  std::condition_variable changed;
  bool is_over = false, listens = false;
};

void finish(CapnpStart& start, bool listens) {
  const std::lock_guard lock(start.mutex);
  start.is_over = true;
  start.listens = listens;
  start.changed.notify_all();
}

bool serve(const char* address) {
  static CapnpStart& start = *new CapnpStart;  // the thread uses it after this call
  std::thread([place = std::string(address)] {
    const bool served = succeeds([&] {
      capnp::EzRpcServer server(kj::heap<CallsServer>(), place.c_str(), 0, kLargeMessages);
      auto& scope = server.getWaitScope();
      server.getPort().wait(scope);
      finish(start, true);
      kj::Promise<void>(kj::NEVER_DONE).wait(scope);
    });
    if (!served) finish(start, false);
  }).detach();
  std::unique_lock lock(start.mutex);
  start.changed.wait(lock, [&] { return start.is_over; });
  return start.listens;
}

struct CapnpClient {
  capnp::EzRpcClient connection;
  Calls::Client calls;
  explicit CapnpClient(const char* address)
      : connection(address, 0, kLargeMessages), calls(connection.getMain<Calls>()) {}
  kj::WaitScope& scope() { return connection.getWaitScope(); }
};

CapnpClient& client_of(void* client) { return *static_cast<CapnpClient*>(client); }

void* connect(const char* address) {
  CapnpClient* client = nullptr;
  succeeds([&] { client = new CapnpClient(address); });
  return client;
}

void close(void* client) { delete &client_of(client); }

bool null(void* client) {
  return succeeds([&] { client_of(client).calls.nothingRequest().send().wait(client_of(client).scope()); });
}

bool add(void* client, uint32_t left, uint32_t right, uint32_t* sum) {
  return succeeds([&] {
    auto request = client_of(client).calls.addRequest();
    request.setLeft(left);
    request.setRight(right);
    *sum = request.send().wait(client_of(client).scope()).getSum();
  });
}

kj::ArrayPtr<const kj::byte> content_of(const char* bytes, size_t size) { return {reinterpret_cast<const kj::byte*>(bytes), size}; }

bool in(void* client, const char* bytes, size_t size) {
  return succeeds([&] {
    auto request = client_of(client).calls.takeInRequest();
    request.setContent(content_of(bytes, size));
    request.send().wait(client_of(client).scope());
  });
}

bool in_out(void* client, const char* bytes, size_t size, char* result) {
  bool whole = false;
  const bool done = succeeds([&] {
    auto request = client_of(client).calls.inOutRequest();
    request.setContent(content_of(bytes, size));
    const auto answer = request.send().wait(client_of(client).scope());
    whole = answer.getContent().size() == size;
    if (whole) std::memcpy(result, answer.getContent().begin(), size);
  });
  return done && whole;
}

constexpr Rival kCapnp{serve, connect, close, null, add, in, in_out};

}  // namespace

}  // namespace unet::bench

const unet::bench::Rival* unet_bench_rival() { return &unet::bench::kCapnp; }
