# calls.capnp - LRPC's tests and large arguments as an interface of Cap'n Proto.
@0xb1d0c5e2a7f34961;

using Cxx = import "/capnp/c++.capnp";
$Cxx.namespace("unet::bench::capnp_calls");

interface Calls {
  nothing @0 ();
  add @1 (left :UInt32, right :UInt32) -> (sum :UInt32);
  takeIn @2 (content :Data);
  inOut @3 (content :Data) -> (content :Data);
}
