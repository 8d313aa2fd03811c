// run.cc - a program as one rank of its job.
#include <cstdio>

#include "am/splitc/am_transport.h"
#include "am/splitc/job.h"
#include "am/splitc/splitc.h"

namespace unet::splitc {
namespace {

constexpr int kFailure = 1;

Result<std::unique_ptr<Node>> start() {
  const Result<Job> job = Job::from_environment();
  if (!job) return tl::unexpected(job.error());
  auto transport = AmTransport::open(*job);
  if (!transport) return tl::unexpected(transport.error());
  return Node::start(std::move(*transport));
}

}  // namespace

int run(int argc, char** argv, int (*program)(int argc, char** argv)) {
  const Result<std::unique_ptr<Node>> node = start();
  if (!node) {
    std::fprintf(stderr, "splitc: %s\n", node.error().text.c_str());
    return kFailure;
  }
  current_node = node->get();
  const int status = program(argc, argv);
  // Who fails does not wait for the others: they are ended.
  if (status == 0) (*node)->finish();
  current_node = nullptr;
  return status;
}

}  // namespace unet::splitc
