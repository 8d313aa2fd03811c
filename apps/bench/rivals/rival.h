// rival.h - what a library of this directory has for the path of its name (paths/rivals.cc): calls by one RPC system over a Unix socket.
// unet-bench loads it when it measures this system, and does not link it.
#pragma once

#include <cstddef>
#include <cstdint>

namespace unet::bench {

// Addresses are written "unix-abstract:NAME". A function returns nullptr or false after a failure.
struct Rival {
  // Starts a server with threads of its own, which end with the process.
  bool (*serve)(const char* address);
  // A client belongs to the thread that made it.
  void* (*connect)(const char* address);
  void (*close)(void* client);

  bool (*null)(void* client);
  bool (*add)(void* client, uint32_t left, uint32_t right, uint32_t* sum);
  bool (*in)(void* client, const char* bytes, size_t size);
  // `result` has room for `size` bytes.
  bool (*in_out)(void* client, const char* bytes, size_t size, char* result);
};

constexpr const char* kRivalSymbol = "unet_bench_rival";

}  // namespace unet::bench

extern "C" __attribute__((visibility("default"))) const unet::bench::Rival* unet_bench_rival();
