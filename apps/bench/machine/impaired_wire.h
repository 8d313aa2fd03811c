// impaired_wire.h - a cable between the two namespaces that loses and delays frames, the same for all paths of am-loss (Active Messages
// and the kernel's TCP) and of tcp-loss (our TCP and the kernel's).
//
//   namespace a          namespace b
//   host a -- middle a => middle b -- host b        two veth pairs; => is a program in the kernel, which hands each frame on, drops it,
//                      \ late /                     or hands it to a process, from which it comes back later than those behind it
//
// Frames are single ones: nothing is segmented or merged behind the sender. Needs root, and Linux 6.6 (tcx).
#pragma once

#include <sys/types.h>

#include <array>
#include <atomic>
#include <string>

#include "apps/bench/machine/netns.h"
#include "unet/mapping.h"

namespace unet::bench {

struct Impairment {
  double loss = 0;  // shares of all frames, in both directions
  double late = 0;
  uint32_t delay_us = 0;  // of each frame, one way; a late frame comes kLateBy after that
};

class ImpairedWire {
 public:
  static constexpr uint32_t kLateBy = 1000;  // us, on a wire that delays; else as long as a way through another process takes
  // Errors: unavailable (the kernel has no such programs), system.
  static Result<ImpairedWire> create(NamespacePair& namespaces);
  ImpairedWire(ImpairedWire&& other) noexcept;
  ImpairedWire& operator=(ImpairedWire&&) = delete;
  // Acts only in the process that created it; the interfaces disappear with their namespaces.
  ~ImpairedWire();

  const Veth& cable() const { return cable_; }  // the two hosts' ends
  // Takes effect at once; processes forked since may call it, too.
  void set(const Impairment& impairment);

 private:
  struct Thresholds;  // in a table that the programs read
  ImpairedWire() = default;
  Status make_table();
  Status attach(const std::string& interface, const std::string& to, const std::string& late);
  Status attach(const std::string& interface, const std::string& to);
  Status load_and_attach(const void* instructions, size_t count, const std::string& interface);
  Status open_late(const std::string& name, Descriptor& tap);
  Status start_late();

  Veth cable_;
  Descriptor table_;
  Thresholds* thresholds_ = nullptr;
  std::array<Descriptor, 2> taps_;  // frames to b and to a that are to be late
  std::vector<Descriptor> attached_;
  pid_t owner_ = 0, late_ = 0;
};

}  // namespace unet::bench
