// rivals.cc - calls by other RPC systems over a Unix socket: gRPC's C++ and Cap'n Proto's. Each is a library that is loaded here, if it was
// built (rivals/). Side A is the client. Side B's process has the server, which works in threads of its own while side B sleeps.
#include <dlfcn.h>
#include <unistd.h>

#include "apps/bench/frame/core_parking.h"
#include "apps/bench/machine/command.h"
#include "apps/bench/paths/paths.h"
#include "apps/bench/rivals/rival.h"
#include "apps/bench/workloads/calls.h"

namespace unet::bench {

namespace {

struct RivalCaller {
  const Rival& rival;
  void* client;
  RunContext& context;

  bool call(Procedure procedure, const std::byte* argument, uint32_t size, std::byte* result) {
    if (context.stop.raised()) return false;
    if (succeeds(procedure, argument, size, result)) return true;
    context.control.fail("a call failed");
    return false;
  }

 private:
  bool succeeds(Procedure procedure, const std::byte* argument, uint32_t size, std::byte* result) {
    const char* const bytes = reinterpret_cast<const char*>(argument);
    switch (procedure) {
      case Procedure::null: return rival.null(client);
      case Procedure::add: {
        uint32_t words[2], sum = 0;
        std::memcpy(words, argument, sizeof words);
        const bool added = rival.add(client, words[0], words[1], &sum);
        std::memcpy(result, &sum, sizeof sum);
        return added;
      }
      case Procedure::in: return rival.in(client, bytes, size);
      case Procedure::in_out: return rival.in_out(client, bytes, size, reinterpret_cast<char*>(result));
    }
    return false;
  }
};

class RivalCalls final : public Path {
 public:
  RivalCalls(PathInfo info, std::string library, std::string packages)
      : Path(std::move(info)), library_(std::move(library)), packages_(std::move(packages)) {}

  Status prepare(Environment&) override {
    file_ = find_program("bench/rivals", library_);
    if (access(file_.c_str(), R_OK) != 0) {
      return fail(Errc::unavailable, "not available: install " + packages_ + ", and build again");
    }
    address_ = "unix-abstract:unet-bench-" + info_.name + "-" + std::to_string(getpid());
    return parking_.prepare();
  }

  Status set_up(const RunContext& run, Environment&) override {
    if (auto loaded = load(); !loaded) return loaded;
    if (run.side == Side::b) {
      const bool serves = rival_->serve(address_.c_str());
      parking_.release(run);
      return serves ? Status{} : fail(Errc::unavailable, "its server does not start");
    }
    parking_.park(run);  // until the server is there
    client_ = rival_->connect(address_.c_str());
    if (client_ == nullptr) return fail(Errc::unavailable, "its client does not connect");
    buffers_ = MessageBuffers(kCallMax);
    return {};
  }

  Outcome run(const Slice& slice, RunContext& context) override {
    if (context.side == Side::b) {
      parking_.park(context);
      return {};
    }
    RivalCaller caller{*rival_, client_, context};
    const Outcome outcome = time_calls(caller, slice, buffers_, context);
    parking_.release(context);
    return outcome;
  }

  void tear_down(const RunContext&) override {
    if (client_ != nullptr) rival_->close(client_);
    client_ = nullptr;
  }

 private:
  // The library stays: threads of it may run until the process ends.
  Status load() {
    void* const library = dlopen(file_.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) return fail(Errc::unavailable, dlerror());
    const auto get = reinterpret_cast<const Rival* (*)()>(dlsym(library, kRivalSymbol));
    if (get == nullptr) return fail(Errc::unavailable, dlerror());
    rival_ = get();
    return {};
  }

  const std::string library_, packages_;
  std::string file_, address_;
  CoreParking parking_;
  const Rival* rival_ = nullptr;
  void* client_ = nullptr;
  MessageBuffers buffers_{0};
};

}  // namespace

void add_rivals(Paths& paths) {
  const auto add = [&](const char* name, const char* what, const char* setting, const char* library, const char* packages) {
    paths.push_back(std::make_unique<RivalCalls>(PathInfo{.name = name,
                                                          .kind = Kind::kernel,
                                                          .what = what,
                                                          .setting = setting,
                                                          .workloads = {Workload::call},
                                                          .abilities = {Ability::messages, Ability::sleeps},
                                                          .only = {"rpc"},
                                                          .side_b_parked = true},
                                                 library, packages));
  };
  add("rpc-grpc", "calls by gRPC's C++ over a Unix socket", "synchronous calls and server, default options", "libunet_bench_grpc.so",
      "libgrpc++-dev, libprotobuf-dev and protobuf-compiler-grpc");
  add("rpc-capnp", "calls by Cap'n Proto's RPC over a Unix socket", "EzRpcServer and EzRpcClient", "libunet_bench_capnp.so",
      "libcapnp-dev and capnproto");
}

}  // namespace unet::bench
