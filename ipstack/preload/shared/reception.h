// reception.h - the sockets from which this process's program receives; used by all calls that receive, under the runtime's lock.
//
// Each process that has a listener or a datagram socket has a claim of its port (adoption.h). Arrivals should go to a process that accepts
// or reads. So the claim takes new flows only while the program does (File::receives), and other owners are asked for their arrivals.
#pragma once

#include <vector>

#include "ipstack/preload/file.h"

namespace unet::preload {

class Reception {
 public:
  // The program accepts or reads from the socket, or waits for it.
  void start(File& file) {
    const bool may = file.is_joined() && (file.in_stack() || file.inherited);
    if (may && (!file.receives || (!file.asked && !file.origins.empty()))) begin(file);
  }
  // As start(), for a socket that the stack has only now.
  void begin(File& file);
  // The program has stopped receiving from the socket, until start().
  static void stop(File& file);
  // The program leaves arrivals at the listener, so they go to other processes until a thread waits for it.
  void give_up(File& listener);
  // A thread begins to wait, perhaps for a listener that was given up.
  void resume() {
    if (!given_up_.empty()) [[unlikely]] resume_given_up();
  }

  // Returns unread datagrams to the owner of an inherited or passed socket, which still knows that this process has it.
  static void return_unread(File& file);
  // The program ends, or becomes another program.
  static void return_all_unread();

  void forget(const File& file) { std::erase(given_up_, &file); }
  void forget_all() noexcept { given_up_.clear(); }

 private:
  static void begin_reading(File& file);
  void resume_given_up();

  std::vector<File*> given_up_;
};

}  // namespace unet::preload
