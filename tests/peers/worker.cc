// The worker belongs to no layer: programs outside the build compile it, and so does this test.
#include "../../bench/peers/worker.cc"
