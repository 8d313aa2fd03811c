// am_hello.cc - Active Messages: a request that runs a handler elsewhere, its reply, and a message that is returned. am_hello.c: in C.
//
//   c++ -std=c++20 -o am_hello am_hello.cc $(pkg-config --cflags --libs unet-am)
//   unet-run -- ./am_hello                  (unet-run starts a network interface for it; or start unetd, then ./am_hello)
//
// Both endpoints are in this process, and in one bundle, to keep it short. In two processes every call is the same.
#include <am/bundle.h>

#include <cstdio>
#include <cstdlib>
#include <string>

namespace am = unet::am;

namespace {

// Indices of Bob's handler table and of Alice's.
constexpr uint8_t kMultiply = 1, kNoSuchHandler = 2;
constexpr uint8_t kProduct = 1;

bool answered = false, returned = false;

// Runs at Bob. The token is the message, and the right to reply to it.
void multiply(am::Token& token, uint32_t a, uint32_t b) {
  std::printf("Bob handles a request from %s: %u * %u\n", std::string(token.source_name()).c_str(), a, b);
  token.reply(kProduct, a * b);
}

// Runs at Alice.
void take_product(am::Token&, uint32_t product) {
  std::printf("Alice handles a reply: %u\n", product);
  answered = true;
}

// Runs at Alice for an undeliverable message.
void came_back(am::Endpoint&, const am::Returned& message, void*) {
  std::printf("came back: %s\n", am::to_string(message.status).data());
  returned = true;
}

// Returns the value of a set-up call, or ends the program with the error's sentence.
template <typename T>
T check(unet::Result<T> result) {
  if (result) return std::move(*result);
  std::fprintf(stderr, "am_hello: %s\n", result.error().text.c_str());
  std::exit(1);
}
void check(const unet::Status& status) {
  if (status) return;
  std::fprintf(stderr, "am_hello: %s\n", status.error().text.c_str());
  std::exit(1);
}

}  // namespace

int main() {
  // 1. Open a network interface, and make a bundle: the endpoints that one poll serves.
  unet::Context context = check(unet::Context::open());
  const auto bundle = check(am::Bundle::create());

  // 2. Make two endpoints with names. A typed handler gets its declared arguments; other messages are returned.
  const auto alice = check(am::Endpoint::create(context));
  const auto bob = check(am::Endpoint::create(context));
  bundle->add(*alice);
  bundle->add(*bob);
  check(alice->bind("hello/alice"));
  check(bob->bind("hello/bob"));
  bob->set_handler(kMultiply, am::handler_of<multiply>());
  alice->set_handler(kProduct, am::handler_of<take_product>());
  alice->set_error_handler(came_back, nullptr);

  // 3. Map Alice's translation 0 to Bob.
  check(alice->map(0, "hello/bob"));

  // 4. Send a request and wait: handlers run meanwhile.
  alice->request(0, kMultiply, 6u, 7u);
  while (!answered) bundle->wait();

  // 5. Bob has no such handler: the message is returned.
  alice->request(0, kNoSuchHandler);
  while (!returned) bundle->wait();
  return 0;
}
