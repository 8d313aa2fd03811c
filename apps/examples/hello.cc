// hello.cc - a message from one endpoint to another, and an answer; the first program to read. hello.c is the same in C.
//
//   c++ -std=c++20 -o hello hello.cc $(pkg-config --cflags --libs unet)
//   unet-run -- ./hello                     (unet-run starts a network interface for it; or start unetd, then ./hello)
//
// Both endpoints are in this process, to keep it short. In two processes (echo_server.cc, echo_client.cc) every call is the
// same.
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <unet/context.h>

namespace {

[[noreturn]] void give_up(std::string_view call, std::string_view why) {
  std::fprintf(stderr, "hello: %.*s: %.*s\n", int(call.size()), call.data(), int(why.size()), why.data());
  std::exit(1);
}

// Set-up calls return a value or an Error; its text says what was wrong and what to do. No call throws.
template <typename T>
T check(unet::Result<T> result, std::string_view call) {
  if (!result) give_up(call, result.error().text);
  if constexpr (!std::is_void_v<T>) return std::move(*result);
}

// The data path has few ways to fail, each with a name.
void send_text(unet::Endpoint& endpoint, unet::Channel channel, std::string_view text) {
  const unet::SendOutcome outcome = endpoint.send(channel, unet::as_bytes(text.data(), text.size()));
  if (outcome != unet::SendOutcome::sent) give_up("send", to_string(outcome));
}

// Waits for a message, prints it, and releases its memory.
unet::Channel show_message(const char* who, unet::Endpoint& endpoint) {
  unet::Message message;
  while (!endpoint.receive(message)) {
    // No message yet: poll for a moment, then sleep until one comes.
    if (endpoint.wait() != unet::WaitOutcome::ready) give_up("wait", "the network interface is gone, or a signal came");
  }
  // Read the message in place: its bytes are in memory that this process shares with the sender.
  std::printf("%s received: %.*s\n", who, int(message.length), reinterpret_cast<const char*>(message.data));
  endpoint.release(message);
  return message.channel;
}

}  // namespace

int main() {
  // 1. Connect to a network interface: the one that UNET_NI names (unet-run sets it), else the unetd of this host.
  unet::Context context = check(unet::Context::open(), "open");

  // 2. An endpoint is this program's own network interface: a send queue, a receive queue, and memory for messages.
  unet::Endpoint alice = check(context.create_endpoint(), "create_endpoint");
  unet::Endpoint bob = check(context.create_endpoint(), "create_endpoint");

  // 3. Bob binds a name, by which other endpoints find it.
  check(bob.bind("hello/bob"), "bind");

  // 4. Alice asks for a channel to that name. connect() would wait for Bob's answer. But Bob runs in this same thread, so Alice only starts
  // to connect, and looks for the answer later.
  const unet::PendingId pending = check(alice.start_connect("hello/bob"), "start_connect");

  // 5. Bob waits for a request and accepts it. To each side the channel is a small number.
  const unet::Channel to_alice = check(bob.accept(unet::Endpoint::kForever, nullptr), "accept");
  std::optional<unet::Result<unet::Channel>> connected;
  while (!(connected = alice.poll_connect(pending))) alice.wait();
  const unet::Channel to_bob = check(std::move(*connected), "connect");

  // 6. From here on the two talk without the kernel and without the network interface's service. Both are on one host, so the channel is
  // memory that only they share, and a short message is one cache line.
  send_text(alice, to_bob, "Hello, Bob.");
  const unet::Channel from = show_message("Bob", bob);
  send_text(bob, from, "Hello, Alice.");
  show_message("Alice", alice);

  // 7. Closing a channel tells the other side. Ending the program would do all of this as well.
  check(alice.close(to_bob), "close");
  check(bob.close(to_alice), "close");
}
