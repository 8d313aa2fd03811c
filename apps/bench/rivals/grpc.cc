// grpc.cc - gRPC's C++ with its synchronous calls and server, default options, messages of any length.
#include <calls.grpc.pb.h>
#include <grpcpp/grpcpp.h>

#include <chrono>
#include <cstring>
#include <memory>
#include <string>

#include "apps/bench/rivals/rival.h"

namespace unet::bench {

namespace {

constexpr int kAnyLength = -1;
constexpr auto kConnectWithin = std::chrono::seconds(30);

class CallsService final : public Calls::Service {
  grpc::Status Null(grpc::ServerContext*, const Nothing*, Nothing*) override { return grpc::Status::OK; }
  grpc::Status Add(grpc::ServerContext*, const Words* words, Word* word) override {
    word->set_sum(words->left() + words->right());
    return grpc::Status::OK;
  }
  grpc::Status In(grpc::ServerContext*, const Block*, Nothing*) override { return grpc::Status::OK; }
  grpc::Status InOut(grpc::ServerContext*, const Block* block, Block* result) override {
    result->set_content(block->content());
    return grpc::Status::OK;
  }
};

struct GrpcServer {
  CallsService service;
  std::unique_ptr<grpc::Server> server;
};

bool serve(const char* address) {
  static GrpcServer& server = *new GrpcServer;  // its threads use it until the process ends
  grpc::ServerBuilder builder;
  builder.AddListeningPort(address, grpc::InsecureServerCredentials());
  builder.SetMaxReceiveMessageSize(kAnyLength);
  builder.SetMaxSendMessageSize(kAnyLength);
  builder.RegisterService(&server.service);
  server.server = builder.BuildAndStart();
  return server.server != nullptr;
}

struct GrpcClient {
  std::unique_ptr<Calls::Stub> stub;
  Block block;  // used again, so that its memory is there
};

void* connect(const char* address) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(kAnyLength);
  arguments.SetMaxSendMessageSize(kAnyLength);
  const auto channel = grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments);
  if (!channel->WaitForConnected(std::chrono::system_clock::now() + kConnectWithin)) return nullptr;
  return new GrpcClient{Calls::NewStub(channel), {}};
}

void close(void* client) { delete static_cast<GrpcClient*>(client); }

Calls::Stub& stub_of(void* client) { return *static_cast<GrpcClient*>(client)->stub; }

bool null(void* client) {
  grpc::ClientContext context;
  Nothing result;
  return stub_of(client).Null(&context, Nothing(), &result).ok();
}

bool add(void* client, uint32_t left, uint32_t right, uint32_t* sum) {
  grpc::ClientContext context;
  Words words;
  words.set_left(left);
  words.set_right(right);
  Word result;
  if (!stub_of(client).Add(&context, words, &result).ok()) return false;
  *sum = result.sum();
  return true;
}

bool in(void* client, const char* bytes, size_t size) {
  grpc::ClientContext context;
  Block& block = static_cast<GrpcClient*>(client)->block;
  block.set_content(bytes, size);
  Nothing result;
  return stub_of(client).In(&context, block, &result).ok();
}

bool in_out(void* client, const char* bytes, size_t size, char* result) {
  grpc::ClientContext context;
  Block& block = static_cast<GrpcClient*>(client)->block;
  block.set_content(bytes, size);
  Block answer;
  if (!stub_of(client).InOut(&context, block, &answer).ok() || answer.content().size() != size) return false;
  std::memcpy(result, answer.content().data(), size);
  return true;
}

constexpr Rival kGrpc{serve, connect, close, null, add, in, in_out};

}  // namespace

}  // namespace unet::bench

const unet::bench::Rival* unet_bench_rival() { return &unet::bench::kGrpc; }
