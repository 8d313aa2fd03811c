// identity.h - whether a number of a descriptor still names what the table has under it; used by the calls that make or copy descriptors.
//
// A program can close a socket of ours without a call that this library sees: by an instruction of its own, or inside of the C library. The
// kernel gives the number away again then. The table must not take the new descriptor for the old socket. No call that moves data checks
// this, as that would be a system call for each message. Three rules find it elsewhere:
// - A number that a call returns as new is new. What the table has under it has been closed before.
// - A call that copies a descriptor, or leaves it to another program, compares the inode of the shadow.
// - The helper thread compares a few numbers each time that it looks. The peer of a connection thus learns of its end without a new number.
#pragma once

#include <cstdint>

#include "ipstack/preload/file.h"

namespace unet::preload {

// The kernel has just made this descriptor for the program. Returns it, or -1 as it is; errno stays.
int fresh(int fd) noexcept;

// ---- under the lock

// The inode of a descriptor; 0: there is none.
uint64_t inode_of(int fd) noexcept;
// The call is about to close the number. The entry, if no other number names it: it is the caller's then.
Entry* take_out(int fd);
// The number was closed before, and may name another descriptor. The entry ends if no other number names it.
void forget(int fd);
// The number names what the table has under it. False: it did not, and is forgotten, or the table has nothing.
bool verify(int fd);
// The next few numbers of the table, in turn.
void verify_some();

}  // namespace unet::preload
