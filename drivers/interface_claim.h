// interface_claim.h - reserves an interface of the kernel for one port among all programs; used by ports on packet sockets.
//
// Each packet socket gets a copy of every frame. Two network interfaces of U-Net on one interface would both answer for its address,
// unnoticed. The kernel itself refuses a second AF_XDP socket and a second user of a tap. An AF_XDP socket beside a packet socket takes all
// frames of the wire, and nothing refuses it.
//
// The claim is the only place in a fanout group of packet sockets (packet(7)). The group's number identifies the interface, within its
// network namespace. The kernel therefore releases the claim when its owner ends, however it ends. Only users with the right to open the
// interface can hold it: with a file or a socket's name instead, any user could keep unetd from starting.
#pragma once

#include <string>
#include <utility>

#include "unet/base/result.h"

namespace unet::drivers {

class InterfaceClaim {
 public:
  InterfaceClaim() = default;
  // The interface, in the caller's network namespace, must be up. `port` begins the error's text. Error: already_exists. Without the right
  // to claim, or on a kernel before 5.12, the call succeeds and claims nothing; remark() then says so.
  static Result<InterfaceClaim> take(const std::string& port, const std::string& interface);

  InterfaceClaim(InterfaceClaim&& other) noexcept : socket_(std::exchange(other.socket_, -1)), remark_(std::move(other.remark_)) {}
  InterfaceClaim& operator=(InterfaceClaim&& other) noexcept {
    std::swap(socket_, other.socket_);
    std::swap(remark_, other.remark_);
    return *this;
  }
  ~InterfaceClaim();  // releases the claim

  // A remark for the port's description: empty, or that the interface is not protected from another network interface, and why.
  const std::string& remark() const noexcept { return remark_; }

 private:
  explicit InterfaceClaim(int socket) noexcept : socket_(socket) {}
  static InterfaceClaim none(int error);
  int socket_ = -1;
  std::string remark_;
};

}  // namespace unet::drivers
