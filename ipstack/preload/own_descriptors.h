// own_descriptors.h - the descriptors that this library has for itself. The program must not close or replace them: the library would read,
// write and close its replacements.
//
// Most have high numbers, which programs neither choose nor expect from their next open().
#pragma once

#include <array>
#include <atomic>
#include <span>
#include <vector>

#include "ipstack/preload/shared/parent_channels.h"

namespace unet::preload {

// Where the numbers of this library's descriptors begin. Programs choose lower ones, as a shell's 9.
constexpr int kFirstDescriptor = 900;
// Gives the descriptor such a number. Returns the new number; without a free one, the old.
int out_of_the_way(int fd) noexcept;

// Notes whether a number is a thread's eventfd, or a descriptor of unet/.
void note_own(int fd, bool is) noexcept;
void forget_own() noexcept;

// close_range(), but for these, in ascending order; a negative one is none.
int close_all_but(std::span<const int> kept, unsigned first, unsigned last, int flags) noexcept;

class OwnDescriptors {
 public:
  OwnDescriptors() noexcept;

  // Whether the number is one of them. Below kFirstDescriptor only indispensable ones are known.
  bool has(int fd) const;
  // All, in ascending order. Takes the lock.
  std::vector<int> all() const;

  // ---- under the lock

  std::vector<int> all_now() const;
  // An indispensable descriptor is there or has gone.
  void update() noexcept;

 private:
  bool is_indispensable(int fd) const noexcept;

  // The control socket and its news, the endpoint's, the helper's, and channels. -1: there is none.
  static constexpr size_t kOfStack = 4;
  std::array<std::atomic<int>, kOfStack + ParentChannels::kMost> indispensable_;
};

}  // namespace unet::preload
