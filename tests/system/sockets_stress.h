// sockets_stress.h - what the two sides of sockets_stress have in common: the header of a connection, and the bytes that it carries.
//
// Each connection has a number, and every byte of it follows from that, the direction and its offset: so a byte that comes from another
// connection, twice, or not at all is found at once.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/types.h>

// The first thing on each connection, from its caller.
struct Header {
  uint64_t number;
  uint64_t up, down;     // bytes to the server, without this; and from it
  uint64_t resets_after; // so many bytes down the server resets it; 0: it does not
};

enum { kUp = 1, kDown = 2, kPiece = 32 * 1024 };

// The bytes of a direction from an offset on.
void write_pattern(uint64_t number, int direction, uint64_t offset, unsigned char* to, size_t length);
// Ends the program with words if they are others.
void verify_pattern(uint64_t number, int direction, uint64_t offset, const unsigned char* from, size_t length);

// read(), readv(), recv() or recvmsg(), and write() to sendmsg(), one after the other.
ssize_t take_some(int fd, void* to, size_t length, unsigned which);
ssize_t give_some(int fd, const void* from, size_t length, unsigned which);

void reset_and_close(int fd);
void ask_if_there(int fd);  // by keep-alive
uint64_t now_us(void);
// Says what is wrong and ends the program, with status 3.
void wrong(const char* format, ...) __attribute__((format(printf, 1, 2), noreturn));

// `address` and `port`, as bind() and connect() want it.
socklen_t read_place(const char* address, int port, struct sockaddr_storage* to);

int serve(int argc, char** argv);
int load(int argc, char** argv);
