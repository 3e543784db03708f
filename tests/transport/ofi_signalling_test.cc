// How writes are told of over libfabric: by completion data or by a ring, as a put to oneself
// shows.

#if __has_include(<rdma/fabric.h>)

#include "transport/ofi/signalling.h"

#include "transport/fabric_side.h"
#include "transport/ofi/endpoint.h"

namespace unisono::test {
namespace {

using transport::ofi::Endpoint;
using transport::ofi::Signalling;

using OfiSignalling = DemandingProvider;

TEST_F(OfiSignalling, IsWhatAPutToOneselfShows) {
  struct Row {
    const char* demands;
    Signalling way;
  };
  for (const Row& row :
       {Row{"", Signalling::data}, Row{"local", Signalling::data}, Row{"late", Signalling::data},
        Row{"endpoint", Signalling::data}, Row{"unordered", Signalling::data},
        Row{"busy+full", Signalling::data}, Row{"no_message_data", Signalling::data},
        Row{"no_message_data+unordered", Signalling::data}, Row{"no_data", Signalling::ring},
        Row{"no_data+late", Signalling::ring}, Row{"refused_data", Signalling::ring},
        Row{"refused_data+busy", Signalling::ring}, Row{"lost_data", Signalling::ring},
        Row{"lost_data+local+late", Signalling::ring}}) {
    const auto made = Endpoint::open("127.0.0.1", demanding(row.demands));
    ASSERT_TRUE(made.ok()) << row.demands << ": " << made.error().describe();
    EXPECT_EQ((*made)->signalling(), row.way) << row.demands;
    // A provider's descriptor does not see what is written into a ring.
    if (row.way == Signalling::ring) {
      EXPECT_EQ((*made)->descriptor(), -1) << row.demands;
    }
  }
}

TEST_F(OfiSignalling, AWireWithNeitherIsRefusedByNameWithTheReason) {
  struct Row {
    const char* demands;
    const char* why;
  };
  for (const Row& row : {Row{"no_data+unordered", "it offers none"},
                         Row{"refused_data+unordered", "Function not implemented"},
                         Row{"lost_data+unordered", "they do not arrive"}}) {
    const std::string name = demanding(row.demands);
    const auto made = Endpoint::open("127.0.0.1", name);
    ASSERT_FALSE(made.ok()) << row.demands;
    const std::string& message = made.error().message;
    EXPECT_EQ(made.error().kind, ErrorKind::environment);
    EXPECT_NE(message.find(name + " cannot be used"), std::string::npos) << message;
    EXPECT_NE(message.find("keeps no order of writes"), std::string::npos) << message;
    EXPECT_NE(message.find(row.why), std::string::npos) << message;
  }
}

}  // namespace
}  // namespace unisono::test

#endif
