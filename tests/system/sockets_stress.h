// sockets_stress.h - common to both sides of sockets_stress: the header of a connection, and the bytes that it carries.
//
// Every byte follows from the connection's number, the direction and its offset. A byte of another connection, a repeated byte or a missing
// one is detected at once.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/types.h>

// The first bytes of each connection, from the caller.
struct Header {
  uint64_t number;
  uint64_t up, down;     // bytes to the server, without this header; bytes from it
  uint64_t resets_after; // the server resets after that many bytes down; 0: it does not
};

enum { kUp = 1, kDown = 2, kPiece = 32 * 1024 };

// Writes the bytes of a direction from an offset on.
void write_pattern(uint64_t number, int direction, uint64_t offset, unsigned char* to, size_t length);
// Ends the program with a message if the bytes differ.
void verify_pattern(uint64_t number, int direction, uint64_t offset, const unsigned char* from, size_t length);

// Takes turns among read(), readv(), recv() and recvmsg(), and among write() to sendmsg().
ssize_t take_some(int fd, void* to, size_t length, unsigned which);
ssize_t give_some(int fd, const void* from, size_t length, unsigned which);

void reset_and_close(int fd);
void ask_if_there(int fd);  // turns keep-alive on
uint64_t now_us(void);
// Prints an error and ends the program, with status 3.
void wrong(const char* format, ...) __attribute__((format(printf, 1, 2), noreturn));

// Converts `address` and `port` for bind() and connect().
socklen_t read_place(const char* address, int port, struct sockaddr_storage* to);

int serve(int argc, char** argv);
int load(int argc, char** argv);
