// identity.h - whether a descriptor still names the entry that the table has for it; used by the calls that make or copy descriptors.
//
// A program can close a descriptor without a call that this library sees: by a system call instruction, or inside of the C library. The
// kernel then uses the number again. The table must not take the new descriptor for the old socket. Calls that move data do not check this,
// as a check is a system call. Three rules find it elsewhere:
// - A call that makes a descriptor returns a number that was free, so the table's entry for that number belongs to a closed descriptor.
// - A call that copies a descriptor, or leaves it to another program, compares the inode of the shadow.
// - The helper thread checks a few descriptors in each pass, so a peer learns that its connection has ended.
#pragma once

#include <cstdint>

#include "ipstack/preload/file.h"

namespace unet::preload {

// The kernel has just made this descriptor, so an old entry at its number goes. Returns `fd`, also if it is -1; errno stays.
int fresh(int fd) noexcept;

// ---- under the lock

// The inode of a descriptor; 0: there is none.
uint64_t inode_of(int fd) noexcept;
// For a call that closes the descriptor. Returns the entry if that was its last descriptor; the caller then owns it.
Entry* take_out(int fd);
// The descriptor was closed before, and its number may name another one. Ends its entry if that was the last descriptor.
void forget(int fd);
// Whether the descriptor names its entry; if not, forgets it. False also without an entry.
bool verify(int fd);
// Verifies the next few descriptors of the table, in turn.
void verify_some();

}  // namespace unet::preload
