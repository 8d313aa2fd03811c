// interface_claim.h - that an interface of the kernel is one port's at a time, of whatever program; used by ports on packet sockets.
//
// Packet sockets are given a copy each, so that two network interfaces on one interface would both answer for its address, with
// nobody knowing. The kernel refuses a second AF_XDP socket, and a second user of a tap, by itself.
//
// What is claimed is the only place of a fanout group of packet sockets (packet(7)), whose number says which interface it is and which
// lives in its network namespace. So the kernel gives it back when its owner ends, however it ends, and nobody can hold it who
// may not open the interface: with a file or a socket's name, any user could keep unetd from starting.
#pragma once

#include <string>
#include <utility>

#include "unet/base/result.h"

namespace unet::drivers {

class InterfaceClaim {
 public:
  InterfaceClaim() = default;
  // The interface, in the caller's network namespace, has to be up. `port` begins the sentence of an error: already_exists. What the
  // caller may not do, or the kernel cannot (before 5.12), is no error and claims nothing; remark() says so.
  static Result<InterfaceClaim> take(const std::string& port, const std::string& interface);

  InterfaceClaim(InterfaceClaim&& other) noexcept : socket_(std::exchange(other.socket_, -1)), remark_(std::move(other.remark_)) {}
  InterfaceClaim& operator=(InterfaceClaim&& other) noexcept {
    std::swap(socket_, other.socket_);
    std::swap(remark_, other.remark_);
    return *this;
  }
  ~InterfaceClaim();  // gives it back

  // For the port's description: empty, or that nothing keeps another network interface away, and why.
  const std::string& remark() const noexcept { return remark_; }

 private:
  explicit InterfaceClaim(int socket) noexcept : socket_(socket) {}
  static InterfaceClaim none(int error);
  int socket_ = -1;
  std::string remark_;
};

}  // namespace unet::drivers
